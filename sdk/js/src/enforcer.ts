/**
 * The only enforcement: adapters say what is about to run, and run nothing that is not allowed here.
 *
 * A call is taken as a snapshot of canonical text, decided, and allowed only if the decision carries the digests of that
 * very snapshot; what runs is decoded from the digested text. Every error on the way is a refusal.
 */

import { randomBytes } from 'node:crypto';

import { Bounded } from './bounded';
import { currentSession, type SessionContext } from './context';
import { InvalidCall } from './errors';
import type { Reasoning } from './reasoning';
import { callDigest, canonical, type Json, parse, sha256 } from './json';
import type { Decider, Decision, ResultDecision, ToolCall, ToolResult } from './values';
import { blocked, withheld } from './wire';

export type OnApproval = 'wait' | 'block' | 'defer';
export const ON_APPROVAL: readonly OnApproval[] = ['wait', 'block', 'defer'];

const MAX_DEFERRED = 1_000; // deferred calls that are remembered; what is forgotten is asked about again
const MAX_OPEN = 10_000; // models can ask for calls without end; the oldest is forgotten, and known by its decision

/** A call that is about to run, with its final arguments. `callId` is the framework's, if it has one. */
export interface Attempt {
  readonly tool: string;
  readonly arguments: unknown;
  readonly server?: string | undefined;
  readonly callId?: string | undefined;
  readonly unresolved?: readonly string[] | undefined;
  readonly wantPermit?: boolean | undefined;
  readonly reasoning?: Reasoning | undefined;
}

/** What becomes of an attempt. Nothing but `arguments()` may be run, and only if `allowed`. */
export class Enforced {
  constructor(
    readonly tool: string,
    readonly decision: Decision,
    /** The canonical arguments that were asked about. */
    readonly asked: string,
    /** The canonical arguments that may run. */
    readonly body: string,
    /** Whether the same call, made again after its approval, may run. */
    readonly deferred = false,
  ) {}

  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** Whether other arguments than those of the attempt have to be run. */
  get changed(): boolean {
    return this.decision.outcome === 'sanitize';
  }

  /** The sentence that the model is given as the result of a refused call. */
  get refusal(): string {
    const { message, reason } = this.decision;
    if (this.deferred) {
      return (
        `\`${this.tool}\` was not run yet: a person has to approve this call; make exactly the same call again later` +
        ` (reason: ${reason})`
      );
    }
    return `\`${this.tool}\` was not run: ${message} (reason: ${reason})`;
  }

  /** What may run: a fresh decode of the digested text. */
  arguments(): Record<string, unknown> {
    return parse(this.body) as Record<string, unknown>;
  }
}

/** What the model may see of a result: `value`, which is a notice where the result is withheld. */
export interface Observed {
  readonly decision: ResultDecision;
  readonly value: Json;
  readonly changed: boolean;
  readonly withheld: boolean;
}

/** An attempt on its way to a decision: the call, the text that it stands for, what is known so far. */
interface Draft {
  call: ToolCall;
  readonly body: string;
  decision?: Decision;
}

export interface EnforcerOptions {
  readonly agent?: string | undefined;
  readonly onApproval?: OnApproval | undefined;
  readonly approvalTimeout?: number | undefined;
  /** Told the tool and the session of a body that runs without a decision. */
  readonly onUncovered?: ((tool: string, session: string | undefined) => void) | undefined;
  /** Where a line of the log goes; standard error by default. */
  readonly log?: ((line: string) => void) | undefined;
}

/** Enforces the decisions of one decider; shared by all hooks of a process. */
export class Enforcer {
  readonly onApproval: OnApproval;
  private readonly deferred = new Bounded<string>(MAX_DEFERRED);
  readonly openCalls = new OpenCalls();
  readonly log: (line: string) => void;

  constructor(
    readonly decider: Decider,
    private readonly options: EnforcerOptions = {},
  ) {
    this.onApproval = options.onApproval ?? 'wait';
    this.log = options.log ?? ((line) => console.error(`aegis: ${line}`));
  }

  /** What becomes of each of several attempts of one turn, in order; they are decided and waited for at once. */
  async enforce(attempts: readonly Attempt[], session = currentSession()): Promise<Enforced[]> {
    // (1) Snapshots: from here on only this text counts.
    const drafts = attempts.map((attempt) => this.draft(attempt, session));
    // (2) Decide all; a call id that stands for another call is replaced, and the call decided again.
    await this.decideAll(drafts.filter((draft) => draft.decision === undefined));
    const conflicting = drafts.filter((draft) => draft.decision?.reason === 'conflict');
    for (const draft of conflicting) draft.call = { ...draft.call, callId: newId() };
    await this.decideAll(conflicting);
    // (3) Wait for those that are held, all at the same time.
    if (this.onApproval === 'wait') {
      await Promise.all(drafts.filter(isHeld).map((draft) => this.wait(draft)));
    } else if (this.onApproval === 'defer') {
      for (const draft of drafts) this.settleDeferred(draft);
    }
    // (4) What is allowed must be what was asked about, to the byte.
    return drafts.map((draft) => this.settled(draft, this.onApproval === 'defer' && isHeld(draft)));
  }

  /**
   * What becomes now of a call that was released, and goes on under its own id.
   *
   * Nothing where an approval that was used for `decisionId` still stands; nobody is asked for another one.
   */
  async again(attempt: Attempt, decisionId: string, session = currentSession()): Promise<Enforced | undefined> {
    const draft = this.draft(attempt, session);
    await this.decideAll([draft]);
    const { decision } = draft;
    if (decision?.reason === 'conflict' && decision.decisionId === decisionId) return undefined;
    return this.settled(draft, false);
  }

  /** What the model may see of several results, in order. */
  observe(results: readonly ToolResult[]): Promise<Observed[]> {
    return Promise.all(results.map((result) => this.observeOne(result)));
  }

  /**
   * Raise the alarm: a tool runs, or gave a result, and nobody decided on that.
   *
   * What comes back for an open call of this tool does not reach the model.
   */
  uncovered(tool: string): void {
    const session = currentSession()?.name;
    this.log(`\`${tool}\` runs without a decision about what it runs with`);
    this.openCalls.ranBeside(session ?? '', tool);
    try {
      this.options.onUncovered?.(tool, session);
    } catch (error) {
      this.log(`no alarm could be recorded: ${described(error)}`);
    }
  }

  private async observeOne(result: ToolResult): Promise<Observed> {
    let decision: ResultDecision;
    try {
      decision = await this.decider.observe(result);
    } catch (error) {
      this.log(`a result was withheld because it could not be observed: ${described(error)}`);
      decision = withheld('unavailable');
    }
    if (!decision.allowed) {
      const value = `the result was withheld: ${decision.message} (reason: ${decision.reason})`;
      return { decision, value, changed: true, withheld: true };
    }
    if (decision.outcome === 'sanitize') {
      return { decision, value: decision.result ?? null, changed: true, withheld: false };
    }
    return { decision, value: result.result as Json, changed: false, withheld: false };
  }

  private draft(attempt: Attempt, session: SessionContext | undefined): Draft {
    let body = '';
    let args: Record<string, unknown> = {};
    let problem: unknown;
    try {
      body = canonical(attempt.arguments);
      args = parse(body) as Record<string, unknown>;
    } catch (error) {
      problem = error;
    }
    const held = problem === undefined && this.onApproval === 'defer' ? this.deferred.get(deferredKey(attempt, session, body)) : undefined;
    const call: ToolCall = {
      tool: attempt.tool,
      server: attempt.server,
      arguments: args,
      // The id exists before anything is asked: it is what makes a repetition harmless.
      callId: held ?? (attempt.callId || newId()),
      agent: this.options.agent,
      session: session?.name,
      task: session?.task,
      unresolved: attempt.unresolved,
      wantPermit: attempt.wantPermit,
      reasoning: attempt.reasoning,
    };
    return problem === undefined ? { call, body } : { call, body, decision: this.undecided(call, problem) };
  }

  private async decideAll(drafts: readonly Draft[]): Promise<void> {
    await Promise.all(
      drafts.map(async (draft) => {
        try {
          draft.decision = await this.decider.decide(draft.call);
        } catch (error) {
          draft.decision = this.undecided(draft.call, error);
        }
      }),
    );
  }

  private async wait(draft: Draft): Promise<void> {
    try {
      draft.decision = await this.decider.wait(draft.call, draft.decision as Decision, this.options.approvalTimeout);
    } catch (error) {
      draft.decision = this.undecided(draft.call, error);
    }
  }

  private settleDeferred(draft: Draft): void {
    const session = draft.call.session === undefined ? undefined : { name: draft.call.session };
    const key = deferredKey(draft.call, session, draft.body);
    if (isHeld(draft)) this.deferred.put(key, draft.call.callId as string);
    else this.deferred.drop(key);
  }

  /** The enforced call: a decision that does not bind what would run does not count. */
  private settled(draft: Draft, deferred: boolean): Enforced {
    const { call } = draft;
    let decision = draft.decision ?? this.undecided(call, undefined);
    let body = draft.body;
    if (decision.allowed) {
      try {
        body = binding(call, decision, body);
      } catch (error) {
        decision = this.undecided(call, error);
      }
    }
    return new Enforced(call.tool, decision, draft.body, body, deferred);
  }

  private undecided(call: ToolCall, error: unknown): Decision {
    if (error !== undefined) {
      this.log(`a call of \`${call.tool}\` was refused because it could not be decided: ${described(error)}`);
    }
    const reason = error instanceof InvalidCall && error.status === 422 ? 'schema_invalid' : 'unavailable';
    return blocked({ callId: call.callId ?? '', digest: '' }, reason);
  }
}

/**
 * Calls of models that a framework is going to decide where it runs them, until their results go back to the model.
 *
 * A body that runs beside every decision is an alarm at once, but which call it ran for is not known there. So every open
 * call of that tool is marked: what comes back for it, and was not judged under a decision, does not reach the model.
 */
export class OpenCalls {
  private readonly tools = new Map<string, { session: string; tool: string; marked: boolean }>();

  opened(session: string, callId: string, tool: string): void {
    if (callId === '') return;
    const key = `${session}\0${callId}`;
    this.tools.delete(key);
    this.tools.set(key, { session, tool, marked: false });
    if (this.tools.size > MAX_OPEN) this.tools.delete(this.tools.keys().next().value as string);
  }

  ranBeside(session: string, tool: string): void {
    for (const open of this.tools.values()) {
      if (open.session === session && open.tool === tool) open.marked = true;
    }
  }

  /** A result of the call is about to reach the model; whether a body of its tool ran beside the decisions. */
  closed(session: string, callId: string): boolean {
    const key = `${session}\0${callId}`;
    const marked = this.tools.get(key)?.marked ?? false;
    this.tools.delete(key);
    return marked;
  }
}

/** What may be logged of an error: foreign messages can hold argument values. */
export function described(error: unknown): string {
  if (error instanceof InvalidCall) return error.message;
  return error instanceof Error ? error.name : typeof error;
}

export function newId(): string {
  return randomBytes(16).toString('hex');
}

const isHeld = (draft: Draft): boolean => draft.decision?.outcome === 'require_approval';

function deferredKey(call: { server?: string | undefined; tool: string }, session: SessionContext | undefined, body: string): string {
  return sha256(`${canonical([call.server ?? null, call.tool, session?.name ?? null])}\0${body}`);
}

/** The text that the decision allows; throws `InvalidCall` unless it carries its digests. */
function binding(call: ToolCall, decision: Decision, body: string): string {
  const asked = callDigest(call.server, call.tool, body);
  let runs = asked;
  let allowed = body;
  if (decision.outcome === 'sanitize') {
    if (decision.arguments === undefined) throw new InvalidCall('a sanitised call has no arguments');
    allowed = canonical(decision.arguments);
    runs = callDigest(call.server, call.tool, allowed);
  }
  if (decision.requestDigest !== asked || decision.callDigest !== runs) {
    throw new InvalidCall('the decision is about another call');
  }
  return allowed;
}
