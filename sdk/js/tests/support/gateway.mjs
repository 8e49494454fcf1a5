// A real gateway, started as a user starts one.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const AEGIS = process.env.AEGIS ?? fileURLToPath(new URL('../../../../.venv/bin/aegis', import.meta.url));
const CONFIG = `
version: 1
profile: standard
limits: {rate: unlimited}
tools:
  send_email: {risk: low, effects: [external_send]}
  read_file: {risk: low, effects: [read]}
  wire_money: {risk: high, irreversible: true, effects: [external_send]}
`;

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** Start `aegis serve` with `more` in its configuration; gives its addresses, keys, and what stops it. */
export async function gateway(more = '') {
  const folder = mkdtempSync(join(tmpdir(), 'aegis-js-'));
  const home = join(folder, 'home');
  const config = join(folder, 'aegis.yaml');
  writeFileSync(config, CONFIG + more, { mode: 0o600 });
  const keys = (...roles) =>
    execFileSync(AEGIS, ['keys', 'create', '--home', home, '--agent', roles[0] === 'approver' ? 'person' : 'bot', ...roles.flatMap((role) => ['--role', role])], {
      encoding: 'utf8',
    }).trim();
  const apiKey = keys('agent');
  const approverKey = keys('approver', 'auditor');
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const server = spawn(AEGIS, ['serve', '--config', config, '--home', home, '--port', String(port)], { stdio: 'ignore' });
  const stop = async () => {
    const ended = new Promise((done) => server.once('exit', done));
    server.kill('SIGTERM');
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  for (let tries = 0; ; tries += 1) {
    const ready = await fetch(`${url}/readyz`).then((answer) => answer.ok, () => false);
    if (ready) break;
    if (tries > 600 || server.exitCode !== null) {
      await stop();
      throw new Error('the gateway did not start');
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  /** Answer the approval that is pending. */
  const answer = async (decision) => {
    const headers = { authorization: `Bearer ${approverKey}`, 'content-type': 'application/json' };
    for (;;) {
      const { items } = await (await fetch(`${url}/v1/approvals`, { headers })).json();
      const pending = items.find((one) => one.state === 'pending');
      if (pending === undefined) {
        await new Promise((done) => setTimeout(done, 20));
        continue;
      }
      const said = await fetch(`${url}/v1/approvals/${pending.id}`, {
        method: 'POST',
        headers,
        body: JSON.stringify({ decision, reason: 'test' }),
      });
      return said.status;
    }
  };
  return { url, socket: `unix://${join(home, 'aegis.sock')}`, home, apiKey, approverKey, answer, stop };
}
