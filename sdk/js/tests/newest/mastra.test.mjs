// Mastra: agents whose tools are decided where they are executed.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

import { contract } from './contract.mjs';

const agent = (world) =>
  new Agent({
    id: 'agent',
    name: 'agent',
    instructions: 'help',
    model: createOpenAICompatible({ name: 'scripted', baseURL: `${world.url}/v1` })('scripted'),
    maxRetries: 0,
    tools: {
      send_email: createTool({
        id: 'send_email',
        description: 'send',
        inputSchema: z.object({ to: z.string() }),
        execute: async (input) => world.run('send_email', input),
      }),
      read_file: createTool({
        id: 'read_file',
        description: 'read',
        inputSchema: z.object({ path: z.string() }),
        execute: async (input) => world.run('read_file', input),
      }),
    },
  });

contract('@mastra/core', {
  'agent.generate': { drive: async (world) => (await agent(world).generate('go', { maxSteps: 5 })).steps.at(-1).text },
  'agent.stream': {
    drive: async (world) => {
      const output = await agent(world).stream('go', { maxSteps: 5 });
      await output.consumeStream();
      return (await output.steps).at(-1).text;
    },
  },
});
