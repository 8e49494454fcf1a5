import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as v2client from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import * as v2server from '@modelcontextprotocol/server';
import { z } from 'zod';

import { auto, unhook } from 'aegis-guard';

import { blocked, ScriptedDecider } from '../support/decider.mjs';
import { loop } from '../support/loop.mjs';
import { flat } from '../support/model.mjs';
import { contract } from './contract.mjs';

const info = { name: 'files', version: '1' };

function served(Server, world) {
  const server = new Server(info);
  const tool = (name, shape) =>
    server.registerTool(name, { description: name, inputSchema: Server === McpServer ? shape : z.object(shape) }, async (args) => ({
      content: [{ type: 'text', text: world.run(name, args) }],
    }));
  tool('send_email', { to: z.string() });
  tool('read_file', { path: z.string() });
  return server;
}

const text = (result) => flat(result.content);

/** A client and a server in one process, one of which is hooked by what is installed of it. */
const between = (parts) => async (world) => {
  const [near, far] = parts.transports();
  const server = served(parts.Server, world);
  const client = new parts.Client(info);
  await Promise.all([server.connect(far), client.connect(near)]);
  try {
    return await loop(world, async (name, args) => text(await client.callTool({ name, arguments: args })));
  } finally {
    await client.close();
    await server.close();
  }
};

/** A server that is spoken to without any client of a package. */
const bare = (parts) => async (world) => {
  const [near, far] = parts.transports();
  const server = served(parts.Server, world);
  const waiting = new Map();
  near.onmessage = (message) => waiting.get(message.id)?.(message);
  await near.start();
  await server.connect(far);
  let next = 0;
  const ask = (method, params) =>
    new Promise((done) => {
      const id = ++next;
      waiting.set(id, done);
      void near.send({ jsonrpc: '2.0', id, method, params });
    });
  await ask('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: info });
  await near.send({ jsonrpc: '2.0', method: 'notifications/initialized' });
  try {
    return await loop(world, async (name, args) => text((await ask('tools/call', { name, arguments: args })).result));
  } finally {
    await server.close();
  }
};

const first = { Client, Server: McpServer, transports: () => InMemoryTransport.createLinkedPair() };
const second = {
  Client: v2client.Client,
  Server: v2server.McpServer,
  transports: () => v2client.InMemoryTransport.createLinkedPair(),
};

contract('@modelcontextprotocol', {
  'client and server, first': { drive: between(first), ids: false },
  'server, first': { drive: bare(first), ids: false },
  'client and server, second': { drive: between(second), ids: false },
  'server, second': { drive: bare(second), ids: false },
});

test('what a client reads is decided', async () => {
  const decider = new ScriptedDecider({ rules: { read_resource: blocked } });
  await auto({ decider, onUnhooked: 'warn' });
  const server = new McpServer(info);
  let reads = 0;
  server.registerResource('a', 'file:///a', {}, async (uri) => ({ contents: [{ uri: uri.href, text: String(++reads) }] }));
  const client = new Client(info);
  const [near, far] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(far), client.connect(near)]);
  try {
    await assert.rejects(client.readResource({ uri: 'file:///a' }), /`read_resource` was not run/);
    assert.equal(reads, 0);
    decider.rules = {};
    assert.equal((await client.readResource({ uri: 'file:///a' })).contents[0].text, '1');
    assert.deepEqual(decider.decided.at(-1).arguments, { uri: 'file:///a' });
  } finally {
    unhook();
    await client.close();
  }
});
