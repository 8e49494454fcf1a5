/** Tools that a framework executes: enforced where the body runs, once, and the result observed. */

import { Bounded } from './bounded';
import { currentScope, currentSession, inScope, scoped } from './context';
import { type Attempt, described, type Enforced, type Enforcer } from './enforcer';
import { canonical, isObject, jsonable, parse, sha256, textOf } from './json';
import type { Decided, Memory } from './memory';

const MAX_RUNS = 1_000; // results are kept alive as they are, whatever their size
const MAX_ERRORS = 64; // causes and members of groups that are read; a tool can nest them without end
const UNREADABLE = 'was not run: its arguments are missing, of another type, or unknown; call it again as its schema says';
const NO_JSON = 'the result was withheld: it has no JSON form, so it could not be checked';
const NO_WORDS = 'the tool failed; what it said was withheld, because it could not be checked';
const BESIDE = 'was refused: its body was given something else than what was decided';
const WITHIN = 'was refused: it was called again, with the same id, while it runs';

/**
 * One call that a framework is about to execute.
 *
 * `arguments` gives the final arguments and may throw; `answerId` tells apart answers whose ids repeat, and is absent
 * where the framework does not say which answer a call is from.
 */
export interface Execution {
  readonly tool: string;
  readonly callId: string;
  readonly answerId?: string | undefined;
  readonly arguments: () => unknown;
  readonly server?: string | undefined;
  readonly wantPermit?: boolean | undefined;
  readonly unresolved?: readonly string[] | undefined;
}

/**
 * What became of a call.
 *
 * `seen` is what the model may see: the refusal, or the view of the result, changed or not. `result` is what the body gave;
 * nothing of it may be used where the call was `refused` or the result `withheld`.
 */
export class Ran {
  constructor(
    readonly seen: unknown,
    readonly result: unknown,
    private readonly state: { refused?: boolean; changed?: boolean; withheld?: boolean; enforced?: Enforced } = {},
  ) {}

  get refused(): boolean {
    return this.state.refused ?? false;
  }

  get withheld(): boolean {
    return this.state.withheld ?? false;
  }

  /** Whether the model sees something else than the body gave. */
  get replaced(): boolean {
    return this.refused || (this.state.changed ?? false);
  }

  /** Whether nothing that the body gave may be used. */
  get failed(): boolean {
    return this.refused || this.withheld;
  }

  get enforced(): Enforced | undefined {
    return this.state.enforced;
  }

  /** What the model may see, as text. */
  get text(): string {
    return textOf(this.seen);
  }

  /** What a framework tells the model: what the body gave, or what stands in its place. */
  get told(): unknown {
    return this.replaced ? this.seen : this.result;
  }
}

/** What of a result is judged; JSON. */
export type View = (result: unknown) => unknown;
export type Body = (args: Record<string, unknown>) => unknown;

/** Runs the bodies of a framework's tools. `pauses` knows the errors by which a body stops without failing. */
export class ToolGate {
  private readonly runs = new Bounded<Run>(MAX_RUNS);

  constructor(
    readonly enforcer: Enforcer,
    private readonly memory: Memory,
    private readonly pauses: (error: unknown) => boolean = () => false,
  ) {}

  /**
   * Run `body` with the arguments that may run, if any may.
   *
   * An error of the body passes through where its words may be seen; otherwise the call has a withheld result.
   */
  async call(execution: Execution, body: Body, view: View = jsonable): Promise<Ran> {
    // (1) A body that hands the very call that was decided to the tool of another framework: it runs there, once.
    const inner = innerArguments(execution);
    if (inner !== undefined) {
      const key = currentScope().key !== undefined && execution.callId !== '' ? `${currentScope().key}/` : '';
      return this.once(key, async () => {
        const result = await scoped({ key }, () => body(inner));
        return new Ran(view(result), result);
      });
    }
    // (2) Decide.
    const outcome = await this.before(execution);
    if (typeof outcome === 'string') return new Ran(outcome, undefined, { refused: true });
    const enforced = outcome;
    const key = execution.callId === '' ? '' : enforced.decision.decisionId;
    // (3) Run what was decided, once for a decision, and judge what it gives.
    const execute = async (): Promise<Ran> => {
      const beside = { value: false };
      try {
        const result = await this.inBody(execution, enforced, key, beside, () => body(enforced.arguments()));
        if (beside.value) return this.beside(execution);
        return await this.judged(execution, enforced, result, view);
      } catch (error) {
        if (beside.value) return this.beside(execution);
        if (this.pauses(error)) throw error;
        const words = await this.failed(execution, enforced, error);
        if (words === undefined) throw error;
        throw new WithheldFailure(words);
      }
    };
    try {
      return await this.once(key, execute);
    } catch (error) {
      if (error instanceof WithheldFailure) {
        return new Ran(error.seen, undefined, { changed: true, withheld: true, enforced });
      }
      if (error instanceof WaitsForItself) {
        return new Ran(`\`${execution.tool}\` ${WITHIN}`, undefined, { refused: true });
      }
      throw error;
    }
  }

  /** The enforced call where it may run, otherwise the sentence to give to the model. */
  async before(execution: Execution): Promise<Enforced | string> {
    const session = currentSession();
    const name = session?.name ?? '';
    let known = this.memory.decision(name, execution.callId);
    if (known?.refusal !== undefined && known.refusal !== '') return this.refused(execution, known.refusal);
    let args: unknown;
    try {
      args = jsonable(await execution.arguments());
      if (!isObject(args)) throw new TypeError('the arguments are no object');
    } catch (error) {
      this.enforcer.log(`the arguments of \`${execution.tool}\` were not accepted: ${described(error)}`);
      return this.refused(execution, `\`${execution.tool}\` ${UNREADABLE}`);
    }
    const callId = this.memory.executionId(name, execution.answerId, execution.callId);
    const attempt: Attempt = {
      tool: execution.tool,
      server: execution.server,
      arguments: args,
      callId,
      wantPermit: execution.wantPermit,
      unresolved: execution.unresolved,
    };
    let enforced = known === undefined ? undefined : await this.again(attempt, known);
    if (enforced === undefined) {
      [enforced] = (await this.enforcer.enforce([attempt], session)) as [Enforced];
      if (enforced.decision.callId !== callId) {
        this.memory.learnExecutionId(name, execution.answerId, execution.callId, enforced.decision.callId);
      }
    }
    if (!enforced.allowed) return this.refused(execution, enforced.refusal);
    // A call that is run again keeps what is known of its result.
    const { decisionId } = enforced.decision;
    if (known === undefined || known.decisionId !== decisionId) known = { decisionId, allowed: true, results: new Map() };
    this.memory.learnDecision(name, execution.callId, { ...known, enforced, begun: true });
    return enforced;
  }

  /** What the model may see of a result, by its `view`, which is what the model would see. */
  async judged(execution: Execution, enforced: Enforced, result: unknown, view: View = jsonable): Promise<Ran> {
    let value: unknown;
    let digest: string;
    try {
      value = jsonable(view(result));
      digest = sha256(canonical(value));
    } catch {
      this.learn(execution, NO_JSON);
      return new Ran(NO_JSON, result, { changed: true, withheld: true, enforced });
    }
    const [seen] = await this.enforcer.observe([{ decisionId: enforced.decision.decisionId, result: value }]);
    if (seen === undefined) throw new TypeError('a result has no judgement');
    if (!seen.changed) this.remember(execution, digest, value);
    else this.learn(execution, seen.value);
    return new Ran(seen.value, result, { changed: seen.changed, withheld: seen.withheld, enforced });
  }

  /** Remember a refusal that the model is given in place of a result, so that it is known again in the next request. */
  refused(execution: Execution, refusal: string): string {
    const session = currentSession()?.name ?? '';
    this.memory.learnDecision(session, execution.callId, { decisionId: '', allowed: false, told: refusal });
    this.learn(execution, refusal);
    return refusal;
  }

  /** Know a text again that the model is given for a call, in the next request. */
  learn(execution: Execution, seen: unknown): void {
    try {
      this.remember(execution, sha256(canonical(jsonable(seen))), seen);
    } catch {
      return; // what has no digest cannot be known again: it is observed there like any other text
    }
  }

  /** What the model may see of a body's error where that is not what it says; `undefined` where it may be seen as it is. */
  async failed(execution: Execution, enforced: Enforced, error: unknown): Promise<string | undefined> {
    let words: string;
    try {
      words = wordsOf(error);
    } catch {
      this.learn(execution, NO_WORDS);
      return NO_WORDS;
    }
    const asked = { decisionId: enforced.decision.decisionId, result: words, further: true };
    const [seen] = await this.enforcer.observe([asked]);
    if (seen !== undefined && !seen.changed) {
      this.learn(execution, words);
      return undefined;
    }
    const text = textOf(seen?.value ?? NO_WORDS);
    this.learn(execution, text);
    return text;
  }

  /** The very call as it was decided before, if it still may run; people who approved it are not asked twice. */
  private async again(attempt: Attempt, known: Decided): Promise<Enforced | undefined> {
    const before = known.enforced;
    if (before === undefined || before.tool !== attempt.tool || before.decision.callId !== attempt.callId) return undefined;
    // An approval is for one execution: what failed is asked about again.
    if (known.begun === true && this.runs.get(known.decisionId) === undefined) return undefined;
    const body = canonical(attempt.arguments);
    if (body !== before.asked && body !== before.body) return undefined;
    const again = await this.enforcer.again({ ...attempt, arguments: parse(before.asked) }, known.decisionId);
    return again ?? before;
  }

  private beside(execution: Execution): Ran {
    return new Ran(this.refused(execution, `\`${execution.tool}\` ${BESIDE}`), undefined, { refused: true });
  }

  private inBody<T>(execution: Execution, enforced: Enforced, key: string, beside: { value: boolean }, run: () => T): T {
    const { session, around } = currentScope();
    // Nothing of the scopes around it holds in a body, but the session and what it runs in.
    return inScope(
      {
        session,
        decided: { tool: execution.tool, body: enforced.body },
        key,
        around: key === '' ? (around ?? new Set()) : new Set([...(around ?? []), key]),
        permit: enforced.decision.permit,
        passage: beside,
      },
      run,
    );
  }

  /** One execution for one key: whoever comes again with the same call gets what the first one got. */
  private async once(key: string, run: () => Promise<Ran>): Promise<Ran> {
    if (key === '') return run();
    const known = this.runs.get(key);
    if (known !== undefined) {
      if (!known.done && currentScope().around?.has(key) === true) throw new WaitsForItself();
      return known.result;
    }
    const started: Run = { done: false, result: run() };
    this.runs.put(key, started);
    try {
      const result = await started.result;
      started.done = true;
      return result;
    } catch (error) {
      this.runs.drop(key); // what failed may be tried again
      throw error;
    }
  }

  private remember(execution: Execution, digest: string, seen: unknown): void {
    const decided = this.memory.decision(currentSession()?.name ?? '', execution.callId);
    if (decided !== undefined) this.memory.learnResult(decided, digest, false, seen);
  }
}

interface Run {
  done: boolean;
  readonly result: Promise<Ran>;
}

/** An execution was begun again inside its own body, which cannot end before it. */
class WaitsForItself extends Error {}

/** The body failed, and what it said may not be seen: the call may be tried again, unlike one with a result. */
class WithheldFailure extends Error {
  constructor(readonly seen: string) {
    super();
  }
}

/** The arguments, where a body hands the very call that was decided on to the tool of another framework. */
function innerArguments(execution: Execution): Record<string, unknown> | undefined {
  const { decided, begun } = currentScope();
  if (decided === undefined || begun === true || decided.tool !== execution.tool) return undefined;
  try {
    const args = execution.arguments();
    const body = canonical(jsonable(args));
    return body === decided.body ? (parse(body) as Record<string, unknown>) : undefined;
  } catch {
    return undefined; // decided like any other call
  }
}

/**
 * See a body begin, and say whether it may: one that runs under no decision, or with something else than was decided, went
 * round a seam. Raises the alarm, and throws where that is a model's call.
 */
export function witness(enforcer: Enforcer, tool: string, args: unknown): void {
  const scope = currentScope();
  if (scope.begun === true) return;
  const { passage } = scope;
  if (scope.decided !== undefined) {
    // A tool that is made of others runs them: its own affair.
    if (scope.decided.tool !== tool) return;
    try {
      if (canonical(jsonable(args)) === scope.decided.body) return;
    } catch {
      // what has no JSON form is not what was decided
    }
  }
  enforcer.uncovered(tool);
  if (passage !== undefined) {
    passage.value = true;
    throw new Error(`\`${tool}\` was not run: this is not what was decided`);
  }
}

/** The texts of an error, its causes and the members of its group, one a line, none twice; throws where it has none. */
export function wordsOf(error: unknown): string {
  const texts = new Set<string>();
  const waiting: unknown[] = [error];
  const seen = new Set<unknown>();
  while (waiting.length > 0) {
    const one = waiting.shift();
    if (seen.has(one)) continue;
    seen.add(one);
    if (seen.size > MAX_ERRORS) throw new TypeError('the error has too many causes');
    if (!(one instanceof Error)) {
      texts.add(textOf(jsonable(one)));
      continue;
    }
    texts.add(one.message);
    if (one.cause !== undefined) waiting.push(one.cause);
    if (one instanceof AggregateError) waiting.push(...(one.errors as unknown[]));
  }
  return [...texts].filter((text) => text !== '').join('\n');
}
