// The `@anthropic-ai/sdk` package, with an agent's loop of your own: calls are decided in the model's answer.
import Anthropic from '@anthropic-ai/sdk';
import { hook } from 'aegis-guard/anthropic';

await hook();
const client = new Anthropic();
const tools = [{ name: 'read_file', input_schema: { type: 'object', properties: { path: { type: 'string' } } } }];
const messages = [{ role: 'user', content: 'What is in the report?' }];
for (;;) {
  const message = await client.messages.create({ model: process.env.MODEL ?? 'claude-opus-5', max_tokens: 1024, messages, tools });
  messages.push({ role: 'assistant', content: message.content });
  const uses = message.content.filter((block) => block.type === 'tool_use');
  if (uses.length === 0) {
    console.log(message.content.map((block) => block.text).join(''));
    break;
  }
  const content = uses.map((use) => {
    console.log(`reading ${use.input.path}`);
    return { type: 'tool_result', tool_use_id: use.id, content: `the text of ${use.input.path}` };
  });
  messages.push({ role: 'user', content });
}
