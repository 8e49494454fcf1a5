// A decider that answers by a script, with the digests that a real one gives.
import { callDigest, canonical } from 'aegis-guard';

const base = (call, outcome, reason) => ({
  outcome,
  allowed: outcome === 'allow' || outcome === 'sanitize',
  verdict: outcome === 'allow' ? 'compliant' : 'violation',
  risk: 'low',
  reason,
  message: `the script says ${outcome}`,
  decisionId: `d-${call.callId}-${call.tool}`,
  callId: call.callId,
  requestDigest: callDigest(call.server, call.tool, canonical(call.arguments)),
  callDigest: callDigest(call.server, call.tool, canonical(call.arguments)),
  policyDigest: 'sha-256:00',
  salt: '',
  receipt: { id: 'r', index: 0, leafHash: '00' },
  findings: [],
  guards: [],
  missing: [],
});

export const allowed = (call) => base(call, 'allow', 'none');
export const blocked = (call) => base(call, 'block', 'attack_detected');
export const held = (call) => ({ ...base(call, 'require_approval', 'approval_required'), approval: { id: 'ap-1', expiresAt: '' } });
export const changed = (args) => (call) => ({
  ...base(call, 'sanitize', 'none'),
  arguments: { ...call.arguments, ...args },
  callDigest: callDigest(call.server, call.tool, canonical({ ...call.arguments, ...args })),
});
/** A decision about another call. */
export const elsewhere = (call) => ({ ...allowed(call), requestDigest: 'sha-256:00', callDigest: 'sha-256:00' });

export class ScriptedDecider {
  decided = [];
  observed = [];
  waited = [];

  constructor({ rules = {}, resolve = allowed, result = () => undefined } = {}) {
    Object.assign(this, { rules, resolve, result });
  }

  async decide(call) {
    this.decided.push(call);
    await new Promise((done) => setImmediate(done));
    return (this.rules[call.tool] ?? allowed)(call);
  }

  async wait(call) {
    this.waited.push(call);
    return this.resolve(call);
  }

  async observe(asked) {
    this.observed.push(asked);
    const plain = { outcome: 'allow', allowed: true, verdict: 'compliant', reason: 'none', message: '', receipt: { id: 'r', index: 1, leafHash: '' } };
    return { ...plain, ...this.result(asked) };
  }

  close() {}
}

export const withheld = () => ({ outcome: 'block', allowed: false, reason: 'sensitive_data', message: 'the script withholds it' });
export const rewritten = (result) => () => ({ outcome: 'sanitize', result });
