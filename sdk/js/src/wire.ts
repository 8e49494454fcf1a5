/**
 * The gateway's JSON as values: strict both ways, and bound to the call that was asked about.
 *
 * An answer is believed only if it is one that the contract allows for this very call: known words, all members, and
 * digests that equal what this side computed itself. Anything else is refused.
 */

import { InvalidCall } from './errors';
import { callDigest, canonical, isObject, isStream, escapeToken, type Json, type JsonObject, parseBytes } from './json';
import {
  type ApprovalRef,
  checkCall,
  type Decision,
  type GuardTime,
  isReason,
  MESSAGES,
  type Outcome,
  OUTCOMES,
  type Reason,
  type ReceiptRef,
  type ResultDecision,
  type Risk,
  RISKS,
  type ToolCall,
  type ToolResult,
  type Verdict,
  VERDICTS,
} from './values';

const MAX_RETRY_AFTER = 86_400; // a gateway cannot put a caller to sleep for longer than a day
const MAX_DEPTH = 200; // canonical JSON refuses deeper values

/** The gateway's answer is not one that the contract allows for this call. */
export class BadAnswer extends Error {}

/** A call as it was sent: with its id, its body, and the digest that every answer must carry. */
export interface AskedCall {
  readonly server: string | undefined;
  readonly tool: string;
  readonly callId: string;
  readonly digest: string;
  readonly body: string;
}

/**
 * The request for a decision; `agent` stands in where the call names none.
 *
 * The body embeds the very text that is digested. Throws `InvalidCall`.
 */
export function ask(call: ToolCall, callId: string, agent: string | undefined): AskedCall {
  checkCall(call);
  const [args, unresolved] = readable(call);
  const envelope: Record<string, unknown> = {
    tool: call.tool,
    call_id: callId,
    server: call.server,
    agent: call.agent ?? agent,
    session: call.session,
    parent: call.parent,
    turn: call.turn,
    task: call.task,
    messages_digest: call.messagesDigest,
    proof: call.proof,
    want_permit: call.wantPermit === true ? true : undefined,
    unresolved: unresolved.length > 0 ? unresolved : undefined,
    depends_on: call.dependsOn !== undefined && call.dependsOn.length > 0 ? call.dependsOn : undefined,
    resolves: call.resolves,
    reasoning: call.reasoning,
  };
  return {
    server: call.server,
    tool: call.tool,
    callId,
    digest: callDigest(call.server, call.tool, args),
    body: `{"arguments":${args},${canonical(envelope).slice(1)}`,
  };
}

/** The canonical arguments; what is not there yet stands as a marker and is declared unresolved. Nothing is consumed. */
export function readable(call: ToolCall): [string, readonly string[]] {
  const given = call.unresolved ?? [];
  try {
    return [canonical(call.arguments), given];
  } catch (error) {
    const found: string[] = [];
    const marked = withoutStreams(call.arguments, '', found, 0);
    if (found.length === 0) throw error;
    return [canonical(marked), [...given, ...found]];
  }
}

function withoutStreams(value: unknown, path: string, found: string[], depth: number): unknown {
  if (isStream(value)) {
    found.push(path);
    return `<pending:${(value as object).constructor?.name ?? 'stream'}>`;
  }
  if (depth >= MAX_DEPTH) return value;
  if (Array.isArray(value)) return value.map((item, index) => withoutStreams(item, `${path}/${index}`, found, depth + 1));
  if (isObject(value)) {
    const members = Object.entries(value).map(([name, member]) => [
      name,
      withoutStreams(member, `${path}/${escapeToken(name)}`, found, depth + 1),
    ]);
    return Object.fromEntries(members) as unknown;
  }
  return value;
}

/** The request that scans a result; throws `InvalidCall` for what is not JSON. */
export function resultBody(result: ToolResult): string {
  let body = `{"decision_id":${canonical(result.decisionId)},"result":${canonical(result.result ?? null)}`;
  if (result.provenance !== undefined) body += `,"provenance":${canonical(result.provenance)}`;
  if (result.further === true) body += ',"further":true';
  return `${body}}`;
}

/** The decision in a body, of one of the outcomes `allowed`; throws `BadAnswer`. */
export function readDecision(body: Buffer, asked: AskedCall, allowed: ReadonlySet<Outcome>): Decision {
  const decision = decisionOf(readObject(body));
  if (!allowed.has(decision.outcome)) throw new BadAnswer('the decision does not fit the status of the answer');
  if (decision.callId !== asked.callId || decision.requestDigest !== asked.digest) {
    throw new BadAnswer('the decision is about another call');
  }
  if (decision.outcome === 'block') return decision;
  if (decision.receipt === undefined) throw new BadAnswer('the decision was not recorded');
  if (decision.outcome === 'require_approval') {
    if (decision.approval === undefined) throw new BadAnswer('a held call names no approval');
    return decision;
  }
  if (decision.outcome === 'allow') {
    if (decision.arguments !== undefined || decision.callDigest !== asked.digest) {
      throw new BadAnswer('the allowed call is not the one that was asked about');
    }
    return decision;
  }
  if (decision.arguments === undefined) throw new BadAnswer('a sanitised call has no arguments');
  if (decision.callDigest !== callDigest(asked.server, asked.tool, strictly(decision.arguments))) {
    throw new BadAnswer('the sanitised arguments are not those that were recorded');
  }
  return decision;
}

function strictly(value: unknown): string {
  try {
    return canonical(value);
  } catch {
    throw new BadAnswer('the sanitised arguments are not JSON');
  }
}

function decisionOf(wire: JsonObject): Decision {
  const outcome = oneOf<Outcome>(wire, 'decision', OUTCOMES);
  const args = optional(wire, 'arguments', isObject);
  const approval = optional(wire, 'approval', isObject);
  const permit = optional(wire, 'permit', isText);
  const receipt = receiptOf(wire);
  return {
    outcome,
    allowed: outcome === 'allow' || outcome === 'sanitize',
    verdict: oneOf<Verdict>(wire, 'verdict', VERDICTS),
    risk: oneOf<Risk>(wire, 'risk', RISKS),
    reason: reasonOf(wire),
    message: text(wire, 'message'),
    decisionId: text(wire, 'decision_id'),
    callId: text(wire, 'call_id'),
    requestDigest: text(wire, 'request_digest'),
    callDigest: text(wire, 'call_digest'),
    policyDigest: text(wire, 'policy_digest'),
    salt: text(wire, 'salt'),
    ...(args === undefined ? {} : { arguments: args as JsonObject }),
    ...(approval === undefined ? {} : { approval: approvalOf(approval as JsonObject) }),
    ...(permit === undefined ? {} : { permit: permit as string }),
    ...(receipt === undefined ? {} : { receipt }),
    findings: (optional(wire, 'findings', isList) as readonly Json[] | undefined) ?? [],
    guards: ((optional(wire, 'guards', isList) as readonly Json[] | undefined) ?? []).map(guardOf),
    missing: ((optional(wire, 'missing', isList) as readonly Json[] | undefined) ?? []).map(String),
  };
}

/** The answer about a result; throws `BadAnswer`. */
export function readResult(body: Buffer): ResultDecision {
  const wire = readObject(body);
  const outcome = oneOf<Outcome>(wire, 'decision', OUTCOMES);
  if (outcome === 'require_approval') throw new BadAnswer('a result cannot wait for an approval');
  const receipt = receiptOf(wire);
  const allowed = outcome !== 'block';
  if (allowed && receipt === undefined) throw new BadAnswer('the answer was not recorded');
  if ((outcome === 'sanitize') !== Object.hasOwn(wire, 'result')) {
    throw new BadAnswer('a result is given exactly when it was sanitised');
  }
  return {
    outcome,
    allowed,
    verdict: oneOf<Verdict>(wire, 'verdict', VERDICTS),
    reason: reasonOf(wire),
    message: text(wire, 'message'),
    ...(outcome === 'sanitize' ? { result: wire['result'] as Json } : {}),
    ...(receipt === undefined ? {} : { receipt }),
  };
}

/** The state of the approval with this id; throws `BadAnswer`. */
export function readApprovalState(body: Buffer, approvalId: string): string {
  const wire = readObject(body);
  if (text(wire, 'id') !== approvalId) throw new BadAnswer('the answer is about another approval');
  return text(wire, 'state');
}

/** The identifier of a permit that was redeemed; throws `BadAnswer`. */
export function readRedeemed(body: Buffer): string {
  const wire = readObject(body);
  if (wire['valid'] !== true) throw new BadAnswer('the permit is not valid');
  return text(wire, 'permit_id');
}

/** The misuse that a 4xx answer reports; never fails, whatever the body is. */
export function readError(body: Buffer, status: number): InvalidCall {
  try {
    const error = readObject(body)['error'];
    if (!isObject(error)) throw new BadAnswer('there is no error');
    const [code, message, hint] = [text(error as JsonObject, 'code'), text(error as JsonObject, 'message'), error['hint']];
    return new InvalidCall(message, { code, hint: typeof hint === 'string' ? hint : '', status });
  } catch {
    return new InvalidCall(`the gateway refused the request with status ${status}`, { code: 'refused', status });
  }
}

/** The seconds of a `Retry-After` header; nothing for anything but a sensible whole number. */
export function retryAfter(value: string | undefined): number | undefined {
  if (value === undefined || !/^[0-9]{1,6}$/.test(value)) return undefined;
  return Math.min(Number(value), MAX_RETRY_AFTER);
}

/** The refusal that stands for an answer that was not to be had. */
export function blocked(asked: { callId: string; digest: string }, reason: Reason, wait?: number): Decision {
  return {
    outcome: 'block',
    allowed: false,
    verdict: 'insufficient_evidence',
    risk: 'high',
    reason,
    message: MESSAGES[reason],
    decisionId: '',
    callId: asked.callId,
    requestDigest: asked.digest,
    callDigest: asked.digest,
    policyDigest: '',
    salt: '',
    findings: [],
    guards: [],
    missing: [],
    ...(wait === undefined ? {} : { retryAfter: wait }),
  };
}

/** The refusal of a result for which no answer was to be had. */
export function withheld(reason: Reason): ResultDecision {
  return { outcome: 'block', allowed: false, verdict: 'insufficient_evidence', reason, message: MESSAGES[reason] };
}

/** The JSON object in a body; throws `BadAnswer`. */
export function readObject(body: Buffer): JsonObject {
  let wire: Json;
  try {
    wire = parseBytes(body);
  } catch {
    throw new BadAnswer('the answer is not strict JSON');
  }
  if (!isObject(wire)) throw new BadAnswer('the answer is not a JSON object');
  return wire as JsonObject;
}

/** A text of an object; throws `BadAnswer`. */
export function text(wire: JsonObject, member: string): string {
  const value = Object.hasOwn(wire, member) ? wire[member] : undefined;
  if (typeof value !== 'string') throw new BadAnswer(`\`${member}\` is not a string`);
  return value;
}

const isText = (value: unknown): boolean => typeof value === 'string';
const isList = (value: unknown): boolean => Array.isArray(value);

function optional(wire: JsonObject, member: string, is: (value: unknown) => boolean): unknown {
  const value = Object.hasOwn(wire, member) ? wire[member] : undefined;
  if (value === undefined || value === null) return undefined;
  if (!is(value)) throw new BadAnswer(`\`${member}\` has another type`);
  return value;
}

function oneOf<T extends string>(wire: JsonObject, member: string, words: ReadonlySet<string>): T {
  const word = text(wire, member);
  if (!words.has(word)) throw new BadAnswer(`\`${member}\` is a word that is not known`);
  return word as T;
}

function reasonOf(wire: JsonObject): Reason {
  const word = text(wire, 'reason');
  if (!isReason(word)) throw new BadAnswer('`reason` is a word that is not known');
  return word;
}

/** The receipt of an answer, if it names one; throws `BadAnswer`. */
export function receiptOf(wire: JsonObject): ReceiptRef | undefined {
  const receipt = optional(wire, 'receipt', isObject) as JsonObject | undefined;
  if (receipt === undefined) return undefined;
  const index = receipt['index'];
  if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0) {
    throw new BadAnswer('`index` is not a position in the log');
  }
  return { id: text(receipt, 'id'), index, leafHash: text(receipt, 'leaf_hash') };
}

function approvalOf(wire: JsonObject): ApprovalRef {
  const id = text(wire, 'id');
  // The id becomes part of a request target.
  if (!/^[A-Za-z0-9\-_.~]{1,200}$/.test(id)) throw new BadAnswer("`id` is not an approval's");
  return { id, expiresAt: text(wire, 'expires_at') };
}

function guardOf(wire: Json): GuardTime {
  if (!isObject(wire) || typeof wire['us'] !== 'number') throw new BadAnswer('a guard is malformed');
  const guard = wire as JsonObject;
  return { guard: text(guard, 'guard'), outcome: oneOf<Outcome>(guard, 'outcome', OUTCOMES), us: wire['us'] };
}
