/**
 * `aegis-guard doctor`: is the gateway there, is what is installed covered, and does a call that must not run not run?
 *
 * A canary is a call that a decider which refuses everything has to stop: fired at a hook, at the package as it is
 * installed. Where its body runs, the hook does not hold.
 */

import type { Owner } from './patches';
import { HOOKS } from './auto';
import { configure, currentRuntime } from './runtime';
import { applyHook, type Hook, rangeOf, undoHooks } from './hooks';
import { guardTools } from './ai';
import { installed, instances } from './packages';
import type { Decider, Decision, ToolCall } from './values';
import { blocked, withheld } from './wire';
import { callDigest, canonical } from './json';

/** What was found about one thing. */
export interface Finding {
  readonly what: string;
  readonly good: boolean;
  readonly text: string;
}

const CANARY = 'aegis_canary';

/** Refuses every call and every result. */
class Refusing implements Decider {
  asked = 0;

  decide(call: ToolCall): Promise<Decision> {
    this.asked += 1;
    const digest = callDigest(call.server, call.tool, canonical(call.arguments));
    return Promise.resolve(blocked({ callId: call.callId ?? '', digest }, 'policy_denied'));
  }

  observe(): Promise<ReturnType<typeof withheld>> {
    return Promise.resolve(withheld('policy_denied'));
  }

  wait(call: ToolCall): Promise<Decision> {
    return this.decide(call);
  }

  close(): void {
    this.asked = 0;
  }
}

/** Fires one call at a hooked package; says whether its body ran. */
type Canary = (load: (subpath?: string) => Promise<Owner[]>) => Promise<boolean>;

/** A `fetch` that answers with one call, and then with words. */
function answering(first: object, rest: object): (url: unknown) => Promise<Response> {
  let asked = 0;
  return () => {
    asked += 1;
    return Promise.resolve(new Response(JSON.stringify(asked === 1 ? first : rest), { headers: { 'content-type': 'application/json' } }));
  };
}

const CANARIES: Readonly<Record<string, Canary>> = {
  openai: async (load) => {
    const call = { id: 'call_canary', type: 'function', function: { name: CANARY, arguments: '{}' } };
    const answer = (message: object, reason: string): object => ({ id: 'x', choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: reason }] });
    let ran = false;
    for (const module of await load()) {
      const fetch = answering(answer({ content: null, tool_calls: [call] }, 'tool_calls'), answer({ content: 'done' }, 'stop'));
      const client = new (module['OpenAI'] as new (options: object) => Owner)({ apiKey: 'none', baseURL: 'http://localhost', fetch, maxRetries: 0 });
      const completions = (client['chat'] as Owner)['completions'] as { create(body: object): Promise<Owner> };
      const made = await completions.create({ model: 'canary', messages: [] });
      ran ||= JSON.stringify(made).includes('call_canary');
    }
    return ran;
  },
  '@anthropic-ai/sdk': async (load) => {
    const use = { type: 'tool_use', id: 'toolu_canary', name: CANARY, input: {} };
    const answer = (content: object[], reason: string): object => ({ id: 'x', type: 'message', role: 'assistant', content, stop_reason: reason });
    let ran = false;
    for (const module of await load()) {
      const fetch = answering(answer([use], 'tool_use'), answer([{ type: 'text', text: 'done' }], 'end_turn'));
      const client = new (module['Anthropic'] as new (options: object) => Owner)({ apiKey: 'none', baseURL: 'http://localhost', fetch, maxRetries: 0 });
      const made = await (client['messages'] as { create(body: object): Promise<Owner> }).create({ model: 'canary', max_tokens: 1, messages: [] });
      ran ||= JSON.stringify(made).includes('toolu_canary');
    }
    return ran;
  },
  ai: async () => {
    let ran = false;
    const tools = guardTools({ [CANARY]: { execute: () => (ran = true) } });
    await (tools[CANARY] as unknown as { execute(input: object, options: object): Promise<unknown> }).execute({}, { toolCallId: 'call_canary' });
    return ran;
  },
  '@langchain/core': async (load) => {
    let ran = false;
    for (const module of await load('./tools')) {
      const make = module['tool'] as (fn: () => unknown, fields: object) => { invoke(input: object): Promise<unknown> };
      const schema = { type: 'object', properties: {} };
      await make(() => (ran = true), { name: CANARY, description: 'canary', schema }).invoke({});
    }
    return ran;
  },
  '@openai/agents-core': async (load) => {
    let ran = false;
    for (const module of await load()) {
      const parameters = { type: 'object', properties: {}, required: [], additionalProperties: false };
      const make = module['tool'] as (options: object) => Owner;
      const made = make({ name: CANARY, description: 'canary', parameters, strict: false, execute: () => (ran = true) });
      const agent = new (module['Agent'] as new (options: object) => { getAllTools(context: unknown): Promise<Owner[]> })({ name: 'canary', tools: [made] });
      const context = new (module['RunContext'] as new () => object)();
      for (const one of await agent.getAllTools(context)) {
        await (one['invoke'] as (context: unknown, input: string, details: object) => Promise<unknown>)(context, '{}', {});
      }
    }
    return ran;
  },
  '@mastra/core': async (load) => {
    let ran = false;
    const [made] = await load('./tools');
    const context = (await load('./request-context')).map((module) => new (module['RequestContext'] as new () => object)());
    for (const [at, module] of (await load('./agent')).entries()) {
      const make = made?.['createTool'] as (options: object) => object;
      const tools = { [CANARY]: make({ id: CANARY, description: 'canary', execute: () => Promise.resolve((ran = true)) }) };
      const options = { id: 'canary', name: 'canary', instructions: 'none', model: 'openai/none', tools };
      const agent = new (module['Agent'] as new (options: object) => { convertTools(run: object): Promise<Owner> })(options);
      const prepared = await agent.convertTools({ requestContext: context[at], methodType: 'generate' });
      await (prepared[CANARY] as { execute(input: object, options: object): Promise<unknown> }).execute({}, { toolCallId: 'call_canary' });
    }
    return ran;
  },
  '@modelcontextprotocol/sdk': async (load) => canaryOfServer(await load('./server/index.js')),
  '@modelcontextprotocol/server': async (load) => canaryOfServer(await load()),
};

/** Speak to a server of MCP as a transport would. */
async function canaryOfServer(modules: readonly Owner[]): Promise<boolean> {
  let ran = false;
  for (const module of modules) {
    const server = new (module['Server'] as new (info: object, options: object) => Owner)(
      { name: 'canary', version: '1' },
      { capabilities: { tools: {} } },
    );
    (server['_requestHandlers'] as Map<string, unknown>).set('tools/call', () => {
      ran = true;
      return { content: [] };
    });
    const answered = new Promise<void>((settle) => {
      const transport = { start: () => Promise.resolve(), close: () => Promise.resolve(), send: () => (settle(), Promise.resolve()) } as Owner;
      void (server['connect'] as (transport: Owner) => Promise<void>).call(server, transport).then(() => {
        const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: CANARY, arguments: {} } };
        (transport['onmessage'] as (message: object) => void)(message);
      });
    });
    await answered;
  }
  return ran;
}

/** Everything that is to be said of the gateway and of each framework that is installed here. */
export async function examine(): Promise<Finding[]> {
  const findings = [await askGateway()];
  const decider = new Refusing();
  configure({ decider });
  try {
    for (const hook of HOOKS) findings.push(...(await examineHook(hook, decider)));
  } finally {
    undoHooks();
  }
  return findings;
}

async function askGateway(): Promise<Finding> {
  const what = 'gateway';
  try {
    const { client, gateway, authenticated } = currentRuntime();
    const decision = await client.decide({ tool: CANARY, arguments: {} });
    const proof = authenticated === true ? 'it proves that it is the gateway' : 'NOT authenticated: use https or the Unix socket';
    if (decision.reason === 'unavailable') return { what, good: false, text: `${gateway} does not answer; every call is refused` };
    return { what, good: true, text: `${gateway} decides; ${proof}` };
  } catch (error) {
    return { what, good: false, text: describedError(error) };
  }
}

async function examineHook(hook: Hook, decider: Refusing): Promise<Finding[]> {
  const copies = installed(hook.framework, hook.via);
  if (copies.length === 0) return [];
  const what = hook.framework;
  try {
    const hooked = await applyHook(hook);
    const canary = CANARIES[hook.framework];
    const text = hooked.map((one) => `${one.version} (supported ${rangeOf(hook)}): ${one.seams.join(', ')}${listed(one.uncovered)}`).join('; ');
    if (canary === undefined) return [{ what, good: true, text: `${text}; no canary` }];
    for (const copy of copies) {
      const before = decider.asked;
      const ran = await canary((subpath) => instances(copy, subpath));
      if (ran || decider.asked === before) return [{ what, good: false, text: `${copy.version}: the canary ran undecided` }];
    }
    return [{ what, good: true, text: `${text}; the canary was stopped` }];
  } catch (error) {
    return [{ what, good: false, text: describedError(error) }];
  }
}

function listed(uncovered: readonly string[]): string {
  return uncovered.length === 0 ? '' : ` (not covered: ${uncovered.join(', ')})`;
}

function describedError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
