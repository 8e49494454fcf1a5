/**
 * LangChain.js and LangGraph.js: every tool, whoever invokes it, is decided where its body is called.
 *
 * The models inside a graph just ask for the calls of its tool nodes, which are decided there.
 */

import { currentScope, itemsIn } from './context';
import { fitted, shownTo } from './fitted';
import { ToolGate, witness } from './gate';
import { type Hook, type Hooked, applyHook, requireHook, type Seams } from './hooks';
import { isObject } from './json';
import type { Method, Owner } from './patches';

/** An error by which a body stops without failing: interrupts, and commands that go up to a parent graph. */
function isPause(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return (error as { is_bubble_up?: unknown }).is_bubble_up === true || ['GraphInterrupt', 'NodeInterrupt', 'ParentCommand'].includes(error.name);
}

/** The body of a tool, decided: called on a stand-in of the tool whose `_call` asks first. */
function deciding(gate: ToolGate): (original: Method) => Method {
  return (original) =>
    function (this: Owner, ...args: unknown[]) {
      const tool = this;
      const asks = async (parsed: unknown, manager: unknown, config: Owner | undefined): Promise<unknown> => {
        // Tools of one text have it as their `input`.
        const bare = !isObject(parsed);
        const given = bare ? { input: parsed ?? '' } : parsed;
        const call = config?.['toolCall'] as { id?: unknown } | undefined;
        const artifact = tool['responseFormat'] === 'content_and_artifact';
        const ran = await gate.call(
          { tool: String(tool['name']), callId: typeof call?.id === 'string' ? call.id : '', arguments: () => given },
          (allowed) => (tool['_call'] as Method)(bare ? allowed['input'] : fitted(given, allowed), manager, config) as unknown,
          (result) => shownTo(contentOf(artifact && Array.isArray(result) ? result[0] : result)),
        );
        if (!ran.replaced) return ran.result;
        return artifact ? [ran.seen, undefined] : ran.seen;
      };
      const standIn = Object.create(tool, { _call: { value: asks } }) as Owner;
      return original.apply(standIn, args) as unknown;
    };
}

/** What a model sees of a result that is a message already. */
function contentOf(result: unknown): unknown {
  return isObject(result) && result['lc_direct_tool_output'] === true && 'content' in result ? result['content'] : result;
}

/** Raise the alarm for a body that is called past its tool. */
function watching(gate: ToolGate): (original: Method) => Method {
  return (original) =>
    function (this: Owner, input: unknown, ...rest: unknown[]) {
      witness(gate.enforcer, String(this['name']), isObject(input) ? input : { input: input ?? '' });
      return original.call(this, input, ...rest) as unknown;
    };
}

/** The tools that the nodes of a graph run. */
function toolsOf(graph: Owner): string[] {
  const names: string[] = [];
  const seen = new Set<unknown>();
  const look = (value: unknown, depth: number): void => {
    if (!isObject(value) || seen.has(value) || depth > 4) return;
    seen.add(value);
    const tools: unknown = value['tools'];
    if (Array.isArray(tools)) {
      for (const tool of tools as unknown[]) if (isObject(tool) && typeof tool['name'] === 'string') names.push(tool['name']);
    }
    for (const inner of ['bound', 'first', 'last', 'middle', 'steps', 'node']) {
      const found = value[inner];
      for (const one of Array.isArray(found) ? (found as unknown[]) : [found]) look(one, depth + 1);
    }
  };
  for (const node of Object.values((graph['nodes'] ?? {}) as Owner)) look(node, 0);
  return names;
}

export const langchain: Hook = {
  framework: '@langchain/core',
  via: ['langchain', '@langchain/langgraph'],
  supported: [[1, 4], [2]],
  async hook({ enforcer, memory }, patches, load): Promise<Seams> {
    const gate = new ToolGate(enforcer, memory, isPause);
    for (const module of await load('./tools')) {
      patches.replace((module['StructuredTool'] as Owner)['prototype'] as Owner, 'call', deciding(gate));
      for (const name of ['DynamicTool', 'DynamicStructuredTool'] as const) {
        patches.replace((module[name] as Owner)['prototype'] as Owner, '_call', watching(gate));
      }
    }
    return {
      seams: ['StructuredTool.call', 'DynamicTool', 'DynamicStructuredTool'],
      uncovered: ['a function that the host calls by its own name', 'tools that a provider hosts'],
    };
  },
};

export const langgraph: Hook = {
  framework: '@langchain/langgraph',
  via: ['langchain'],
  supported: [[1, 7], [2]],
  async hook(_runtime, patches, load): Promise<Seams> {
    for (const module of await load('./pregel')) {
      patches.replace((module['Pregel'] as Owner)['prototype'] as Owner, '_streamIterator', (original) => {
        return function (this: Owner, ...args: unknown[]) {
          const deferred = new Set([...(currentScope().deferred ?? []), ...toolsOf(this)]);
          const source = { [Symbol.asyncIterator]: () => original.apply(this, args) as AsyncIterator<unknown> };
          return itemsIn({ ...currentScope(), deferred }, source);
        };
      });
    }
    return { seams: ['Pregel.stream', 'ToolNode'] };
  },
};

/** Hook the installed packages of LangChain.js and LangGraph.js with the gateway of this process. */
export async function hook(): Promise<Hooked[]> {
  return [...(await requireHook(langchain)), ...(await applyHook(langgraph))];
}
