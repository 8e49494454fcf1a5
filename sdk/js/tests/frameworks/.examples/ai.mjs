// The AI SDK. Start it with `node --import aegis-guard/register ai.mjs`: there is nothing to change in the program.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, tool } from 'ai';
import { z } from 'zod';

const provider = createOpenAICompatible({ name: 'own', baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
const { text } = await generateText({
  model: provider(process.env.MODEL ?? 'gpt-5'),
  prompt: 'What is in the report?',
  stopWhen: stepCountIs(5),
  tools: {
    read_file: tool({
      description: 'Read a file',
      inputSchema: z.object({ path: z.string() }),
      execute: ({ path }) => (console.log(`reading ${path}`), `the text of ${path}`),
    }),
  },
});
console.log(text);
