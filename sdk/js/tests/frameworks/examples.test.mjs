// The examples, as a user runs them: against a gateway, with a model that asks for one good and one bad call.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { after, before, test } from 'node:test';

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { gateway } from '../support/gateway.mjs';
import { scriptedModel } from '../support/model.mjs';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const call = (id, path) => ({ id: `call_${id}00000000000000000000`, tool: 'read_file', arguments: { path } });
const GOOD = call('good', '/srv/report.txt');
const BAD = call('evil', '/etc/shadow');
const FOLDERS = ['.', '../newest']; // where the packages of the examples are installed
let gate;
let env;

before(async () => {
  gate = await gateway();
  for (const folder of FOLDERS) mkdirSync(here(`${folder}/.examples`), { recursive: true });
  env = { ...process.env, AEGIS_URL: gate.socket, AEGIS_API_KEY: gate.apiKey, AEGIS_AGENT: 'bot', OPENAI_API_KEY: 'none', ANTHROPIC_API_KEY: 'none' };
});
after(async () => {
  for (const folder of FOLDERS) rmSync(here(`${folder}/.examples`), { recursive: true, force: true });
  await gate.stop();
});

function prepared(name, folder = '.') {
  const file = here(`${folder}/.examples/${name}.mjs`);
  copyFileSync(here(`../../../../examples/js/${name}.mjs`), file);
  return file;
}

async function run(name, more = {}, flags = [], folder = '.') {
  const child = spawn(process.execPath, [...flags, prepared(name, folder)], { env: { ...env, ...more }, cwd: here(folder) });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (text += data));
  const code = await new Promise((done) => child.once('close', done));
  assert.equal(code, 0, text);
  return text;
}

test('protect', async () => {
  const text = await run('protect');
  assert.match(text, /the text of \/srv\/report\.txt/);
  assert.match(text, /refused: .* \(attack_detected\)/);
});

for (const [name, flags, folder, prefix = ''] of [
  ['openai', []],
  ['anthropic', []],
  ['ai', ['--import', 'aegis-guard/register']],
  ['langgraph', []],
  ['agents', []],
  ['claude', [], '.', 'mcp__office__'],
  ['mastra', ['--import', 'aegis-guard/register'], '../newest'],
]) {
  test(name, async () => {
    const calls = [GOOD, BAD].map((one) => ({ ...one, tool: prefix + one.tool }));
    const model = await scriptedModel([{ text: 'let me', calls }, { text: 'the report is fine' }]);
    try {
      const program = { CLAUDE_CODE: here('../support/program.mjs'), WORLD_URL: model.url };
      const more = { OPENAI_BASE_URL: `${model.url}/v1`, ANTHROPIC_BASE_URL: model.url, ...program };
      const text = await run(name, more, flags, folder);
      assert.match(text, /reading \/srv\/report\.txt/);
      assert.ok(!text.includes('reading /etc/shadow'), text);
      assert.match(text, /the report is fine/);
      assert.match(model.resultOf(BAD), /was not run/);
    } finally {
      model.close();
    }
  });
}

test('proxied, with the base URL alone', async () => {
  const model = await scriptedModel([{ text: 'let me', calls: [GOOD, BAD] }, { text: 'the report is fine' }]);
  const provider = `proxies: {providers: {one: {dialect: openai, url: "${model.url}/v1", key: "\${env:PROXIED_KEY}", private: true}}}`;
  process.env.PROXIED_KEY = 'sk-provider';
  const proxy = await gateway(provider);
  try {
    const text = await run('proxied', { OPENAI_BASE_URL: `${proxy.url}/v1`, OPENAI_API_KEY: proxy.apiKey });
    assert.match(text, /reading \/srv\/report\.txt/);
    assert.ok(!text.includes('reading /etc/shadow'), text);
    assert.match(text, /the report is fine/);
    assert.match(model.resultOf(BAD), /was not run/);
    assert.ok(model.asked.every(({ headers }) => headers.authorization === 'Bearer sk-provider'));
  } finally {
    await proxy.stop();
    model.close();
  }
});

test('mcp', async () => {
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [prepared('mcp')], env }));
  try {
    const good = await client.callTool({ name: 'read_file', arguments: GOOD.arguments });
    assert.equal(good.content[0].text, 'the text of /srv/report.txt');
    const bad = await client.callTool({ name: 'read_file', arguments: BAD.arguments });
    assert.equal(bad.isError, true);
    assert.match(bad.content[0].text, /was not run/);
  } finally {
    await client.close();
  }
});
