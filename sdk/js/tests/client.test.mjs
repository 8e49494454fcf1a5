// What the vectors do not hold: turns, connections that are kept, addresses.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Client, configure, GatewayUnavailable, InvalidCall, parse, session, unhook } from 'aegis-guard';

import { rawServer } from './support/raw.mjs';

const answer = (status, body) => `HTTP/1.1 ${status} x\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const opened = '{"session":"s/1","receipt":{"id":"r","index":1,"leaf_hash":"00"}}';

test('a further turn of the user is said with its number and what was pasted', async () => {
  const answers = [answer(201, '{"turn":2}'), answer(409, '{"error":{"code":"conflict","message":"another text","hint":"","request_id":"q"}}'), answer(503, '{}')];
  const server = await rawServer((_, index, socket) => socket.write(answers[index]));
  try {
    const client = new Client(server.url, { apiKey: 'k' });
    assert.equal((await client.turn('s/1', 'and copy my colleague', { turn: 2, documents: ['pasted'] })).turn, 2);
    await assert.rejects(client.turn('s/1', 'something else', { turn: 2 }), (error) => error instanceof InvalidCall && error.status === 409);
    await assert.rejects(client.turn('s/1', 'again'), GatewayUnavailable);
    const [first] = server.requests;
    assert.equal(first.target, '/v1/sessions/s%2F1/turns');
    assert.deepEqual(parse(first.body), { text: 'and copy my colleague', turn: 2, documents: ['pasted'] });
    assert.equal(first.headers.authorization, 'Bearer k');
    client.close();
  } finally {
    server.close();
  }
});

test('a session of the host is opened with its words, and can be told what the user says next', async () => {
  const server = await rawServer((request, _, socket) => socket.write(answer(201, request.target.endsWith('/turns') ? '{}' : opened)));
  try {
    configure({ url: server.url });
    await session('s/1', { task: 'answer', owner: 'jo', parent: { session: 's-0', callId: 'call_6' } }, (here) => here.turn('and more'));
    assert.deepEqual(parse(server.requests[0].body), { session: 's/1', task: 'answer', owner: 'jo', parent: { session: 's-0', call_id: 'call_6' } });
    assert.deepEqual(parse(server.requests[1].body), { text: 'and more' });
  } finally {
    unhook();
    server.close();
  }
});

test('an idle connection that went stale is replaced once, and nothing is asked twice that was answered', async () => {
  const server = await rawServer((_, index, socket) => {
    socket.write(answer(500, '{}'));
    if (index === 0) setImmediate(() => socket.destroy());
  });
  try {
    const client = new Client(server.url);
    const call = { tool: 'read_file', arguments: {} };
    for (let times = 0; times < 3; times += 1) {
      assert.equal((await client.decide(call)).reason, 'unavailable');
      await new Promise((done) => setTimeout(done, 20));
    }
    assert.equal(server.requests.length, 3);
    client.close();
  } finally {
    server.close();
  }
});

test('an address that is more than a gateway is refused', () => {
  for (const url of ['ftp://a', 'http://user:pw@a', 'http://a/path', 'http://a?q', 'unix://relative', 'nonsense', '']) {
    assert.throws(() => new Client(url), InvalidCall, url);
  }
  for (const options of [{ timeout: 0 }, { timeout: Number.POSITIVE_INFINITY }, { apiKey: 'a\r\nb: c' }]) {
    assert.throws(() => new Client('http://a', options), InvalidCall);
  }
});
