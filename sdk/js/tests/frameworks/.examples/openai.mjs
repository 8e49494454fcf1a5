// The `openai` package, with its own runner: every call is decided where the function is called.
import { auto } from 'aegis-guard';
import OpenAI from 'openai';

console.log(String(await auto({ onUnhooked: 'warn' })).split('\n')[0]);

const runner = new OpenAI().chat.completions.runTools({
  model: process.env.MODEL ?? 'gpt-5',
  messages: [{ role: 'user', content: 'What is in the report?' }],
  tools: [
    {
      type: 'function',
      function: {
        name: 'read_file',
        description: 'Read a file',
        parameters: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
        parse: JSON.parse,
        function: ({ path }) => (console.log(`reading ${path}`), `the text of ${path}`),
      },
    },
  ],
});
console.log(await runner.finalContent());
