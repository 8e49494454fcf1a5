// The SDK as it is released, driving a program that speaks its protocol and runs two tools.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';

import { contract } from './contract.mjs';

createRequire(import.meta.url)('../../dist/register.js').guardModules();
const { query } = await import('@anthropic-ai/claude-agent-sdk');

const program = fileURLToPath(new URL('../support/program.mjs', import.meta.url));

async function drive(world, options = {}) {
  const bodies = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    let answer;
    try {
      answer = { result: world.run(...JSON.parse(text)) };
    } catch (error) {
      answer = { error: error.message };
    }
    response.end(JSON.stringify(answer));
  });
  await new Promise((done) => bodies.listen(0, '127.0.0.1', done));
  const env = { ...process.env, WORLD_URL: world.url, TOOLS_URL: `http://127.0.0.1:${bodies.address().port}` };
  try {
    let result;
    for await (const message of query({ prompt: 'go', options: { pathToClaudeCodeExecutable: program, env, ...options } })) {
      if (message.type === 'result') result = message.result;
    }
    return result;
  } finally {
    bodies.close();
    bodies.closeAllConnections();
  }
}

contract('@anthropic-ai/claude-agent-sdk', {
  'query, beside hooks of the host': {
    drive: (world) => drive(world, { hooks: { PreToolUse: [{ hooks: [async () => ({})] }] } }),
  },
});

// As in a runtime that takes a loader and never asks it.
test('functions that nothing stands in for are refused, though a loader was registered', () => {
  const program = `
    import 'ai';
    import '@anthropic-ai/claude-agent-sdk';
    import { createRequire } from 'node:module';
    import { auto } from 'aegis-guard';
    createRequire(import.meta.url)('../../dist/register.js').guardModules();
    const { unhooked } = await auto({ url: 'http://127.0.0.1:1', onUnhooked: 'warn' });
    console.log(JSON.stringify(unhooked));
  `;
  const cwd = fileURLToPath(new URL('.', import.meta.url));
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', program], { cwd, encoding: 'utf8' });
  const unhooked = JSON.parse(stdout);
  assert.deepEqual(unhooked.map((text) => /^`([^`]+)` hands out functions/.exec(text)?.[1]), ['ai', '@anthropic-ai/claude-agent-sdk']);
});
