/**
 * The `@anthropic-ai/sdk` package: messages, whole and streamed, by hand and with the tool runner.
 *
 * What a program runs itself is decided in the model's answer; what the tool runner runs is decided where its tool is run.
 */

import { currentScope, itemsIn } from './context';
import { MessagesDialect } from './dialects/messages';
import type { Dialect, Wire } from './dialects/model';
import { fitted, shownTo } from './fitted';
import type { ToolGate } from './gate';
import { type Hook, type Hooked, requireHook, type Seams } from './hooks';
import { hookFetch } from './openai';
import type { Method, Owner } from './patches';

const MESSAGES = new MessagesDialect();
const GATED = Symbol('aegis-guard/gated');

/** The dialect that a request path speaks; nothing for one that proposes no calls. */
export function dialectOf(path: string): Dialect | undefined {
  const parts = path.split('/');
  return parts.includes('messages') && !parts.includes('batches') && !parts.includes('count_tokens') ? MESSAGES : undefined;
}

/** A tool of a runner that is decided where it is run; others are as they are. */
function gatedTool(gate: ToolGate, tool: Wire): Wire {
  if (typeof tool['run'] !== 'function' || GATED in tool) return tool;
  const run = tool['run'] as Method;
  const own = Object.create(Object.getPrototypeOf(tool) as object, Object.getOwnPropertyDescriptors(tool)) as Wire;
  const isToolset = !('input_schema' in tool);
  const gated = isToolset
    ? async function (context: Wire, use: Wire, ...rest: unknown[]) {
        const execution = {
          tool: String(use['name']),
          callId: String(use['id'] ?? ''),
          server: `toolset:${String(use['toolset_name'])}`,
          arguments: () => use['input'] as unknown,
        };
        const ran = await gate.call(
          execution,
          (allowed) => {
            const changed = { ...use, input: allowed };
            return run.call(tool, { ...context, toolUse: changed, toolUseBlock: changed }, changed, ...rest) as unknown;
          },
          shownTo,
        );
        return ran.told;
      }
    : async function (input: unknown, context: Wire | undefined, ...rest: unknown[]) {
        const use = (context?.['toolUse'] ?? context?.['toolUseBlock']) as Wire | undefined;
        const parse = tool['parse'] as Method | undefined;
        const ran = await gate.call(
          { tool: String(tool['name']), callId: String(use?.['id'] ?? ''), arguments: () => input },
          (allowed) =>
            run.call(tool, fitted(input, allowed, (args) => (parse === undefined ? args : (parse.call(tool, args) as unknown))), context, ...rest) as unknown,
          shownTo,
        );
        return ran.told;
      };
  Object.defineProperty(own, 'run', { value: gated, enumerable: true, configurable: true, writable: true });
  Object.defineProperty(own, GATED, { value: true });
  return own;
}

function gatedParams(gate: ToolGate, params: unknown): unknown {
  if (typeof params === 'function') {
    const mutate = params as (before: unknown) => unknown;
    return (before: unknown) => gatedParams(gate, mutate(before));
  }
  const tools = (params as Wire | undefined)?.['tools'] as Wire[] | undefined;
  return tools === undefined ? params : { ...(params as Wire), tools: tools.map((tool) => gatedTool(gate, tool)) };
}

/** What a runner's tools are called in the model's answers. */
function namesOf(tools: readonly Wire[]): string[] {
  return tools.flatMap((tool) => {
    if (typeof tool['run'] !== 'function') return [];
    if ('input_schema' in tool) return [String(tool['name'])];
    return [String(tool['type']).replace(/_(toolset_)?[0-9]+$/, ''), String(tool['name'] ?? '')].map((name) => `toolset:${name}`);
  });
}

export const anthropic: Hook = {
  framework: '@anthropic-ai/sdk',
  supported: [[1, 12], [2]],
  async hook(runtime, patches, load): Promise<Seams> {
    const { gate } = runtime;
    for (const module of await load()) {
      const client = (module['BaseAnthropic'] ?? module['Anthropic']) as Owner;
      hookFetch(runtime, patches, client, dialectOf);
    }
    const taking = (original: Method): Method =>
      function (this: unknown, params: unknown, ...rest: unknown[]) {
        return original.call(this, gatedParams(gate, params), ...rest) as unknown;
      };
    for (const [path, name] of [
      ['./resources/beta/messages/messages', 'Messages'],
      ['./lib/threads/BetaMessageThread', 'BetaMessageThread'],
    ] as const) {
      for (const module of await load(path)) patches.replace((module[name] as Owner)['prototype'] as Owner, 'toolRunner', taking);
    }
    for (const module of await load('./lib/tools/BetaToolRunner')) {
      const runner = (module['BetaToolRunner'] as Owner)['prototype'] as Owner;
      const added = new WeakMap<object, Set<string>>(); // what a runner's tools are called, those that come later included
      const namesIn = (owner: object): Set<string> => {
        const known = added.get(owner) ?? new Set();
        added.set(owner, known);
        return known;
      };
      patches.replace(runner, 'setMessagesParams', (original) => {
        return function (this: Owner, params: unknown, ...rest: unknown[]) {
          original.call(this, gatedParams(gate, params), ...rest);
          for (const name of namesOf(((this['params'] as Wire)['tools'] ?? []) as Wire[])) namesIn(this).add(name);
        };
      });
      patches.replace(runner, 'addTools', (original) => {
        return function (this: Owner, ...tools: Wire[]) {
          const gated = tools.map((tool) => gatedTool(gate, tool));
          for (const name of namesOf(gated)) namesIn(this).add(name);
          return original.apply(this, gated) as unknown;
        };
      });
      // The context of the runner tells the client which calls are decided where the runner runs them.
      patches.replace(runner, Symbol.asyncIterator, (original) => {
        return function (this: Owner) {
          const tools = ((this['params'] as Wire)['tools'] ?? []) as Wire[];
          const deferred = namesIn(this);
          for (const name of [...(currentScope().deferred ?? []), ...namesOf(tools)]) deferred.add(name);
          const source = { [Symbol.asyncIterator]: () => original.call(this) as AsyncIterator<unknown> };
          return itemsIn({ ...currentScope(), deferred }, source);
        };
      });
    }
    for (const module of await load('./lib/tools/SessionToolRunner')) {
      patches.bar((module['SessionToolRunner'] as Owner)['prototype'] as Owner, Symbol.asyncIterator, 'SessionToolRunner');
    }
    return {
      seams: ['Anthropic.fetchWithTimeout', 'BetaToolRunner'],
      barred: ['SessionToolRunner', "streams over Bedrock's event-stream encoding"],
      uncovered: [
        'results of message batches',
        "tool calls read by hand from the events of managed sessions, or out of a tool runner's message",
      ],
    };
  },
};

/** Hook the installed `@anthropic-ai/sdk` package with the gateway of this process. */
export function hook(): Promise<Hooked[]> {
  return requireHook(anthropic);
}
