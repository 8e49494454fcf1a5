/**
 * The OpenAI Agents SDK (`@openai/agents`): function tools, those of MCP servers, agents as tools.
 *
 * A tool is decided where it is invoked, with the text of the model's arguments; what its schema makes of them (defaults)
 * comes after. Its models just ask for the calls. Shells, patches and computers are decided in the model's answer.
 */

import { currentScope, deferring, itemsIn } from './context';
import { readArguments, type Wire } from './dialects/model';
import { shownTo } from './fitted';
import type { ToolGate } from './gate';
import { applyHook, type Hook, type Hooked, requireHook, type Seams } from './hooks';
import { canonical } from './json';
import type { Method, Owner, Patches } from './patches';

const shared = globalThis as unknown as Record<symbol, Set<string> | undefined>;
// What the agents' tools are called whose calls are decided where they run.
const names = (shared[Symbol.for('aegis-guard/agents/names')] ??= new Set<string>());

function invoking(gate: ToolGate, tool: Owner): (original: Method) => Method {
  return (original) =>
    async function (this: unknown, context: unknown, input: string, details: Owner | undefined, ...rest: unknown[]) {
      const call = details?.['toolCall'] as Wire | undefined;
      const callId = String(call?.['callId'] ?? call?.['id'] ?? '');
      const read = (): unknown => {
        const { arguments: args, problem } = readArguments(String(tool['name']), input);
        if (args === undefined) throw new TypeError(problem);
        return args;
      };
      const asked = JSON.stringify(safely(read));
      const ran = await gate.call(
        { tool: String(tool['name']), callId, arguments: read },
        (allowed) => {
          // The very text is handed on where it says what may run, so that what was prepared of it still counts.
          const same = asked !== undefined && canonical(JSON.parse(asked)) === canonical(allowed);
          return original.call(this, context, same ? input : canonical(allowed), details, ...rest) as unknown;
        },
        shownTo,
      );
      return ran.told;
    };
}

function safely(read: () => unknown): unknown {
  try {
    return read();
  } catch {
    return undefined;
  }
}

export const agents: Hook = {
  framework: '@openai/agents-core',
  via: ['@openai/agents'],
  supported: [[0, 20], [0, 21]],
  async hook({ gate }, patches, load): Promise<Seams> {
    const done = new WeakSet<object>();
    const guard = (tool: Owner): void => {
      if (tool['type'] !== 'function' || done.has(tool)) return;
      done.add(tool);
      patches.replace(tool, 'invoke', invoking(gate, tool));
      names.add(String(tool['name']));
    };
    for (const module of await load()) {
      patches.replace((module['Agent'] as Owner)['prototype'] as Owner, 'getAllTools', (original) => {
        return async function (this: unknown, ...args: unknown[]) {
          const tools = (await original.call(this, ...args)) as Owner[];
          if (patches.active) tools.forEach(guard);
          return tools;
        };
      });
    }
    patches.onUndo(() => names.clear());
    return {
      seams: ['Agent.getAllTools', 'function tools'],
      uncovered: [
        'what a schema makes of the arguments after the decision (defaults, transforms)',
        'tools that OpenAI hosts',
        'handoffs and tools of realtime sessions',
      ],
    };
  },
};

/** The models of the SDK, whose answers ask for calls that are decided where the tools run. */
export const agentsModels: Hook = {
  framework: '@openai/agents-openai',
  via: ['@openai/agents'],
  supported: [[0, 20], [0, 21]],
  async hook(_runtime, patches, load): Promise<Seams> {
    for (const module of await load()) {
      for (const name of ['OpenAIChatCompletionsModel', 'OpenAIResponsesModel'] as const) {
        hookModel((module[name] as Owner)['prototype'] as Owner, patches);
      }
    }
    return { seams: ['Model.getResponse', 'Model.getStreamedResponse'] };
  },
};

function hookModel(model: Owner, patches: Patches): void {
  const asked = (request: Wire | undefined): string[] => {
    const tools = (request?.['tools'] ?? []) as Wire[];
    return tools.flatMap((tool) => (tool['type'] === 'function' && names.has(String(tool['name'])) ? [String(tool['name'])] : []));
  };
  patches.replace(model, 'getResponse', (original) => {
    return function (this: unknown, request: Wire, ...rest: unknown[]) {
      return deferring(asked(request), () => original.call(this, request, ...rest) as unknown);
    };
  });
  patches.replace(model, 'getStreamedResponse', (original) => {
    return function (this: unknown, request: Wire, ...rest: unknown[]) {
      const deferred = new Set([...(currentScope().deferred ?? []), ...asked(request)]);
      const source = { [Symbol.asyncIterator]: () => original.call(this, request, ...rest) as AsyncIterator<unknown> };
      return itemsIn({ ...currentScope(), deferred }, source);
    };
  });
}

/** Hook the installed packages of the OpenAI Agents SDK with the gateway of this process. */
export async function hook(): Promise<Hooked[]> {
  return [...(await requireHook(agents)), ...(await applyHook(agentsModels))];
}
