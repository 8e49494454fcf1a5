// Every vector that this package has a part in, against the package as it is published.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { callDigest, canonical, Client, InvalidCall, parse, PermitInvalid, sha256, GatewayUnavailable, StreamCut } from 'aegis-guard';

import {
  callCommitment, kidOf, leafHash, LogInvalid, mask, OfflinePermits, openCheckpoint, payloadCommitment, verifyConsistency,
  verifyInclusion, verifyReceipt, verifyWebhook,
} from 'aegis-guard/verify';

import { rawServer, send } from './support/raw.mjs';

const require = createRequire(import.meta.url);
const vectors = (name) => JSON.parse(readFileSync(new URL(`../../../conformance/${name}.json`, import.meta.url), 'utf8'));
const call = (wire) => ({
  tool: wire.tool,
  server: wire.server ?? undefined,
  callId: wire.call_id,
  session: wire.session,
  agent: wire.agent,
  parent: wire.parent,
  turn: wire.turn,
  task: wire.task,
  messagesDigest: wire.messages_digest,
  wantPermit: wire.want_permit,
  unresolved: wire.unresolved,
  proof: wire.proof,
  arguments: parse(wire.arguments),
});

test('canonical JSON and digests', () => {
  const { values, refused } = vectors('canonical');
  for (const one of values) {
    assert.equal(canonical(parse(one.json)), one.canonical, one.name);
    assert.equal(sha256(canonical(parse(one.json))), one.sha256, one.name);
  }
  for (const one of refused) {
    const bytes = Buffer.from(one.base64, 'base64');
    const { parseBytes } = require('../dist/json.js');
    assert.throws(() => canonical(parseBytes(bytes)), InvalidCall, one.name);
  }
  for (const one of vectors('digests').calls) {
    assert.equal(callDigest(one.server, one.tool, canonical(parse(one.arguments))), one.digest, one.name);
  }
});

test('words', () => {
  const { MESSAGES, OUTCOMES, VERDICTS, RISKS } = require('../dist/values.js');
  const words = vectors('words');
  assert.deepEqual([...OUTCOMES], words.outcomes);
  assert.deepEqual(new Set(VERDICTS), new Set(words.verdicts));
  assert.deepEqual([...RISKS], words.risks);
  for (const { reason, message } of words.reasons) assert.equal(MESSAGES[reason], message);
});

test('requests', () => {
  const wire = require('../dist/wire.js');
  const { bodies, refused } = vectors('requests');
  for (const one of bodies) {
    assert.equal(canonical(parse(wire.ask(call(one.call), parse(one.body).call_id, undefined).body)), one.body, one.name);
  }
  for (const one of refused) {
    assert.throws(() => wire.ask(call(one.call), one.call.call_id, undefined), InvalidCall, one.name);
  }
});

const DECISION = {
  decision: 'outcome', verdict: 'verdict', risk: 'risk', reason: 'reason', message: 'message', decision_id: 'decisionId',
  call_id: 'callId', request_digest: 'requestDigest', call_digest: 'callDigest', policy_digest: 'policyDigest',
  permit: 'permit', retry_after: 'retryAfter', salt: 'salt',
};

function assertDecision(found, expected, name) {
  for (const [member, value] of Object.entries(expected)) {
    if (member === 'arguments') assert.equal(canonical(found.arguments), value, name);
    else if (member === 'result') assert.equal(canonical(found.result), value, name);
    else if (member === 'approval') assert.equal(typeof value === 'string' ? found.approval?.id : found.approval?.id, value?.id ?? value, name);
    else if (member === 'approval_id') assert.equal(found.approval?.id, value, name);
    else if (member === 'receipt') assert.equal(found.receipt?.id ?? null, value?.id ?? value, name);
    else if (member === 'index') assert.equal(found.receipt?.index, value, name);
    else if (member === 'missing') assert.deepEqual(found.missing, value, name);
    else if (member in DECISION) assert.equal(found[DECISION[member]] ?? null, value, `${name}: ${member}`);
    else assert.fail(`${name}: the vector expects \`${member}\`, which is not compared`);
  }
}

async function expectation(run, expect, name) {
  let found;
  try {
    found = await run();
  } catch (error) {
    const wanted = expect.invalid_call ?? expect.refused;
    if (expect.unavailable) {
      assert.ok(error instanceof GatewayUnavailable, `${name}: ${error}`);
    } else if (expect.cut) {
      assert.ok(error instanceof StreamCut, `${name}: ${error}`);
      assert.equal(error.decision.reason, expect.cut.reason, name);
    } else {
      assert.ok(wanted, `${name}: ${error.stack}`);
      assert.ok(error instanceof (expect.refused ? PermitInvalid : InvalidCall), `${name}: ${error}`);
      for (const [member, value] of Object.entries(wanted)) assert.equal(error[member], value, `${name}: ${member}`);
    }
    return undefined;
  }
  assert.ok(!expect.invalid_call && !expect.refused && !expect.unavailable && !expect.cut, `${name}: nothing was raised`);
  return found;
}

const HANGS = 5; // seconds in which every request has reached its server, however busy the machine is

for (const file of ['decisions', 'fail_closed']) {
  test(`${file.replace('_', ' ')}: each answer means one thing`, async () => {
    const { call: asked, cases, timeout_seconds: timeout = 10 } = vectors(file);
    await Promise.all(
      cases.map(async (one) => {
        const server = await rawServer((_, __, socket) => send(socket, one.answer));
        try {
          // Only an answer that never ends may run out of time, and not before it was asked for: many are at once.
          const client = new Client(server.url, { timeout: one.answer.then === 'hang' ? Math.max(timeout, HANGS) : 10 });
          const found = await expectation(() => client.decide(call(asked)), one.expect, one.name);
          if (found) assertDecision(found, one.expect.decision, one.name);
          assert.equal(server.requests.length, 1, one.name);
        } finally {
          server.close();
        }
      }),
    );
  });
}

test('results', async () => {
  const { request, cases } = vectors('results');
  const body = parse(request.body);
  await Promise.all(
    cases.map(async (one) => {
      const server = await rawServer((_, __, socket) => send(socket, one.answer));
      try {
        const client = new Client(server.url, { timeout: 10 });
        const result = { decisionId: body.decision_id, result: body.result };
        const found = await expectation(() => client.observe(result), one.expect, one.name);
        if (found) assertDecision(found, one.expect.decision, one.name);
        assert.equal(canonical(parse(server.requests[0].body)), request.body, one.name);
        assert.equal(server.requests[0].target, request.target);
      } finally {
        server.close();
      }
    }),
  );
});

test('holds: from the question to the end', async () => {
  const { call: asked, cases } = vectors('holds');
  await Promise.all(
    cases.map(async (one) => {
      const server = await rawServer((_, index, socket) => send(socket, one.exchanges[index].answer));
      try {
        const client = new Client(server.url, { timeout: 10 });
        const run = async () => client.wait(call(asked), await client.decide(call(asked)));
        const found = await expectation(run, one.expect, one.name);
        if (found) assertDecision(found, one.expect.decision, one.name);
        assert.equal(server.requests.length, one.exchanges.length, one.name);
        one.exchanges.forEach((exchange, index) => {
          const sent = server.requests[index];
          assert.equal(sent.method, exchange.method, one.name);
          assert.equal(sent.target, exchange.target, one.name);
          if (exchange.body) assert.equal(canonical(parse(sent.body)), exchange.body, one.name);
        });
      } finally {
        server.close();
      }
    }),
  );
});

test('sessions', async () => {
  const { session, task, request, cases } = vectors('sessions');
  await Promise.all(
    cases.map(async (one) => {
      const server = await rawServer((_, __, socket) => send(socket, one.answer));
      try {
        const client = new Client(server.url, { timeout: 10 });
        const found = await expectation(() => client.openSession(session, { task }), one.expect, one.name);
        if (found) {
          const { index, ...rest } = one.expect.opened;
          for (const [member, value] of Object.entries(rest)) assert.equal(found[member], value, one.name);
          assert.equal(found.receipt.index, index, one.name);
        }
        assert.equal(canonical(parse(server.requests[0].body)), request.body, one.name);
      } finally {
        server.close();
      }
    }),
  );
});

test('redemptions', async () => {
  const { call: asked, permit, request, cases } = vectors('redemptions');
  await Promise.all(
    cases.map(async (one) => {
      const server = await rawServer((_, __, socket) => send(socket, one.answer));
      try {
        const client = new Client(server.url, { timeout: 10 });
        const found = await expectation(() => client.redeem(permit, call(asked)), one.expect, one.name);
        if (found) assert.equal(found, one.expect.permit_id, one.name);
        assert.equal(canonical(parse(server.requests[0].body)), request.body, one.name);
      } finally {
        server.close();
      }
    }),
  );
});

test('streams: lines out, verdicts in', async () => {
  const { decision_id: decisionId, framing, chunks, request, cases } = vectors('streams');
  await Promise.all(
    cases.map(async (one) => {
      const lines = [];
      const server = createServer((incoming, outgoing) => {
        assert.equal(incoming.url, request.target, one.name);
        assert.equal(incoming.headers['content-type'], request.content_type, one.name);
        if (one.refusal) {
          outgoing.writeHead(one.refusal.status, { ...one.refusal.headers, connection: 'close' });
          outgoing.end(one.refusal.body);
          return;
        }
        outgoing.writeHead(200, { 'content-type': 'application/x-ndjson' });
        outgoing.flushHeaders();
        let text = '';
        incoming.on('data', (data) => {
          text += data;
          for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
            const index = lines.push(text.slice(0, end)) - 1;
            text = text.slice(end + 1);
            if (one.verdicts[index] !== undefined) outgoing.write(`${one.verdicts[index]}\n`);
          }
        });
        incoming.on('end', () => outgoing.end(one.last ? `${one.last}\n` : ''));
      });
      await new Promise((done) => server.listen(0, '127.0.0.1', done));
      try {
        const client = new Client(`http://127.0.0.1:${server.address().port}`, { timeout: 10 });
        let passed = '';
        const run = async () => {
          const options = { framing, provenance: () => one.provenance };
          for await (const part of client.evaluateStreaming(decisionId, chunks, options)) passed += part;
          return true;
        };
        const found = await expectation(run, one.expect, one.name);
        if (found) assert.equal(passed, one.passed, one.name);
        else assert.ok((one.passed ?? '').startsWith(passed), one.name);
        if (found && one.lines) assert.deepEqual(lines.map((line) => canonical(parse(line))), one.lines, one.name);
      } finally {
        server.closeAllConnections();
        server.close();
      }
    }),
  );
});

test('proofs: equal spelling gives equal tokens', () => {
  const { Holder } = require('../dist/proof.js');
  const { holder, session, calls, first_number: first } = vectors('proofs');
  const home = mkdtempSync(join(tmpdir(), 'aegis-js-'));
  try {
    mkdirSync(join(home, 'agents'));
    const file = join(home, 'agents', `${createHash('sha256').update('bot').digest('hex')}.key`);
    const secret = Buffer.from(holder.secret, 'hex').toString('base64');
    writeFileSync(file, JSON.stringify({ purpose: 'holder', agent: 'bot', secret }), { mode: 0o600 });
    const key = new Holder(home, 'bot');
    assert.equal(key.x, holder.cnf.jwk.x);
    const asked = { audience: session.audience, nonce: session.nonce, mission: session.mission_id, session: session.session };
    assert.equal(key.answer(asked, session.now * 1000), session.proof);
    const prover = key.prover(session.audience, session.session, first);
    for (const one of calls) {
      assert.equal(prover.prove({ tool: one.tool, server: one.server ?? undefined, arguments: parse(one.arguments) }).proof, one.proof);
    }
  } finally {
    rmSync(home, { recursive: true });
  }
});

test('permits, looked at offline', async () => {
  const { now, keys, cases } = vectors('permits');
  for (const one of cases) {
    const verifier = new OfflinePermits(keys, () => now);
    for (const { permit, tool, server, arguments: args, expect } of one.attempts) {
      const call = { tool, server: server ?? undefined, arguments: parse(args) };
      const found = await expectation(() => verifier.redeem(permit, call), expect, one.name);
      if (found) assert.equal(found, expect.permit_id, one.name);
    }
  }
});

test('webhooks', () => {
  const { now, cases } = vectors('webhooks');
  for (const { name, secret, headers, body, expect } of cases) {
    const run = () => verifyWebhook(secret, headers, body, { now });
    if (expect.refused) assert.throws(run, (error) => error instanceof InvalidCall && error.code === expect.refused.code, name);
    else assert.equal(canonical(run()), expect.body, name);
  }
});

test('inclusion and consistency', () => {
  const { inclusion, consistency } = vectors('inclusion');
  const check = (run, one) => (one.holds ? run() : assert.throws(run, LogInvalid, one.name));
  for (const one of inclusion) check(() => verifyInclusion(one.leaf_hash, one.index, one.size, one.path, one.root), one);
  for (const one of consistency) check(() => verifyConsistency(one.first, one.second, one.first_root, one.second_root, one.path), one);
});

test('receipts', () => {
  const { key, cases } = vectors('receipts');
  for (const { name, receipt, leaf_hash: hash, broken } of cases) {
    const value = parse(receipt);
    assert.equal(leafHash(value), hash, name);
    const run = () => verifyReceipt(value, key.public);
    if (broken === null) run();
    else assert.throws(run, (error) => error instanceof LogInvalid && error.kind === broken, name);
  }
});

test('checkpoints', () => {
  const { key, cases } = vectors('checkpoints');
  for (const { name, note, expect } of cases) {
    if (expect) assert.deepEqual(openCheckpoint(note, [key.public]), expect, name);
    else assert.throws(() => openCheckpoint(note, [key.public]), LogInvalid, name);
  }
});

test('keys, commitments and masks', () => {
  const { keys, call_commitments: calls, payload_commitments: payloads } = vectors('digests');
  for (const one of keys) assert.equal(kidOf(one.public), one.kid);
  for (const one of calls) assert.equal(callCommitment(one.salt, one.request_digest, one.call_digest), one.commitment);
  for (const one of payloads) assert.equal(payloadCommitment(one.salt, one.payload), one.commitment);
  const { texts, values } = vectors('masking');
  for (const one of texts) assert.equal(mask(one.text), one.masked);
  for (const one of values) assert.equal(canonical(mask(parse(one.json))), one.masked);
});
