import Anthropic from '@anthropic-ai/sdk';

import { contract } from './contract.mjs';

const client = (world) => new Anthropic({ baseURL: world.url, apiKey: 'none', maxRetries: 0 });
const input_schema = { type: 'object', properties: { to: { type: 'string' }, path: { type: 'string' } } };
const NAMES = ['send_email', 'read_file'];
const base = { model: 'scripted', max_tokens: 100 };
const text = (message) => message.content.map((block) => block.text ?? '').join('');

async function byHand(world, ask) {
  const messages = [{ role: 'user', content: 'go' }];
  const tools = NAMES.map((name) => ({ name, input_schema }));
  for (;;) {
    const message = await ask(client(world), { ...base, messages, tools });
    messages.push({ role: 'assistant', content: message.content });
    const uses = message.content.filter((block) => block.type === 'tool_use');
    if (!uses.length) return text(message);
    const content = uses.map((use) => ({ type: 'tool_result', tool_use_id: use.id, content: world.run(use.name, use.input) }));
    messages.push({ role: 'user', content });
  }
}

const runner = (options) => async (world) => {
  const tools = NAMES.map((name) => ({ name, input_schema, run: (input) => world.run(name, input), parse: (input) => input }));
  const messages = [{ role: 'user', content: 'go' }];
  return text(await client(world).beta.messages.toolRunner({ ...base, messages, tools, ...options }).runUntilDone());
};

const one = { runs: false };
contract('@anthropic-ai/sdk', {
  'messages.create': { ...one, drive: (world) => byHand(world, (c, body) => c.messages.create(body)) },
  'messages.stream': { ...one, drive: (world) => byHand(world, (c, body) => c.messages.stream(body).finalMessage()) },
  'beta.messages.create': { ...one, drive: (world) => byHand(world, (c, body) => c.beta.messages.create(body)) },
  toolRunner: { drive: runner({}) },
  'toolRunner stream': { drive: runner({ stream: true }) },
  'toolRunner eager': { drive: runner({ stream: true, runToolsEagerly: true }) },
});
