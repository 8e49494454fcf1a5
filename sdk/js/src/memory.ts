/**
 * What a process remembers of its conversations: decided calls, observed results, and what was taken out.
 *
 * Bounded in number and bytes; the oldest goes first. What is forgotten is no longer put back or looked up, and nothing is
 * allowed for it. Everything is kept by session, so that ids that a server counts afresh in every conversation do not mix.
 */

import { randomBytes } from 'node:crypto';

import { Bounded } from './bounded';
import { type Enforced, newId } from './enforcer';

const MAX_ITEMS = 10_000; // a process that runs for months does not grow without end
const MAX_BYTES = 33_554_432; // refused arguments are the model's: their number and size are its choice
const MAX_RESULTS = 16; // different results that are remembered of one call
const UNIQUE_CHARS = 20; // ids of OpenAI and Anthropic have more, counters have fewer
const SUFFIX_CHARS = 16;
const MAX_ID_CHARS = 256 - SUFFIX_CHARS - 1;

/** A call that was decided here: how it is known to the decider, and what was made of its results. */
export interface Decided {
  readonly decisionId: string;
  readonly allowed: boolean;
  /** Set where a call that a runner is going to execute was refused before. */
  readonly refusal?: string;
  /** The refusal that a runner was given as the result, which it may have put into words of its own. */
  readonly told?: string;
  /** What may run. */
  readonly enforced?: Enforced;
  /** Whether it was given to somebody who runs it. */
  readonly begun?: boolean;
  /** What may be seen of each result, by digest. */
  readonly results: Map<string, { readonly changed: boolean; readonly value: unknown }>;
}

/** A call that was taken out of an answer: its wire form, its place among the parts, and the refusal. */
export interface Refused {
  readonly call: Record<string, unknown>;
  readonly callId: string;
  readonly index: number;
  readonly message: string;
}

/** All that was taken out of one answer, and how it is found again: by kept calls, by `ref`, or by anchors. */
export interface Removal {
  readonly refused: readonly Refused[];
  readonly kept: readonly string[];
  readonly ref: string;
  readonly text: string;
}

/** Finds a removal again: by a kept call's key, by the reference in a text, or by an answer's anchor. */
export interface Recall {
  byCall(key: string): Removal | undefined;
  byRef(ref: string): Removal | undefined;
  byAnchor(anchor: string): Removal | undefined;
}

/** The memory of all hooked clients of a process. */
export class Memory {
  private readonly decided = new Bounded<Decided>(MAX_ITEMS, MAX_BYTES);
  private readonly answers = new Bounded<string>(MAX_ITEMS, MAX_BYTES);
  private readonly removals = new Bounded<Removal>(MAX_ITEMS, MAX_BYTES);

  /**
   * The id under which a provider's call is decided; the same call of the same answer has the same id.
   *
   * It is the provider's own where that is long enough to be unique. Shorter ones are counters on some servers: they get
   * a suffix, or a call of yesterday would stand for today's.
   */
  callId(session: string, answerId: string, callId: string): string {
    if (callId === '' || callId.length > MAX_ID_CHARS) return newId();
    if (callId.length >= UNIQUE_CHARS) {
      const first = this.answers.get(key(session, callId));
      if (first === undefined) this.answers.put(key(session, callId), answerId);
      if (first === undefined || first === answerId) return callId;
    }
    const own = key(session, answerId, callId);
    let known = this.answers.get(own);
    if (known === undefined) {
      known = suffixed(callId);
      this.answers.put(own, known);
    }
    return known;
  }

  /**
   * The id under which a call is decided where it is executed: the one under which its answer was decided, if that
   * happened. Without an answer's id a long id stands for itself, and a short one for nothing.
   */
  executionId(session: string, answerId: string | undefined, callId: string): string {
    if (callId === '' || callId.length > MAX_ID_CHARS) return newId();
    const unique = callId.length >= UNIQUE_CHARS;
    const own = key(session, answerId ?? '', callId);
    let known = this.answers.get(own);
    if (known === undefined && answerId === undefined) return unique ? callId : newId();
    if (known === undefined) {
      const claim = key(session, '\0claimed', callId);
      known = unique && this.answers.get(claim) === undefined ? callId : suffixed(callId);
      this.answers.put(own, known);
      this.answers.put(claim, callId);
    }
    return known;
  }

  /** Remember that a call had to be decided under another id, because its own stood for other arguments. */
  learnExecutionId(session: string, answerId: string | undefined, callId: string, used: string): void {
    if (callId !== '' && (answerId !== undefined || callId.length >= UNIQUE_CHARS)) {
      this.answers.put(key(session, answerId ?? '', callId), used);
    }
  }

  /** Remember under which decision the result of a call is to be observed. */
  learnDecision(session: string, callId: string, decided: Omit<Decided, 'results'> & Partial<Pick<Decided, 'results'>>): void {
    if (callId === '') return;
    const { enforced } = decided;
    const weight = enforced === undefined ? 0 : enforced.asked.length + enforced.body.length;
    this.decided.put(key(session, callId), { ...decided, results: decided.results ?? new Map() }, weight);
  }

  /** Forget the decision on a call: it is going to be decided again. */
  forgetDecision(session: string, callId: string): void {
    this.decided.drop(key(session, callId));
  }

  /** The decision on the newest call with this id. */
  decision(session: string, callId: string): Decided | undefined {
    return this.decided.get(key(session, callId));
  }

  /** Remember what may be seen of the result with this digest. */
  learnResult(decided: Decided, digest: string, changed: boolean, value: unknown): void {
    if (decided.results.size >= MAX_RESULTS) decided.results.delete(decided.results.keys().next().value as string);
    decided.results.set(digest, { changed, value });
  }

  /** Remember what was taken out of an answer, and forget what an anchor stood for before. */
  learnRemovals(session: string, anchors: readonly string[], removals: readonly Removal[]): void {
    for (const anchor of anchors) this.removals.drop(key(session, 'anchor', anchor));
    for (const removal of removals) {
      const weight = removal.refused.reduce((sum, one) => sum + JSON.stringify(one.call).length, 0);
      for (const kept of removal.kept) this.removals.put(key(session, 'call', kept), removal, weight);
      if (removal.ref !== '') this.removals.put(key(session, 'ref', removal.ref), removal, weight);
      for (const anchor of anchors) if (anchor !== '') this.removals.put(key(session, 'anchor', anchor), removal, weight);
    }
  }

  /** What was taken out in one session; each removal is given once: a model that repeats a reference repeats no call. */
  recall(session: string): Recall {
    const given = new Set<Removal>();
    const first = (kind: string, name: string): Removal | undefined => {
      const found = name === '' ? undefined : this.removals.get(key(session, kind, name));
      if (found === undefined || given.has(found)) return undefined;
      given.add(found);
      return found;
    };
    return {
      byCall: (name) => first('call', name),
      byRef: (name) => first('ref', name),
      byAnchor: (name) => first('anchor', name),
    };
  }
}

const key = (...parts: readonly string[]): string => parts.join('\0');
const suffixed = (callId: string): string => `${callId}.${randomBytes(SUFFIX_CHARS / 2).toString('hex')}`;
