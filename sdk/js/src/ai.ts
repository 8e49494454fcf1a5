/**
 * The AI SDK (`ai`): the tools of `generateText`, `streamText` and agents.
 *
 * The package hands out functions, which no module can replace once they were loaded. So a program is started with
 * `node --import aegis-guard/register`, which puts guarded ones in their place; or it gives its tools through
 * `guardTools`. Agents (`ToolLoopAgent`) are covered as soon as the hook is on.
 */

import { UnhookedFramework } from './errors';
import { fitted, shownTo } from './fitted';
import type { ToolGate } from './gate';
import { type Hook, type Hooked, requireHook, type Seams, standingIn, standsIn } from './hooks';
import { isStream } from './json';
import type { Method, Owner } from './patches';
import { currentRuntime } from './runtime';

type Tools = Record<string, Owner>;

const NAMES = ['generateText', 'streamText'] as const;
const GATED = Symbol.for('aegis-guard/ai/gated');
/** Set by `aegis-guard/register` once the functions of the package are guarded. */
export const REGISTERED = Symbol.for('aegis-guard/ai/registered');

/** The same tools, each decided where it is executed; those that have no `execute` are as they are. */
export function guardTools<T extends object>(tools: T): T {
  const entries = Object.entries(tools as Tools).map(([name, tool]) => [name, guarded(name, tool)]);
  return Object.fromEntries(entries) as T;
}

function guarded(name: string, tool: Owner): Owner {
  if (typeof tool['execute'] !== 'function' || tool[GATED] === true) return tool;
  const execute = tool['execute'] as Method;
  const replaced = new Set<unknown>(); // texts that stand in place of results, which the tool itself did not make
  const own = Object.create(Object.getPrototypeOf(tool) as object, Object.getOwnPropertyDescriptors(tool)) as Owner;
  const run = async (input: unknown, options: Owner | undefined): Promise<unknown> => {
    const gate: ToolGate = currentRuntime().gate;
    const callId = typeof options?.['toolCallId'] === 'string' ? options['toolCallId'] : '';
    const ran = await gate.call(
      { tool: name, callId, arguments: () => input ?? {} },
      async (allowed) => last((await execute.call(tool, fitted(input, allowed), options)) as unknown),
      shownTo,
    );
    if (ran.replaced) replaced.add(ran.seen);
    return ran.told;
  };
  Object.defineProperty(own, 'execute', { value: run, enumerable: true, configurable: true, writable: true });
  Object.defineProperty(own, GATED, { value: true });
  const shape = tool['toModelOutput'] as Method | undefined;
  if (typeof shape === 'function') {
    const toModelOutput = (given: unknown, ...rest: unknown[]): unknown => {
      const output = typeof given === 'object' && given !== null && 'output' in given ? given.output : given;
      if (typeof output === 'string' && replaced.has(output)) return { type: 'text', value: output };
      return shape.call(tool, given, ...rest) as unknown;
    };
    Object.defineProperty(own, 'toModelOutput', { value: toModelOutput, enumerable: true, configurable: true, writable: true });
  }
  return own;
}

/** The last of what a tool yields: what comes before it would be seen before anybody looked at it. */
async function last(result: unknown): Promise<unknown> {
  if (!isStream(result)) return result;
  let item: unknown;
  for await (const one of result as AsyncIterable<unknown>) item = one;
  return item;
}

function withTools(options: unknown): unknown {
  const tools = (options as Owner | undefined)?.['tools'] as object | undefined;
  return tools === undefined || tools === null ? options : { ...(options as Owner), tools: guardTools(tools) };
}

/** The functions of the package with their tools guarded, while the hook is on. */
export function wrapped(original: Owner, isOn: () => boolean = () => true): Owner {
  const functions: Owner = {};
  for (const name of NAMES) {
    const run = original[name] as Method;
    if (typeof run !== 'function') throw new UnhookedFramework(`\`ai\` has no \`${name}\``);
    functions[name] = (options: unknown, ...rest: unknown[]) => run(isOn() ? withTools(options) : options, ...rest) as unknown;
  }
  return standingIn(functions);
}

export const ai: Hook = {
  framework: 'ai',
  supported: [[6, 0, 300], [8]],
  async hook(_runtime, patches, load): Promise<Seams> {
    const registered = (globalThis as unknown as Record<symbol, { on: boolean } | undefined>)[REGISTERED];
    const modules = await load();
    if (registered === undefined || !modules.every((module) => standsIn(module, NAMES))) {
      throw new UnhookedFramework(
        '`ai` hands out functions that cannot be replaced after they were loaded; start the program with' +
          ' `node --import aegis-guard/register`, or give its tools through `guardTools` of `aegis-guard/ai` and hook' +
          " the rest with `onUnhooked: 'warn'`",
      );
    }
    registered.on = true;
    patches.onUndo(() => {
      registered.on = false;
    });
    for (const module of modules) {
      patches.replace((module['ToolLoopAgent'] as Owner)['prototype'] as Owner, 'prepareCall', (original) => {
        return async function (this: unknown, ...args: unknown[]) {
          return withTools(await original.call(this, ...args));
        };
      });
    }
    return {
      seams: ['generateText', 'streamText', 'ToolLoopAgent'],
      uncovered: [
        'tools without `execute`, which the program runs itself',
        'tools that a provider hosts',
        'functions that another module keeps from before the start',
      ],
    };
  },
};

/** Hook the agents of the installed `ai` package, and its functions where `aegis-guard/register` was loaded first. */
export function hook(): Promise<Hooked[]> {
  return requireHook(ai);
}
