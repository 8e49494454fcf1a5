import OpenAI from 'openai';

import { contract } from './contract.mjs';

const client = (world) => new OpenAI({ baseURL: `${world.url}/v1`, apiKey: 'none', maxRetries: 0 });
const parameters = { type: 'object', properties: { to: { type: 'string' }, path: { type: 'string' } } };
const NAMES = ['send_email', 'read_file'];
const tools = NAMES.map((name) => ({ type: 'function', function: { name, parameters } }));

/** An agent that the host writes itself, over chat completions; `ask` gives the message of one turn. */
async function byHand(world, ask) {
  const messages = [{ role: 'user', content: 'go' }];
  for (;;) {
    const message = await ask(client(world), { model: 'scripted', messages, tools });
    messages.push(message);
    if (!message.tool_calls?.length) return message.content;
    for (const call of message.tool_calls) {
      const content = world.run(call.function.name, JSON.parse(call.function.arguments));
      messages.push({ role: 'tool', tool_call_id: call.id, content });
    }
  }
}

async function overResponses(world, ask) {
  const input = [{ role: 'user', content: 'go' }];
  for (;;) {
    const response = await ask(client(world), { model: 'scripted', input, tools: NAMES.map((name) => ({ type: 'function', name, parameters, strict: false })) });
    input.push(...response.output);
    const calls = response.output.filter((item) => item.type === 'function_call');
    if (!calls.length) return response.output.flatMap((item) => item.content ?? []).map((part) => part.text).join('');
    for (const call of calls) {
      const output = world.run(call.name, JSON.parse(call.arguments));
      input.push({ type: 'function_call_output', call_id: call.call_id, output });
    }
  }
}

const runnable = (world, parse) =>
  NAMES.map((name) => ({
    type: 'function',
    function: {
      name,
      parameters,
      description: name,
      ...(parse ? { parse: JSON.parse } : {}),
      function: (args) => world.run(name, parse ? args : JSON.parse(args)),
    },
  }));

const runTools = (options, parse = true) => async (world) => {
  const messages = [{ role: 'user', content: 'go' }];
  const runner = client(world).chat.completions.runTools({ model: 'scripted', messages, tools: runnable(world, parse), ...options });
  return runner.finalContent();
};

/** The message that raw chunks spell. */
async function assembled(stream) {
  const message = { role: 'assistant', content: '', tool_calls: [] };
  for await (const chunk of stream) {
    const delta = chunk.choices[0]?.delta ?? {};
    message.content += delta.content ?? '';
    for (const part of delta.tool_calls ?? []) {
      const call = (message.tool_calls[part.index] ??= { id: part.id, type: 'function', function: { name: part.function.name, arguments: '' } });
      call.function.arguments += part.function?.arguments ?? '';
    }
  }
  if (!message.tool_calls.length) delete message.tool_calls;
  return message;
}

const one = { runs: false };
contract('openai', {
  'chat.create': { ...one, drive: (world) => byHand(world, async (c, body) => (await c.chat.completions.create(body)).choices[0].message) },
  'chat.create stream': { ...one, drive: (world) => byHand(world, async (c, body) => assembled(await c.chat.completions.create({ ...body, stream: true }))) },
  'chat.stream': { ...one, drive: (world) => byHand(world, (c, body) => c.chat.completions.stream(body).finalMessage()) },
  'responses.create': { ...one, drive: (world) => overResponses(world, (c, body) => c.responses.create(body)) },
  'responses.stream': { ...one, drive: (world) => overResponses(world, (c, body) => c.responses.stream(body).finalResponse()) },
  runTools: { drive: runTools({}) },
  'runTools, text': { drive: runTools({}, false) },
  'runTools stream': { drive: runTools({ stream: true }) },
});
