// The OpenAI Agents SDK: every function tool is decided where it is invoked.
import { Agent, OpenAIChatCompletionsModel, run, setTracingDisabled, tool } from '@openai/agents';
import { hook } from 'aegis-guard/agents';
import OpenAI from 'openai';
import { z } from 'zod';

setTracingDisabled(true);
await hook();
const agent = new Agent({
  name: 'reader',
  instructions: 'Answer from the report.',
  model: new OpenAIChatCompletionsModel(new OpenAI(), process.env.MODEL ?? 'gpt-5'),
  tools: [
    tool({
      name: 'read_file',
      description: 'Read a file',
      parameters: z.object({ path: z.string() }),
      execute: ({ path }) => (console.log(`reading ${path}`), `the text of ${path}`),
    }),
  ],
});
console.log((await run(agent, 'What is in the report?')).finalOutput);
