/**
 * What holds around a piece of code: the session that the host opened, the calls that a framework enforces itself, the
 * decision in whose body it runs, and the permit of that call.
 */

import { AsyncLocalStorage } from 'node:async_hooks';

/** A session as the host named it, and what the user asked for. */
export interface SessionContext {
  readonly name: string;
  readonly task?: string | undefined;
}

export interface Scope {
  readonly session?: SessionContext | undefined;
  /** Tools whose calls a model is just asked for, and that the framework around it enforces where it runs them. */
  readonly deferred?: ReadonlySet<string> | undefined;
  /** The call in whose body this runs: its tool and its canonical arguments. */
  readonly decided?: { readonly tool: string; readonly body: string } | undefined;
  /** What the execution around is known by. */
  readonly key?: string | undefined;
  /** The executions in whose bodies this runs. */
  readonly around?: ReadonlySet<string> | undefined;
  readonly permit?: string | undefined;
  /** Whether the body of the decided call has begun: what it does inside is its own affair. */
  readonly begun?: boolean | undefined;
  /** The way of the decided call to its body: whether a body ran beside what was decided. */
  readonly passage?: { value: boolean } | undefined;
}

const NOWHERE: Scope = {};
// Both module systems of one process share it: the scope that one opens holds in what the other loads.
const SHARED = Symbol.for('aegis-guard/scope/1');
const shared = globalThis as unknown as Record<symbol, AsyncLocalStorage<Scope> | undefined>;
const storage = (shared[SHARED] ??= new AsyncLocalStorage<Scope>());

/** The scope of this piece of code. */
export function currentScope(): Scope {
  return storage.getStore() ?? NOWHERE;
}

/** Run code in the scope around it with some members changed. */
export function scoped<T>(change: Scope, run: () => T): T {
  return storage.run({ ...currentScope(), ...change }, run);
}

/** Run code in exactly this scope. */
export function inScope<T>(scope: Scope, run: () => T): T {
  return storage.run(scope, run);
}

/** Run code whose model calls go to a framework that enforces the calls of these tools where it runs them. */
export function deferring<T>(names: Iterable<string>, run: () => T): T {
  const before = currentScope().deferred ?? [];
  return scoped({ deferred: new Set([...before, ...names]) }, run);
}

/** The session of this piece of code, if the host has opened one. */
export function currentSession(): SessionContext | undefined {
  return currentScope().session;
}

/** The permit of the call in whose body this code runs, if it was given one. */
export function currentPermit(): string | undefined {
  return currentScope().permit;
}

/** The items of an async iterable, each made in the scope; the consumer's code is not in it. */
export async function* itemsIn<T>(scope: Scope, source: AsyncIterable<T>): AsyncGenerator<T> {
  const iterator = inScope(scope, () => source[Symbol.asyncIterator]());
  try {
    for (;;) {
      const step = await inScope(scope, () => iterator.next());
      if (step.done === true) return;
      yield step.value;
    }
  } finally {
    await inScope(scope, () => iterator.return?.());
  }
}
