/**
 * The Claude Agent SDK: callbacks around every tool that its program executes.
 *
 * The SDK drives a program that executes the tools; the callbacks are put in beside those of the host, and what the host's
 * own callbacks make of the arguments is decided again. A program on which a callback fails does not run the tool. A result
 * that the program does not let be replaced ends the run before the next request.
 */

import { UnhookedFramework } from './errors';
import type { Enforced } from './enforcer';
import type { Execution, Ran } from './gate';
import { Bounded } from './bounded';
import { type Hook, type Hooked, requireHook, type Seams, standingIn, standsIn } from './hooks';
import { canonical, isObject, jsonable } from './json';
import type { Method, Owner } from './patches';
import { currentRuntime } from './runtime';

type Wire = Record<string, unknown>;

const MAX_CALLS = 10_000; // calls of one conversation that are remembered
const TIMEOUT_S = 86_400; // a held call waits for a person
const WITHHELD = 'the result was withheld: it could not be checked';
const FAILED = 'the call was not run: it could not be decided';

/** Set by `aegis-guard/register` once the functions of the package are guarded. */
export const REGISTERED = Symbol.for('aegis-guard/claude/registered');

/** A tool's own name, and its server: the program puts the server of an MCP tool in front. */
function named(tool: string): [string, string | undefined] {
  const found = /^mcp__(.+?)__(.+)$/s.exec(tool);
  return found?.[1] === undefined ? [tool, undefined] : [found[2] as string, `mcp:${found[1]}`];
}

/** The callbacks of one conversation. */
class Callbacks {
  private readonly gate = currentRuntime().gate;
  // What may run of each call, by its id and arguments.
  private readonly allowed = new Bounded<readonly [Execution, Enforced]>(MAX_CALLS);
  // The calls of which something must not reach the model, and what stands in its place.
  private readonly changed = new Bounded<string>(MAX_CALLS);

  /** `PreToolUse`: a call that may run is left to the host's own permissions. */
  readonly before = async (event: Wire): Promise<Wire> => {
    try {
      const outcome = await this.decided(event, event['tool_input']);
      if (typeof outcome === 'string') return denied(outcome);
      return outcome.changed ? specific('PreToolUse', { updatedInput: outcome.arguments() }) : {};
    } catch (error) {
      this.gate.enforcer.log(`a hook refused a call because it failed: ${error instanceof Error ? error.name : typeof error}`);
      return denied(FAILED);
    }
  };

  /** `PostToolUse` and `PostToolUseFailure`: what the model may see of the result. */
  readonly after = async (event: Wire): Promise<Wire> => {
    const failed = event['hook_event_name'] === 'PostToolUseFailure';
    const id = String(event['tool_use_id']);
    const result = failed ? event['error'] : event['tool_response'];
    let seen: unknown = WITHHELD;
    try {
      const ran = await this.judged(event, result);
      if (ran !== undefined && !ran.replaced) return {};
      if (ran !== undefined) seen = ran.withheld ? ran.text : ran.seen;
    } catch (error) {
      this.gate.enforcer.log(`a hook withheld a result because it failed: ${error instanceof Error ? error.name : typeof error}`);
    }
    if (failed) {
      this.changed.put(id, String(seen)); // cannot be replaced: the run ends when the turn's results are shown
      return {};
    }
    const mcp = named(String(event['tool_name']))[1] !== undefined;
    const told = mcp && !Array.isArray(seen) ? [{ type: 'text', text: typeof seen === 'string' ? seen : JSON.stringify(seen) }] : seen;
    return specific('PostToolUse', { updatedToolOutput: typeof seen === 'string' && !mcp ? filled(result, seen) : told });
  };

  /** `PostToolBatch`: the run ends if the model is about to see what it must not. */
  readonly shown = async (event: Wire): Promise<Wire> => {
    const calls = Array.isArray(event['tool_calls']) ? (event['tool_calls'] as Wire[]) : [];
    for (const call of calls) {
      const notice = this.changed.get(String(call['tool_use_id']));
      if (notice !== undefined) return Promise.resolve({ continue: false, stopReason: notice });
    }
    return Promise.resolve({});
  };

  /** A callback of the host: arguments that it changes are decided like those of the model. */
  wrapped(callback: Method): Method {
    return async (event: Wire, ...rest: unknown[]) => {
      const output = (await callback(event, ...rest)) as Wire | undefined;
      const told = output?.['hookSpecificOutput'];
      if (!isObject(told) || told['updatedInput'] === undefined) return output;
      const outcome = await this.decided(event, told['updatedInput']);
      if (typeof outcome === 'string') return denied(outcome);
      return { ...output, hookSpecificOutput: { ...told, updatedInput: outcome.arguments() } };
    };
  }

  private async decided(event: Wire, input: unknown): Promise<Enforced | string> {
    const id = String(event['tool_use_id'] ?? '');
    const [tool, server] = named(String(event['tool_name']));
    const known = this.find(id, input);
    if (known !== undefined) return known[1];
    const execution: Execution = { tool, server, callId: id, arguments: () => input ?? {} };
    const outcome = await this.gate.before(execution);
    if (typeof outcome !== 'string') this.allowed.put(`${id}\0${outcome.body}`, [execution, outcome]);
    return outcome;
  }

  /** The judgement of a result; nothing where other arguments ran than were decided. */
  private async judged(event: Wire, result: unknown): Promise<Ran | undefined> {
    const found = this.find(String(event['tool_use_id'] ?? ''), event['tool_input']);
    if (found === undefined) {
      this.gate.enforcer.uncovered(named(String(event['tool_name']))[0]);
      return undefined;
    }
    return this.gate.judged(found[0], found[1], result, textOf);
  }

  private find(id: string, input: unknown): readonly [Execution, Enforced] | undefined {
    return this.allowed.get(`${id}\0${canonical(jsonable(input ?? {}))}`);
  }
}

/** What of a result is judged: the text of one that is nothing else. */
function textOf(result: unknown): unknown {
  const only: unknown = Array.isArray(result) && result.length === 1 ? result[0] : undefined;
  return isObject(only) && only['type'] === 'text' ? only['text'] : jsonable(result);
}

/** A value of the same form that says nothing but the notice: the program takes no other for its own tools. */
function filled(value: unknown, notice: string): unknown {
  if (typeof value === 'string') return notice;
  if (Array.isArray(value)) return [];
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, filled(one, notice)]));
}

function specific(hookEventName: string, members: Wire): Wire {
  return { hookSpecificOutput: { hookEventName, ...members } };
}

function denied(reason: string): Wire {
  return specific('PreToolUse', { permissionDecision: 'deny', permissionDecisionReason: reason });
}

/** The options of a query with the callbacks of Aegis beside those of the host. */
export function guardOptions<T extends object>(options: T | undefined): T {
  const callbacks = new Callbacks();
  const given = ((options as Wire | undefined)?.['hooks'] ?? {}) as Record<string, Wire[]>;
  const own = (callback: unknown): Wire => ({ hooks: [callback], timeout: TIMEOUT_S, onFailure: 'block' });
  const before = (given['PreToolUse'] ?? []).map((matcher) => ({
    ...matcher,
    hooks: (matcher['hooks'] as Method[]).map((callback) => callbacks.wrapped(callback)),
  }));
  const hooks = {
    ...given,
    PreToolUse: [...before, own(callbacks.before)],
    PostToolUse: [...(given['PostToolUse'] ?? []), own(callbacks.after)],
    PostToolUseFailure: [...(given['PostToolUseFailure'] ?? []), own(callbacks.after)],
    PostToolBatch: [...(given['PostToolBatch'] ?? []), own(callbacks.shown)],
  };
  return { ...options, hooks } as T;
}

/** The functions of the package with their options guarded, while the hook is on. */
export function wrapped(original: Owner, isOn: () => boolean = () => true): Owner {
  const query = original['query'] as Method | undefined;
  if (typeof query !== 'function') throw new UnhookedFramework('`@anthropic-ai/claude-agent-sdk` has no `query`');
  const refused = (name: string): Method => (...args: unknown[]) => {
    if (isOn()) throw new UnhookedFramework(`\`${name}\` is refused while Aegis is hooked; use \`query\``);
    return (original[name] as Method)(...args) as unknown;
  };
  return standingIn({
    query: (given: Wire) => query(isOn() ? { ...given, options: guardOptions(given['options'] as Wire | undefined) } : given) as unknown,
    ...Object.fromEntries(BARRED.filter((name) => name in original).map((name) => [name, refused(name)])),
  });
}

/** Other ways to start the program, whose options are not those of a query. */
export const BARRED = ['startup', 'prewarm'];

export const claude: Hook = {
  framework: '@anthropic-ai/claude-agent-sdk',
  supported: [[0, 3, 330], [0, 4]],
  async hook(_runtime, patches, load): Promise<Seams> {
    const registered = (globalThis as unknown as Record<symbol, { on: boolean } | undefined>)[REGISTERED];
    if (registered === undefined || !(await load()).every((module) => standsIn(module, ['query', ...BARRED]))) {
      throw new UnhookedFramework(
        '`@anthropic-ai/claude-agent-sdk` hands out functions that cannot be replaced after they were loaded; start the' +
          ' program with `node --import aegis-guard/register`, or give the options of a query through `guardOptions` of' +
          " `aegis-guard/claude` and hook the rest with `onUnhooked: 'warn'`",
      );
    }
    registered.on = true;
    patches.onUndo(() => {
      registered.on = false;
    });
    return {
      seams: ['PreToolUse', 'PostToolUse', 'PostToolUseFailure', 'PostToolBatch'],
      barred: BARRED,
      uncovered: [
        'programs that ask no hooks (`--bare`, `CLAUDE_CODE_SIMPLE`)',
        'arguments that `canUseTool` or hooks in settings files change, until the call has run: its result is withheld',
      ],
    };
  },
};

/** Hook the installed package; its functions have to be guarded by `aegis-guard/register` first. */
export function hook(): Promise<Hooked[]> {
  return requireHook(claude);
}
