// Mastra. Start it with `node --import aegis-guard/register mastra.mjs`: there is nothing to change in the program.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

const provider = createOpenAICompatible({ name: 'own', baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
const agent = new Agent({
  id: 'reader',
  name: 'reader',
  instructions: 'Answer from files.',
  model: provider(process.env.MODEL ?? 'gpt-5'),
  tools: {
    read_file: createTool({
      id: 'read_file',
      description: 'Read a file',
      inputSchema: z.object({ path: z.string() }),
      execute: async ({ path }) => (console.log(`reading ${path}`), `the text of ${path}`),
    }),
  },
});
const { steps } = await agent.generate('What is in the report?', { maxSteps: 5 });
console.log(steps.at(-1).text);
