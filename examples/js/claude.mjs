// The Claude Agent SDK: the program that it drives asks before and after every tool, its own and those of servers.
import { createSdkMcpServer, query, tool } from '@anthropic-ai/claude-agent-sdk';
import { guardOptions } from 'aegis-guard/claude';
import { z } from 'zod';

const readFile = tool('read_file', 'Read a file', { path: z.string() }, async ({ path }) => {
  console.log(`reading ${path}`);
  return { content: [{ type: 'text', text: `the text of ${path}` }] };
});
const options = guardOptions({
  mcpServers: { office: createSdkMcpServer({ name: 'office', tools: [readFile] }) },
  allowedTools: ['mcp__office__read_file'],
  settingSources: [],
  ...(process.env.CLAUDE_CODE && { pathToClaudeCodeExecutable: process.env.CLAUDE_CODE }),
});
for await (const message of query({ prompt: 'What is in the report?', options })) {
  if (message.type === 'result') console.log(message.result);
}
