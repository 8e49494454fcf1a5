// An MCP server whose calls are decided before its tools run, whoever the client is.
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { hook } from 'aegis-guard/mcp';
import { z } from 'zod';

await hook();
const server = new McpServer({ name: 'files', version: '1.0.0' });
server.registerTool('read_file', { description: 'Read a file', inputSchema: z.object({ path: z.string() }) }, ({ path }) => ({
  content: [{ type: 'text', text: `the text of ${path}` }],
}));
await server.connect(new StdioServerTransport());
