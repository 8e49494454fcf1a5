/** Any function as a tool: decided before its body runs, its result observed after. */

import { currentPermit, scoped } from './context';
import { PermitInvalid, ToolCallBlocked } from './errors';
import { Enforced, type Observed } from './enforcer';
import { wordsOf } from './gate';
import { canonical, escapeToken, isObject, isStream, type Json, jsonable, parse } from './json';
import { currentRuntime } from './runtime';
import type { PermittedCall } from './client';
import { type Decision, MESSAGES, type Reason } from './values';

const WORDLESS = 'the function failed, and what it said could not be checked, so it was withheld';
const STREAM = 'the result is a stream that nobody could look at, so it was withheld';
const PERMIT = Symbol.for('aegis-guard/permit');

export interface ProtectOptions {
  /** The tool's name; by default the function's. */
  readonly name?: string;
  /** The namespace that is part of the tool's identity. */
  readonly server?: string;
  /** The names of the function's parameters; by default they are read from its text. */
  readonly parameters?: readonly string[];
}

// eslint-style `any` would let everything through; the types of the function are kept as they are.
type Fn = (...args: never[]) => unknown;
type Promised<F extends Fn> = (...args: Parameters<F>) => Promise<Awaited<ReturnType<F>>>;

/**
 * Decide each call of a function before its body runs, and observe what it returns.
 *
 * The decision is about the final arguments, as JSON: the members of a single object, or the values by the names of their
 * parameters. They reach the body as a fresh decode of the text that was decided; values without a JSON form (streams,
 * functions, class instances of no plain form) are declared unresolved and passed as they are. Changed arguments and
 * results take the place of the original ones. Items of an async generator are observed together before the first is
 * handed out.
 *
 * The function that is given back rejects with `ToolCallBlocked` where the call may not run, or nothing of its result may
 * be seen, or nothing of what its own error says; other errors of the body pass as they are.
 */
export function protect<F extends Fn>(fn: F, options: ProtectOptions = {}): Promised<F> {
  const tool = options.name ?? fn.name;
  if (tool === '') throw new TypeError('the function has no name: say `name`');
  const names = options.parameters ?? parametersOf(fn);
  const run = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
    const given = new Arguments(args, names);
    const { enforcer } = currentRuntime();
    const [enforced] = (await enforcer.enforce([
      {
        tool,
        server: options.server,
        arguments: given.form,
        unresolved: given.unresolved,
        wantPermit: (fn as { [PERMIT]?: boolean })[PERMIT] === true,
      },
    ])) as [Enforced];
    if (!enforced.allowed) throw new ToolCallBlocked(enforced.decision);
    const values = given.allowed(enforced);
    let result: unknown;
    try {
      result = await scoped({ permit: enforced.decision.permit }, async () => {
        const made = called(fn, this, values);
        return isGenerator(made) ? await collected(made) : await made;
      });
    } catch (error) {
      await passable(enforced, error);
      throw error;
    }
    if (isStream(result) && !(result instanceof Collected)) throw refused(enforced, 'insufficient_evidence', STREAM);
    const items = result instanceof Collected ? result.items : result;
    const [seen] = (await enforcer.observe([
      { decisionId: enforced.decision.decisionId, result: shown(items, enforced) },
    ])) as [Observed];
    if (seen.withheld) throw refused(enforced, seen.decision.reason, seen.decision.message);
    const visible = seen.changed ? seen.value : items;
    return result instanceof Collected ? replay(visible) : visible;
  };
  Object.defineProperty(run, 'name', { value: fn.name });
  return run as unknown as Promised<F>;
}

/** Who redeems permits: a `Client` with a key of the role `tool` or `agent`. */
export interface PermitVerifier {
  redeem(permit: string, call: PermittedCall): Promise<string>;
}

export interface RequirePermitOptions extends ProtectOptions {
  /** Who redeems; by default the gateway of this process. */
  readonly verifier?: PermitVerifier;
}

/**
 * Let a tool run only with a permit for exactly these arguments, which is used up before the body runs.
 *
 * The permit comes by itself where the call went through `protect` or a hooked framework; `withPermit` gives another. The
 * arguments reach the body as a fresh decode of the text that was verified. Rejects with `PermitInvalid` where there is no
 * permit, or it does not cover this call, or it was used before.
 */
export function requirePermit<F extends Fn>(fn: F, options: RequirePermitOptions = {}): Promised<F> {
  const tool = options.name ?? fn.name;
  if (tool === '') throw new TypeError('the function has no name: say `name`');
  const names = options.parameters ?? parametersOf(fn);
  const run = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
    const permit = currentPermit();
    if (permit === undefined || permit === '') {
      throw new PermitInvalid(`\`${tool}\` runs only with a permit`, { code: 'permit_missing', hint: 'ask for the call first' });
    }
    const given = new Arguments(args, names);
    if (given.unresolved.length > 0) {
      throw new PermitInvalid(`an argument of \`${tool}\` has no JSON form that a permit could cover`);
    }
    const body = canonical(given.form);
    const verified = parse(body) as Record<string, unknown>;
    const verifier = options.verifier ?? (currentRuntime().client as unknown as PermitVerifier);
    await verifier.redeem(permit, { tool, arguments: verified, server: options.server });
    return scoped({ permit: undefined }, () =>
      called(fn, this, given.of(parse(body) as Record<string, unknown>)),
    );
  };
  // `protect` asks for a permit where this stands.
  Object.defineProperties(run, { name: { value: fn.name }, [PERMIT]: { value: true } });
  Object.defineProperty(run, 'aegisParameters', { value: names });
  return run as unknown as Promised<F>;
}

/** Run code with a permit that was handed over in another way, such as the header `Aegis-Permit`. */
export function withPermit<T>(permit: string, run: () => T): T {
  return scoped({ permit }, run);
}

/** The arguments of one call: by name, as JSON, and back. */
class Arguments {
  readonly form: Record<string, Json>;
  readonly unresolved: readonly string[];
  private readonly named: Record<string, unknown>;
  private readonly bare: boolean;

  constructor(
    private readonly args: readonly unknown[],
    private readonly names: readonly string[],
  ) {
    // A single object is what tools of this language are called with: its members are the arguments.
    this.bare = args.length === 1 && names.length <= 1 && isPlain(args[0]);
    this.named = this.bare ? (args[0] as Record<string, unknown>) : byName(args, names);
    const form: Record<string, Json> = {};
    const unresolved: string[] = [];
    for (const [name, value] of Object.entries(this.named)) {
      if (value === undefined) continue;
      let json: Json = null;
      try {
        json = jsonable(value);
      } catch {
        unresolved.push(`/${escapeToken(name)}`);
      }
      Object.defineProperty(form, name, { value: json, enumerable: true, configurable: true, writable: true });
    }
    this.form = form;
    this.unresolved = unresolved;
  }

  /** What the body is called with under a decision; throws `ToolCallBlocked` where it cannot take that. */
  allowed(enforced: Enforced): unknown[] {
    const values = enforced.arguments();
    if (!this.bare && Object.keys(values).some((name) => !this.names.includes(name) && !Object.hasOwn(this.named, name))) {
      throw refused(enforced, 'schema_invalid', MESSAGES.schema_invalid);
    }
    return this.of(values);
  }

  /** What the body is called with when these values, by name, may run. */
  of(values: Record<string, unknown>): unknown[] {
    for (const pointer of this.unresolved) {
      const name = pointer.slice(1).replaceAll('~1', '/').replaceAll('~0', '~');
      if (Object.hasOwn(values, name)) values[name] = this.named[name];
    }
    for (const [name, value] of Object.entries(values)) {
      // A value of another kind than JSON's (a date) stays where nothing of it was changed.
      const own = this.named[name];
      if (typeof own === 'object' && own !== null && !isPlain(own) && !Array.isArray(own)) {
        if (canonical(value) === canonical(this.form[name])) values[name] = own;
      }
    }
    if (this.bare) return [values];
    const rest = Math.max(this.args.length, this.names.length);
    const positions = Array.from({ length: rest }, (_, index) => this.names[index] ?? `arg${index}`);
    const list = positions.map((name) => values[name]);
    while (list.length > this.args.length && list.at(-1) === undefined) list.pop();
    return list;
  }
}

function byName(args: readonly unknown[], names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(args.map((value, index) => [names[index] ?? `arg${index}`, value]));
}

function isPlain(value: unknown): boolean {
  if (!isObject(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** The names of a function's parameters, as far as its text says them; one that is taken apart has none. */
export function parametersOf(fn: Fn): readonly string[] {
  const own = (fn as { aegisParameters?: readonly string[] }).aegisParameters;
  if (own !== undefined) return own;
  const source = Function.prototype.toString.call(fn);
  const single = /^(?:async\s+)?([\p{ID_Start}$_][\p{ID_Continue}$]*)\s*=>/u.exec(source);
  if (single?.[1] !== undefined && single[1] !== 'async') return [single[1]];
  const start = source.indexOf('(');
  if (start < 0) return [];
  const names: string[] = [];
  let depth = 0;
  let current = '';
  for (const char of source.slice(start)) {
    if ('([{'.includes(char)) depth += 1;
    if (')]}'.includes(char)) depth -= 1;
    if (depth === 0 || (depth === 1 && char === ',')) {
      const name = /^\s*([\p{ID_Start}$_][\p{ID_Continue}$]*)\s*(?:=|$)/u.exec(current)?.[1];
      if (current.trim() !== '') names.push(name ?? `arg${names.length}`);
      current = '';
      if (depth === 0) break;
    } else if (!(depth === 1 && char === '(' && current === '')) {
      current += char;
    }
  }
  return names;
}

class Collected {
  constructor(readonly items: unknown[]) {}
}

/** Whether a value is what a generator function gives, whose body has not begun. */
function isGenerator(value: unknown): value is AsyncIterable<unknown> | Iterable<unknown> {
  const kind = Object.prototype.toString.call(value);
  return kind === '[object AsyncGenerator]' || kind === '[object Generator]';
}

function called(fn: unknown, receiver: unknown, values: readonly unknown[]): unknown {
  return (fn as (...rest: readonly unknown[]) => unknown).apply(receiver, values as unknown[]);
}

async function collected(source: AsyncIterable<unknown> | Iterable<unknown>): Promise<Collected> {
  const items: unknown[] = [];
  for await (const item of source) items.push(item);
  return new Collected(items);
}

async function* replay(items: unknown): AsyncGenerator<unknown> {
  if (Array.isArray(items)) yield* items as unknown[];
  else yield items;
}

function shown(result: unknown, enforced: Enforced): Json {
  try {
    return jsonable(result);
  } catch {
    throw refused(enforced, 'insufficient_evidence', 'the result has no JSON form, so it could not be checked and was withheld');
  }
}

/** Throw `ToolCallBlocked` where the words of the body's error may not be seen as they are. */
async function passable(enforced: Enforced, error: unknown): Promise<void> {
  let words: string;
  try {
    words = wordsOf(error);
  } catch {
    throw refused(enforced, 'insufficient_evidence', WORDLESS);
  }
  const asked = { decisionId: enforced.decision.decisionId, result: words, further: true };
  const [seen] = (await currentRuntime().enforcer.observe([asked])) as [Observed];
  if (seen.changed) throw refused(enforced, seen.decision.reason, seen.decision.message);
}

function refused(enforced: Enforced, reason: Reason, message: string): ToolCallBlocked {
  const decision: Decision = { ...enforced.decision, outcome: 'block', allowed: false, reason, message };
  return new ToolCallBlocked(decision);
}
