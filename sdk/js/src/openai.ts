/**
 * The `openai` package: chat completions and responses, whole and streamed, by hand and with `runTools`.
 *
 * What a program runs itself is decided in the model's answer: refused calls are taken out of it, and go back to the model
 * with their refusals in the next request. What `runTools` runs is decided where its function is called.
 */

import { deferring } from './context';
import { ChatDialect } from './dialects/chat';
import type { Dialect, Wire } from './dialects/model';
import { readArguments } from './dialects/model';
import { ResponsesDialect } from './dialects/responses';
import { UnhookedFramework } from './errors';
import { fitted } from './fitted';
import type { Ran, ToolGate } from './gate';
import { type Hook, type Hooked, requireHook, type Seams } from './hooks';
import { canonical, stringify } from './json';
import type { Method, Owner, Patches } from './patches';
import type { Runtime } from './runtime';
import { throughTurn } from './turn';

const CHAT = new ChatDialect();
const RESPONSES = new ResponsesDialect();

/** The dialect that a request path speaks; throws for one that proposes calls and is not covered. */
export function dialectOf(path: string): Dialect | undefined {
  const parts = path.split('/');
  if (parts.includes('threads')) {
    throw new UnhookedFramework('runs of the Assistants API are not covered; use chat completions or responses');
  }
  if (parts.includes('responses')) return RESPONSES;
  return parts.includes('completions') && parts.includes('chat') ? CHAT : undefined;
}

/** Send every request of a client class through a turn. */
export function hookFetch(runtime: Runtime, patches: Patches, client: Owner | undefined, dialects: typeof dialectOf): void {
  patches.replace(client?.['prototype'] as Owner, 'fetchWithTimeout', (original) => {
    return async function (this: unknown, url: unknown, init: unknown, ...rest: unknown[]) {
      const { enforcer, memory } = runtime;
      const send = (sent: unknown): Promise<Response> => original.call(this, url, sent, ...rest) as Promise<Response>;
      return throughTurn(enforcer, memory, dialects, url, init as Record<string, unknown>, send);
    };
  });
}

/** What of the calls of an assistant's message was begun, so that two with the same arguments are told apart. */
const begun = new WeakSet<object>();

function runningTools(gate: ToolGate, original: Method): Method {
  return function (this: Owner, client: unknown, params: Wire, runner: Owner, options: unknown) {
    const tools = (params['tools'] as Wire[]).map((tool) => gatedTool(gate, tool, this));
    const names = tools.flatMap((tool) => (tool['type'] === 'function' ? [functionName(tool)] : []));
    return deferring(names, () => original.call(this, client, { ...params, tools }, runner, options) as unknown);
  };
}

function functionName(tool: Wire): string {
  const made = tool['function'] as Wire;
  return String(made['name'] || (made['function'] as { name?: string } | undefined)?.name || '');
}

/** A tool of a runner whose function is decided where it is called. */
function gatedTool(gate: ToolGate, tool: Wire, runner: Owner): Wire {
  if (tool['type'] !== 'function') return tool;
  const parsable = tool['$brand'] === 'auto-parseable-tool';
  const made = tool['function'] as Wire;
  const body = (parsable ? tool['$callback'] : made['function']) as Method | undefined;
  const parse = (parsable ? tool['$parseRaw'] : made['parse']) as Method | undefined;
  if (typeof body !== 'function') return tool;
  const name = functionName(tool);
  const gated = {
    ...made,
    name,
    ...(parsable ? { description: (made['description'] as string | undefined) ?? '', strict: true } : {}),
    // Which call it is, is known where its text is parsed alone.
    parse: async (text: string) => {
      const callId = claimed(runner, name, text);
      return { callId, text, value: parse === undefined ? text : ((await parse.call(made, text)) as unknown) };
    },
    function: async (given: { callId: string; text: string; value: unknown }, ...rest: unknown[]) => {
      const { callId, text, value } = given;
      const read = (): unknown => {
        if (parse !== undefined) return value;
        const { arguments: args, problem } = readArguments(name, text);
        if (args === undefined) throw new TypeError(problem);
        return args;
      };
      const ran: Ran = await gate.call(
        { tool: name, callId, arguments: read },
        (allowed) =>
          body.call(made, parse === undefined ? canonical(allowed) : fitted(value, allowed, (args) => parse.call(made, canonical(args)) as unknown), ...rest) as unknown,
        shown,
      );
      return ran.told;
    },
  };
  return { type: 'function', function: gated };
}

/** What the runner makes of a function's result for the model. */
function shown(result: unknown): string {
  return typeof result === 'string' ? result : result === undefined ? 'undefined' : stringify(result);
}

/** The id of the call in the last message of a runner that has this name and text, and was not begun yet. */
function claimed(runner: Owner, name: string, text: string): string {
  const messages = (runner['messages'] ?? []) as Wire[];
  const last = messages.findLast((message) => message['role'] === 'assistant');
  for (const call of (last?.['tool_calls'] ?? []) as Wire[]) {
    const made = call['function'] as Wire | undefined;
    if (made?.['name'] === name && made['arguments'] === text && !begun.has(call)) {
      begun.add(call);
      return String(call['id'] ?? '');
    }
  }
  return '';
}

export const openai: Hook = {
  framework: 'openai',
  supported: [[6, 49], [8]],
  async hook(runtime, patches, load): Promise<Seams> {
    for (const module of await load()) hookFetch(runtime, patches, module['OpenAI'] as Owner, dialectOf);
    for (const module of await load('./lib/AbstractChatCompletionRunner')) {
      const runner = (module['AbstractChatCompletionRunner'] as Owner)['prototype'] as Owner;
      patches.replace(runner, '_runTools', (original) => runningTools(runtime.gate, original));
    }
    return {
      seams: ['OpenAI.fetchWithTimeout', 'runTools'],
      barred: ['beta.threads'],
      uncovered: [
        'realtime and responses sockets',
        'results of batches',
        'stored completions and items of conversations that are read again',
      ],
    };
  },
};

/** Hook the installed `openai` package with the gateway of this process. */
export function hook(): Promise<Hooked[]> {
  return requireHook(openai);
}
