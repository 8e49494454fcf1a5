import assert from 'node:assert/strict';
import { test } from 'node:test';

import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { END, MemorySaver, MessagesAnnotation, START, StateGraph, interrupt, Command } from '@langchain/langgraph';
import { createReactAgent, ToolNode } from '@langchain/langgraph/prebuilt';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent } from 'langchain';
import { z } from 'zod';

import { auto, unhook } from 'aegis-guard';

import { ScriptedDecider } from '../support/decider.mjs';
import { contract } from './contract.mjs';

const model = (world, more = {}) =>
  new ChatOpenAI({ model: 'scripted', apiKey: 'none', maxRetries: 0, configuration: { baseURL: `${world.url}/v1` }, ...more });
const tools = (world) => [
  tool(async (input) => world.run('send_email', input), { name: 'send_email', description: 'send', schema: z.object({ to: z.string() }) }),
  tool(async (input) => world.run('read_file', input), { name: 'read_file', description: 'read', schema: z.object({ path: z.string() }) }),
];
const input = () => ({ messages: [new HumanMessage('go')] });
const last = ({ messages }) => {
  const { content } = messages.at(-1);
  return typeof content === 'string' ? content : content.map((part) => part.text ?? '').join('');
};

function ownGraph(world) {
  const bound = model(world).bindTools(tools(world));
  return new StateGraph(MessagesAnnotation)
    .addNode('model', async (state) => ({ messages: [await bound.invoke(state.messages)] }))
    .addNode('tools', new ToolNode(tools(world)))
    .addEdge(START, 'model')
    .addConditionalEdges('model', (state) => (state.messages.at(-1).tool_calls?.length ? 'tools' : END))
    .addEdge('tools', 'model')
    .compile();
}

async function streamed(graph) {
  let state;
  for await (const [mode, values] of await graph.stream(input(), { streamMode: ['values', 'messages'] })) {
    if (mode === 'values') state = values;
  }
  return last(state);
}

contract('langchain', {
  agent: { drive: async (world) => last(await createAgent({ model: model(world), tools: tools(world) }).invoke(input())) },
  'agent over responses': {
    drive: async (world) => last(await createAgent({ model: model(world, { useResponsesApi: true }), tools: tools(world) }).invoke(input())),
  },
  'agent stream': { drive: (world) => streamed(createAgent({ model: model(world), tools: tools(world) })) },
  'react agent': { drive: async (world) => last(await createReactAgent({ llm: model(world), tools: tools(world) }).invoke(input())) },
  'own graph': { drive: async (world) => last(await ownGraph(world).invoke(input())) },
  'own graph, streamed': { drive: (world) => streamed(ownGraph(world)) },
});

test('a tool that pauses is asked about again when it is resumed, under the same id', async () => {
  const decider = new ScriptedDecider();
  await auto({ decider, onUnhooked: 'warn' });
  let began = 0;
  let ended = 0;
  const asking = tool(
    async () => {
      began += 1;
      const answer = interrupt('sure?');
      ended += 1;
      return `said ${answer}`;
    },
    { name: 'ask', description: 'ask', schema: z.object({}) },
  );
  const call = { name: 'ask', args: {}, id: 'call_ask0000000000000000000', type: 'tool_call' };
  const { AIMessage } = await import('@langchain/core/messages');
  const graph = new StateGraph(MessagesAnnotation)
    .addNode('tools', new ToolNode([asking]))
    .addEdge(START, 'tools')
    .compile({ checkpointer: new MemorySaver() });
  const config = { configurable: { thread_id: '1' } };
  try {
    await graph.invoke({ messages: [new AIMessage({ content: '', tool_calls: [call] })] }, config);
    assert.deepEqual([began, ended], [1, 0]);
    const state = await graph.invoke(new Command({ resume: 'yes' }), config);
    assert.deepEqual([began, ended], [2, 1]);
    assert.equal(last(state), 'said yes');
    assert.deepEqual(new Set(decider.decided.map((one) => one.callId)), new Set([call.id]));
    assert.equal(decider.observed.length, 1, 'the pause is no result');
  } finally {
    unhook();
  }
});

test('the function of a tool that is called past it raises the alarm', async () => {
  const beside = [];
  await auto({ decider: new ScriptedDecider(), onUnhooked: 'warn', onUncovered: (name) => beside.push(name) });
  const error = console.error;
  console.error = () => {};
  try {
    const [mail] = tools({ run: () => 'sent' });
    await mail._call({ to: 'a@example.com' });
    assert.deepEqual(beside, ['send_email']);
  } finally {
    console.error = error;
    unhook();
  }
});

test('a call that is made twice runs once', async () => {
  const decider = new ScriptedDecider();
  await auto({ decider, onUnhooked: 'warn' });
  try {
    let ran = 0;
    const mail = tool(async () => `sent ${++ran}`, { name: 'send_email', description: 'send', schema: z.object({ to: z.string() }) });
    const call = { name: 'send_email', args: { to: 'a@example.com' }, id: 'call_twice00000000000000000', type: 'tool_call' };
    const [one, two] = await Promise.all([mail.invoke(call), mail.invoke(call)]);
    assert.equal(ran, 1);
    assert.equal(one.content, two.content);
    assert.equal((await mail.invoke(call)).content, 'sent 1');
    assert.equal(ran, 1);
  } finally {
    unhook();
  }
});
