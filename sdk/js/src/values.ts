/** What is asked and what is answered, with the closed sets of the contract. */

import { InvalidCall } from './errors';
import type { Json, JsonObject } from './json';
import type { Reasoning } from './reasoning';

export type Outcome = 'allow' | 'sanitize' | 'require_approval' | 'block';
export type Verdict = 'compliant' | 'insufficient_evidence' | 'violation';
export type Risk = 'low' | 'medium' | 'high' | 'critical';

export const OUTCOMES: ReadonlySet<string> = new Set(['allow', 'sanitize', 'require_approval', 'block']);
export const VERDICTS: ReadonlySet<string> = new Set(['compliant', 'insufficient_evidence', 'violation']);
export const RISKS: ReadonlySet<string> = new Set(['low', 'medium', 'high', 'critical']);

/** One safe sentence for each reason. */
export const MESSAGES = {
  none: 'the call may run',
  policy_denied: 'a policy of this deployment does not allow this call',
  unregistered_tool: 'this tool is not registered here, so it may not be called',
  risk_ceiling: 'this call is riskier than this deployment allows',
  irreversible: 'this call cannot be undone, so a person has to approve it',
  schema_invalid: 'the arguments do not have the shape that this tool requires',
  attack_detected: 'the arguments look like an attack, so the call was not made',
  sensitive_data: 'the call carries data that must not go there',
  exfiltration: 'the call would send data to a place that it must not go to',
  scope_violation: 'the call touches something outside of what this agent was sent to do',
  budget_exhausted: 'the budget for this kind of call is used up',
  rate_limited: 'too many calls in a short time; try again later',
  revoked: 'this agent, its session or mission, or this tool has been stopped',
  insufficient_evidence: 'the call could not be evaluated as it stands; resolve every argument and try again',
  judge_rejected: 'a review of this call rejected it',
  judge_failed: 'the review of this call failed, so it was not made',
  approval_required: 'a person has to approve this call',
  approval_denied: 'a person denied this call',
  approval_expired: 'nobody approved this call in time',
  approval_cancelled: 'the approval of this call was cancelled',
  chain_blocked: 'an earlier result in this chain blocks further calls',
  proof_invalid: 'the proof that came with this call is not valid',
  mission_invalid: 'the mission of this agent does not cover this call',
  tool_changed: 'this tool is not the one that was approved',
  postcondition_failed: 'the result does not meet what was required of it',
  conflict: 'this call id was already used for another call',
  anomaly: 'this call is unlike what this agent usually does',
  unavailable: 'the call could not be checked or recorded, so it was not made; try again later',
  untrusted_value: 'a value of this call came from what was read and not from the user, so a person decides',
  unlicensed: 'the user did not ask for a call of this kind, so a person has to approve it',
  deferred: 'the call waits for evidence that is still to come; make it again later',
  loop: 'the same was asked for many times within a short time',
} as const;

/** Why a call was not simply allowed; a closed set. */
export type Reason = keyof typeof MESSAGES;

/** Whether a word is one of the closed set of reasons. */
export function isReason(word: string): word is Reason {
  return Object.hasOwn(MESSAGES, word);
}

/** One tool call as the model proposed it; members other than the first two are the word of the credential's holder. */
export interface ToolCall {
  readonly tool: string;
  readonly arguments: JsonObject | Record<string, unknown>;
  readonly server?: string | undefined;
  readonly callId?: string | undefined;
  readonly agent?: string | undefined;
  readonly session?: string | undefined;
  readonly parent?: string | undefined;
  readonly turn?: number | undefined;
  readonly wantPermit?: boolean | undefined;
  readonly task?: string | undefined;
  readonly messagesDigest?: string | undefined;
  readonly unresolved?: readonly string[] | undefined;
  readonly proof?: string | undefined;
  /** Calls out of whose results the arguments are made. */
  readonly dependsOn?: readonly string[] | undefined;
  /** The deferred call that this one is, with its arguments filled in. */
  readonly resolves?: string | undefined;
  /** Why the call is made, as the model or its host tells it: bound to the receipt by a digest, and never believed. */
  readonly reasoning?: Reasoning | undefined;
}

/** What a tool gave back. `further` says that it is another text of the call, which settles nothing. */
export interface ToolResult {
  readonly decisionId: string;
  readonly result: unknown;
  readonly provenance?: string | undefined;
  readonly further?: boolean | undefined;
}

export interface ReceiptRef {
  readonly id: string;
  readonly index: number;
  readonly leafHash: string;
}

export interface ApprovalRef {
  readonly id: string;
  readonly expiresAt: string;
}

export interface GuardTime {
  readonly guard: string;
  readonly outcome: Outcome;
  readonly us: number;
}

/** One decision. `arguments` is present only with `sanitize`: what must be executed instead. */
export interface Decision {
  readonly outcome: Outcome;
  /** Whether the tool may run now, with `arguments` if there are any. */
  readonly allowed: boolean;
  readonly verdict: Verdict;
  readonly risk: Risk;
  readonly reason: Reason;
  readonly message: string;
  readonly decisionId: string;
  readonly callId: string;
  readonly requestDigest: string;
  readonly callDigest: string;
  readonly policyDigest: string;
  readonly salt: string;
  readonly arguments?: JsonObject;
  readonly approval?: ApprovalRef;
  readonly permit?: string;
  readonly receipt?: ReceiptRef;
  readonly findings: readonly Json[];
  readonly guards: readonly GuardTime[];
  readonly missing: readonly string[];
  /** Seconds after which the gateway wants to be asked again. */
  readonly retryAfter?: number;
}

/** The decision on a result. `result` is present only with `sanitize`: what may be seen instead. */
export interface ResultDecision {
  readonly outcome: Exclude<Outcome, 'require_approval'>;
  readonly allowed: boolean;
  readonly verdict: Verdict;
  readonly reason: Reason;
  readonly message: string;
  readonly result?: Json;
  readonly receipt?: ReceiptRef;
}

/** An open session. `fresh` says that it was not open before. */
export interface OpenedSession {
  readonly session: string;
  readonly receipt: ReceiptRef;
  readonly fresh: boolean;
}

/** Whoever decides: the client of a gateway, or something that stands for one in a test. */
export interface Decider {
  decide(call: ToolCall): Promise<Decision>;
  observe(result: ToolResult): Promise<ResultDecision>;
  wait(call: ToolCall, decision: Decision, timeout?: number): Promise<Decision>;
  close(): void;
}

const MAX_NAME_CHARS = 256; // a name is matched against every selector: bounds that work
const MAX_TEXT_CHARS = 16_384; // a task is kept with the session: bounds what one caller can store
const MAX_UNRESOLVED = 1_000; // pointers declared unresolved: bounds what one call can make the gateway walk
const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}]/u;

/** Guarantee that members have their types and bounds; throws `InvalidCall` naming the member. */
export function checkCall(call: ToolCall): void {
  checkName('tool', call.tool);
  for (const [member, value] of [
    ['server', call.server],
    ['call_id', call.callId],
    ['agent', call.agent],
    ['session', call.session],
    ['parent', call.parent],
    ['messages_digest', call.messagesDigest],
    ['resolves', call.resolves],
  ] as const) {
    if (value !== undefined) checkName(member, value);
  }
  for (const one of call.dependsOn ?? []) checkName('depends_on', one);
  checkText('task', call.task);
  checkText('proof', call.proof);
  if (call.wantPermit !== undefined && typeof call.wantPermit !== 'boolean') {
    throw new InvalidCall('`want_permit` must be true or false');
  }
  if (call.turn !== undefined && (!Number.isSafeInteger(call.turn) || call.turn < 0)) {
    throw new InvalidCall('`turn` must be a whole number, zero or more');
  }
  const args: unknown = call.arguments;
  if (typeof args !== 'object' || args === null || Array.isArray(args)) {
    throw new InvalidCall('`arguments` must be a JSON object');
  }
  const unresolved = call.unresolved ?? [];
  if (!Array.isArray(unresolved)) throw new InvalidCall('`unresolved` must be a list of JSON pointers');
  if (unresolved.length > MAX_UNRESOLVED) {
    throw new InvalidCall(`\`unresolved\` holds more than ${MAX_UNRESOLVED} pointers`);
  }
  for (const pointer of unresolved as readonly unknown[]) {
    if (typeof pointer !== 'string' || (pointer !== '' && !pointer.startsWith('/')) || !pointer.isWellFormed()) {
      throw new InvalidCall('`unresolved` must hold JSON pointers, each empty or starting with `/`');
    }
  }
}

/** Guarantee that a value can be a name: text, not blank, bounded, without control characters. */
export function checkName(member: string, value: unknown): void {
  if (typeof value !== 'string') throw new InvalidCall(`\`${member}\` must be a string`);
  if (value.trim() === '') throw new InvalidCall(`\`${member}\` must not be empty`);
  if ([...value].length > MAX_NAME_CHARS) {
    throw new InvalidCall(`\`${member}\` must have at most ${MAX_NAME_CHARS} characters`);
  }
  if (!value.isWellFormed()) throw new InvalidCall(`\`${member}\` must not hold lone surrogates`);
  if (CONTROL.test(value)) throw new InvalidCall(`\`${member}\` must not hold control characters`);
}

function checkText(member: string, value: string | undefined): void {
  if (value === undefined) return;
  if (typeof value !== 'string' || [...value].length > MAX_TEXT_CHARS || !value.isWellFormed()) {
    throw new InvalidCall(`\`${member}\` must be text of at most ${MAX_TEXT_CHARS} characters`);
  }
}
