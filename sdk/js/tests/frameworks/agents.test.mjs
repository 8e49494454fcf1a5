import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';

import { contract } from './contract.mjs';

setTracingDisabled(true);
const NAMES = { send_email: z.object({ to: z.string() }), read_file: z.object({ path: z.string() }) };

function agent(world, Model) {
  const client = new OpenAI({ baseURL: `${world.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const tools = Object.entries(NAMES).map(([name, parameters]) =>
    tool({ name, description: name, parameters, execute: async (input) => world.run(name, input) }),
  );
  return new Agent({ name: 'bot', instructions: 'go', model: new Model(client, 'scripted'), tools });
}

const run = (Model) => async (world) => (await new Runner().run(agent(world, Model), 'go')).finalOutput;
const stream = (Model) => async (world) => {
  const result = await new Runner().run(agent(world, Model), 'go', { stream: true });
  for await (const _ of result) continue;
  await result.completed;
  return result.finalOutput;
};

const quiet = { words: false }; // it says only that there was an error
contract('@openai/agents', {
  run: { drive: run(OpenAIChatCompletionsModel), ...quiet },
  'run over responses': { drive: run(OpenAIResponsesModel), ...quiet },
  'run streamed': { drive: stream(OpenAIChatCompletionsModel), ...quiet },
  'run streamed over responses': { drive: stream(OpenAIResponsesModel), ...quiet },
});
