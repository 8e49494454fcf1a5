// Started with `--import aegis-guard/register`-like guards: see `guardModules` below, which has to come before `ai`.
import { createRequire } from 'node:module';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { z } from 'zod';

import { contract } from './contract.mjs';

createRequire(import.meta.url)('../../dist/register.js').guardModules();
const { generateText, streamText, stepCountIs, tool, ToolLoopAgent } = await import('ai');

const model = (world) => createOpenAICompatible({ name: 'scripted', baseURL: `${world.url}/v1` })('scripted');
const tools = (world) => ({
  send_email: tool({ inputSchema: z.object({ to: z.string() }), execute: (input) => world.run('send_email', input) }),
  read_file: tool({ inputSchema: z.object({ path: z.string() }), execute: async (input) => world.run('read_file', input) }),
});
const common = (world) => ({ model: model(world), tools: tools(world), stopWhen: stepCountIs(5), maxRetries: 0 });

contract('ai', {
  generateText: { drive: async (world) => (await generateText({ ...common(world), prompt: 'go' })).text },
  streamText: {
    drive: async (world) => {
      const result = streamText({ ...common(world), prompt: 'go', onError: () => {} });
      await result.consumeStream();
      return await result.text;
    },
  },
  'agent.generate': { drive: async (world) => (await new ToolLoopAgent(common(world)).generate({ prompt: 'go' })).text },
  'agent.stream': {
    drive: async (world) => {
      const result = await new ToolLoopAgent(common(world)).stream({ prompt: 'go' });
      await result.consumeStream();
      return await result.text;
    },
  },
});
