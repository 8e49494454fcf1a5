/**
 * The MCP SDK in both its major versions: every call that a client sends, and every call that a server of this process is
 * about to handle.
 *
 * What a client reads is decided like a tool's call: a resource as `read_resource`, a prompt as `get_prompt`. A server's
 * name is its own word, so calls carry no server: what restricts a tool everywhere holds, and what is loosened for one
 * server does not.
 */

import type { Ran, ToolGate } from './gate';
import { applyHook, type Hook, type Hooked, requireHook, type Seams } from './hooks';
import { isObject, jsonable } from './json';
import type { Method, Owner, Patches } from './patches';

type Wire = Record<string, unknown>;

const CALL = 'tools/call';
// The names that reading has, and the members of a request that are its arguments.
const READS: ReadonlyMap<string, readonly [string, readonly string[]]> = new Map([
  ['resources/read', ['read_resource', ['uri']]],
  ['prompts/get', ['get_prompt', ['name', 'arguments']]],
]);
const HANDLER = Symbol('aegis-guard/handler');

/** What is judged of a result: its text where it is nothing else, otherwise all of its content. */
function view(result: unknown): unknown {
  if (!isObject(result) || !('content' in result)) return jsonable(result);
  const content = Array.isArray(result['content']) ? (result['content'] as unknown[]) : [];
  const structured: unknown = result['structuredContent'];
  const only = content.length === 1 ? content[0] : undefined;
  if (isObject(only) && only['type'] === 'text' && typeof only['text'] === 'string') {
    const alone = structured === undefined || (isObject(structured) && Object.keys(structured).length === 1 && structured['result'] === only['text']);
    if (alone) return only['text'];
  }
  return structured === undefined ? content : { content, structuredContent: structured };
}

/** The result that is given on: what the tool gave, or what stands in its place. */
function resultOf(ran: Ran): unknown {
  if (!ran.replaced) return ran.result;
  if (ran.failed) return { content: [{ type: 'text', text: ran.text }], isError: true };
  const given: Wire = isObject(ran.result) ? ran.result : {};
  const { content: _, structuredContent: structured, ...kept } = given;
  if (Array.isArray(ran.seen)) return { ...kept, content: ran.seen };
  if (isObject(ran.seen) && 'content' in ran.seen && 'structuredContent' in ran.seen) return { ...kept, ...ran.seen };
  const text = { content: [{ type: 'text', text: ran.text }] };
  return structured === undefined ? { ...kept, ...text } : { ...kept, ...text, structuredContent: { result: ran.text } };
}

/** Decide a call of a tool around `send`, which sends or handles it with the arguments that may run. */
async function called(gate: ToolGate, params: Wire, send: (params: Wire) => unknown): Promise<unknown> {
  // The protocol's own ids count requests and stand for nothing.
  const execution = { tool: String(params['name']), callId: '', arguments: () => params['arguments'] ?? {} };
  return resultOf(await gate.call(execution, (allowed) => send({ ...params, arguments: allowed }), view));
}

/** Decide what a client reads; throws where that may not be seen. */
async function read(gate: ToolGate, method: string, params: Wire, send: () => unknown): Promise<unknown> {
  const [tool, members] = READS.get(method) as readonly [string, readonly string[]];
  const args = Object.fromEntries(members.filter((name) => params[name] !== undefined).map((name) => [name, params[name]]));
  const body = (allowed: Wire): unknown => {
    if (JSON.stringify(jsonable(allowed)) !== JSON.stringify(sorted(args))) {
      throw new Error(`\`${tool}\` was not run: it cannot be asked for anything else`);
    }
    return send();
  };
  const ran = await gate.call({ tool, callId: '', arguments: () => args }, body, (result) => jsonable(result));
  if (ran.failed) throw new Error(ran.text);
  return ran.told;
}

/** A value with its members in the order of their names, as what was decided has them. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}

/** Decide what a client sends, at the method that all its requests go through; `at` is the place of the request in it. */
function sending(gate: ToolGate, at: number): (original: Method) => Method {
  return (original) =>
    function (this: unknown, ...args: unknown[]) {
      const request = args[at] as Wire | undefined;
      const method = String(request?.['method']);
      const params: Wire = isObject(request?.['params']) ? (request['params'] as Wire) : {};
      const send = (changed?: Wire): unknown => {
        const given = [...args];
        if (changed !== undefined) given[at] = { ...request, params: changed };
        return original.apply(this, given) as unknown;
      };
      if (method === CALL) return called(gate, params, send);
      return READS.has(method) ? read(gate, method, params, () => send()) : send();
    };
}

/** Decide what a server is about to handle: its handler is replaced by one that asks first. */
function handling(gate: ToolGate, patches: Patches): (original: Method) => Method {
  return (original) =>
    function (this: Owner, ...args: unknown[]) {
      const handlers = this['_requestHandlers'] as Map<string, Method & { [HANDLER]?: Method }> | undefined;
      const current = handlers?.get(CALL);
      if (handlers !== undefined && current !== undefined) {
        const handler = current[HANDLER] ?? current;
        const gated: Method & { [HANDLER]?: Method } = (request: Wire, ...rest: unknown[]) => {
          if (!patches.active) return handler(request, ...rest) as unknown;
          const params: Wire = isObject(request['params']) ? request['params'] : {};
          return called(gate, params, (changed) => handler({ ...request, params: changed }, ...rest) as unknown);
        };
        gated[HANDLER] = handler;
        handlers.set(CALL, gated);
      }
      return original.apply(this, args) as unknown;
    };
}

/** The prototype that has a method of a class's instances. */
function holder(owner: unknown, name: string): Owner {
  for (let one = (owner as Owner | undefined)?.['prototype'] as Owner | null; one; one = Object.getPrototypeOf(one) as Owner | null) {
    if (Object.hasOwn(one, name)) return one;
  }
  throw new TypeError(`\`${name}\` is not where it was expected`);
}

const CLIENT_SEAMS = ['tools/call of a client', 'resources/read', 'prompts/get'];
const SERVER_SEAMS = ['the tools/call handler of a server'];
const UNCOVERED = ['tools that the process of a server runs past the protocol'];

/** The first major version: clients and servers in one package. */
export const mcp: Hook = {
  framework: '@modelcontextprotocol/sdk',
  supported: [[1, 32], [2]],
  async hook({ gate }, patches, load): Promise<Seams> {
    for (const module of await load('./client/index.js')) patches.replace(holder(module['Client'], 'request'), 'request', sending(gate, 0));
    for (const module of await load('./server/index.js')) {
      patches.replace(holder(module['Server'], '_onrequest'), '_onrequest', handling(gate, patches));
    }
    return {
      seams: [...CLIENT_SEAMS, ...SERVER_SEAMS],
      uncovered: [...UNCOVERED, 'calls that a client streams as tasks (`experimental.tasks`)'],
    };
  },
};

/** The second major version's clients. */
export const mcpClient: Hook = {
  framework: '@modelcontextprotocol/client',
  supported: [[2, 4], [3]],
  async hook({ gate }, patches, load): Promise<Seams> {
    for (const module of await load()) {
      patches.replace(holder(module['Client'], '_requestWithSchemaViaCodec'), '_requestWithSchemaViaCodec', sending(gate, 1));
    }
    return { seams: CLIENT_SEAMS };
  },
};

/** The second major version's servers. */
export const mcpServer: Hook = {
  framework: '@modelcontextprotocol/server',
  supported: [[2, 4], [3]],
  async hook({ gate }, patches, load): Promise<Seams> {
    for (const module of await load()) {
      patches.replace(holder(module['Server'], '_onrequest'), '_onrequest', handling(gate, patches));
    }
    return { seams: SERVER_SEAMS, uncovered: UNCOVERED };
  },
};

/** Hook the installed packages of the MCP SDK with the gateway of this process. */
export async function hook(): Promise<Hooked[]> {
  const done = [...(await applyHook(mcp)), ...(await applyHook(mcpClient)), ...(await applyHook(mcpServer))];
  return done.length > 0 ? done : requireHook(mcpClient);
}
