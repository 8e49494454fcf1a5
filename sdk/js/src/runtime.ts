/** What `auto`, `protect` and the hooks share: the decider of this process and what is hooked to it. */

import { Client } from './client';
import { InvalidCall } from './errors';
import { Enforcer, ON_APPROVAL, type OnApproval } from './enforcer';
import { ToolGate } from './gate';
import { Memory } from './memory';
import type { Decider } from './values';

/** Where decisions come from; what is not given is taken from the environment. */
export interface RuntimeOptions {
  /** The gateway (or `AEGIS_URL`, by default `http://127.0.0.1:8787`). */
  readonly url?: string | undefined;
  /** The agent's key for the gateway (or `AEGIS_API_KEY`). */
  readonly apiKey?: string | undefined;
  /** The agent's name (or `AEGIS_AGENT`). */
  readonly agent?: string | undefined;
  readonly home?: string | undefined;
  /** The file of the certificates that may sign the gateway's, and the user that must hold its Unix socket. */
  readonly ca?: string | undefined;
  readonly gatewayUid?: number | undefined;
  /** Seconds that one exchange may take. */
  readonly timeout?: number | undefined;
  /**
   * (or `AEGIS_ON_APPROVAL`) `wait`, the default, lets a held call wait for its approval, `block` refuses it at once,
   * `defer` refuses it until the same call is made again after its approval.
   */
  readonly onApproval?: OnApproval | undefined;
  /** Seconds that a held call waits at most; by default as long as its approval. */
  readonly approvalTimeout?: number | undefined;
  /** Told the tool and the session of a body that ran without a decision. */
  readonly onUncovered?: ((tool: string, session: string | undefined) => void) | undefined;
  /** In place of a gateway: for tests. */
  readonly decider?: Decider | undefined;
}

/** One opened decider. */
export interface Runtime {
  readonly client: Decider;
  readonly enforcer: Enforcer;
  readonly memory: Memory;
  readonly gate: ToolGate;
  readonly gateway: string;
  readonly authenticated: boolean | undefined;
}

// Both module systems of one process, and copies of this package in it, share one runtime.
const SHARED = Symbol.for('aegis-guard/runtime/1');
const shared = globalThis as unknown as Record<symbol, Runtime | undefined>;

/** A runtime with nothing hooked yet; throws what making the client throws. */
export function openRuntime(options: RuntimeOptions = {}): Runtime {
  const env = process.env;
  const url = options.url ?? (env['AEGIS_URL'] || 'http://127.0.0.1:8787');
  const agent = options.agent ?? (env['AEGIS_AGENT'] || undefined);
  const onApproval = options.onApproval ?? (env['AEGIS_ON_APPROVAL'] || 'wait');
  if (!ON_APPROVAL.includes(onApproval as OnApproval)) {
    throw new InvalidCall(`\`onApproval\` is one of ${ON_APPROVAL.map((word) => `\`${word}\``).join(', ')}`);
  }
  const client =
    options.decider ??
    new Client(url, {
      apiKey: options.apiKey ?? env['AEGIS_API_KEY'],
      agent,
      home: options.home,
      ca: options.ca,
      gatewayUid: options.gatewayUid,
      timeout: options.timeout,
    });
  const enforcer = new Enforcer(client, {
    agent,
    onApproval: onApproval as OnApproval,
    approvalTimeout: options.approvalTimeout,
    onUncovered: options.onUncovered,
  });
  const memory = new Memory();
  const authenticated = client instanceof Client ? client.authenticated : undefined;
  return { client, enforcer, memory, gate: new ToolGate(enforcer, memory), gateway: url, authenticated };
}

/** Make a runtime the process's own; the one before is closed. */
export function replaceRuntime(runtime: Runtime | undefined): void {
  const before = shared[SHARED];
  shared[SHARED] = runtime;
  if (before !== runtime) before?.client.close();
}

/** The process's runtime; where none was opened, one is from the environment. */
export function currentRuntime(): Runtime {
  return (shared[SHARED] ??= openRuntime());
}

/** Use this gateway for `protect`, sessions and hooks from here on, in place of what the environment says. */
export function configure(options: RuntimeOptions): void {
  replaceRuntime(openRuntime(options));
}
