/** What every hook says of itself, and how it is put on. */

import { UnhookedFramework } from './errors';
import { type Installed, installed, instances, isWithin } from './packages';
import { type Owner, Patches } from './patches';
import { currentRuntime, type Runtime } from './runtime';

/** What a hook covers: the seams, what is refused because it cannot be covered, and what stays uncovered. */
export interface Seams {
  readonly seams: readonly string[];
  readonly barred?: readonly string[];
  readonly uncovered?: readonly string[];
}

/** The modules of one copy of a package: every instance of one of its paths. */
export type Load = (subpath?: string) => Promise<Owner[]>;

/** One framework: its package, the versions that were tested, and what puts the hook on. */
export interface Hook {
  readonly framework: string;
  /** Packages that bring it with them. */
  readonly via?: readonly string[];
  /** From the first version on, and below the second. */
  readonly supported: readonly [readonly number[], readonly number[]];
  hook(runtime: Runtime, patches: Patches, load: Load, found: Installed): Promise<Seams>;
}

/** One framework that is hooked: its version, where, which paths are refused, and which stay uncovered. */
export interface Hooked {
  readonly framework: string;
  readonly version: string;
  readonly supported: string;
  readonly seams: readonly string[];
  readonly barred: readonly string[];
  readonly uncovered: readonly string[];
}

// Both module systems of one process, and copies of this package in it, share what is hooked.
const SHARED = Symbol.for('aegis-guard/hooked/1');
const shared = globalThis as unknown as Record<symbol, Map<string, Patches> | undefined>;
const applied = (shared[SHARED] ??= new Map<string, Patches>());

// Functions that stand in place of those that a package hands out.
const STAND_INS = Symbol.for('aegis-guard/stand-ins/1');
const standIns = ((globalThis as unknown as Record<symbol, WeakSet<object> | undefined>)[STAND_INS] ??= new WeakSet<object>());

/** Functions that are going to stand in place of a package's own. */
export function standingIn(functions: Owner): Owner {
  for (const one of Object.values(functions)) standIns.add(one as object);
  return functions;
}

/** Whether guarded functions stand in a module under these names: a runtime may take a loader, and never ask it. */
export function standsIn(module: Owner, names: readonly string[]): boolean {
  return names.every((name) => !(name in module) || standIns.has(module[name] as object));
}

/** The range of versions that a hook supports, as a person reads it. */
export function rangeOf(hook: Hook): string {
  const [low, high] = hook.supported;
  return `>=${low.join('.')},<${high.join('.')}`;
}

/**
 * Put a hook on every copy of its package that is installed; one that was put on before is put on again.
 *
 * Rejects with `UnhookedFramework` for a version that is not known, or without the expected seams; that copy is as it was.
 */
export async function applyHook(hook: Hook): Promise<Hooked[]> {
  const done: Hooked[] = [];
  for (const found of installed(hook.framework, hook.via)) done.push(await applyTo(hook, found));
  return done;
}

/** Put a hook on its package, and rejects with `UnhookedFramework` where that is not installed. */
export async function requireHook(hook: Hook): Promise<Hooked[]> {
  const done = await applyHook(hook);
  if (done.length === 0) throw new UnhookedFramework(`\`${hook.framework}\` is not installed`);
  return done;
}

async function applyTo(hook: Hook, found: Installed): Promise<Hooked> {
  const { framework, supported } = hook;
  const { version } = found;
  if (!isWithin(version, ...supported)) {
    throw new UnhookedFramework(`\`${framework}\` ${version} is not supported; supported is ${rangeOf(hook)}`);
  }
  applied.get(found.folder)?.undo();
  applied.delete(found.folder);
  const patches = new Patches();
  let seams: Seams;
  try {
    seams = await hook.hook(currentRuntime(), patches, (subpath) => instances(found, subpath), found);
  } catch (error) {
    patches.undo();
    if (error instanceof UnhookedFramework) throw error;
    throw new UnhookedFramework(`\`${framework}\` ${version} does not have the expected seams`, { cause: error });
  }
  applied.set(found.folder, patches);
  return {
    framework,
    version,
    supported: rangeOf(hook),
    seams: seams.seams,
    barred: seams.barred ?? [],
    uncovered: seams.uncovered ?? [],
  };
}

/** Put every hooked method back. */
export function undoHooks(): void {
  for (const patches of applied.values()) patches.undo();
  applied.clear();
}
