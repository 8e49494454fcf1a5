// The `openai` package through the gateway, without any package of ours: the base URL and the key are all that differs.
// OPENAI_BASE_URL=http://127.0.0.1:8787/v1  OPENAI_API_KEY=aegis_...
import OpenAI from 'openai';

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
