// LangChain.js and LangGraph.js: every tool is decided where its body is called.
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { session } from 'aegis-guard';
import { hook } from 'aegis-guard/langchain';
import { createAgent } from 'langchain';
import { z } from 'zod';

await hook();
const readFile = tool(({ path }) => (console.log(`reading ${path}`), `the text of ${path}`), {
  name: 'read_file',
  description: 'Read a file',
  schema: z.object({ path: z.string() }),
});
const model = new ChatOpenAI({ model: process.env.MODEL ?? 'gpt-5', configuration: { baseURL: process.env.OPENAI_BASE_URL } });
const agent = createAgent({ model, tools: [readFile] });
const task = 'What is in the report?';
await session('example-langgraph', { task }, async () => {
  const { messages } = await agent.invoke({ messages: [{ role: 'user', content: task }] });
  console.log(messages.at(-1).content);
});
