/** One line that puts every tool call of the installed frameworks behind a decision. */

import { UnhookedFramework } from './errors';
import { agents, agentsModels } from './agents';
import { ai } from './ai';
import { anthropic } from './anthropic';
import { claude } from './claude';
import { applyHook, type Hook, type Hooked, undoHooks } from './hooks';
import { langchain, langgraph } from './langchain';
import { mastra } from './mastra';
import { mcp, mcpClient, mcpServer } from './mcp';
import { openai } from './openai';
import { currentRuntime, openRuntime, replaceRuntime, type RuntimeOptions } from './runtime';

export type { Hooked };

export interface AutoOptions extends RuntimeOptions {
  /** `error` rejects for an installed framework that cannot be covered, `warn` warns. */
  readonly onUnhooked?: 'error' | 'warn';
}

/** Every framework, in the order in which they are hooked. */
export const HOOKS: readonly Hook[] = [
  openai,
  anthropic,
  ai,
  mcp,
  mcpClient,
  mcpServer,
  langchain,
  langgraph,
  agents,
  agentsModels,
  mastra,
  claude,
];

/** What `auto` did. `authenticated` says whether the gateway proves that it is one; `unhooked` holds the warnings. */
export interface Report {
  readonly gateway: string;
  readonly authenticated: boolean | undefined;
  readonly hooked: readonly Hooked[];
  readonly unhooked: readonly string[];
  toString(): string;
}

/**
 * Hook every supported framework that is installed; from then on no call of theirs runs undecided.
 *
 * Calling it again puts new hooks in place of the old ones. Gives what was hooked, by framework and version. Rejects with
 * `UnhookedFramework` where a framework cannot be covered; nothing is hooked then.
 */
export async function auto(options: AutoOptions = {}): Promise<Report> {
  // What cannot be opened leaves the hooks that there are in force.
  const runtime = openRuntime(options);
  undoHooks();
  replaceRuntime(runtime);
  const hooked: Hooked[] = [];
  const unhooked: string[] = [];
  for (const hook of HOOKS) {
    try {
      hooked.push(...(await applyHook(hook)));
    } catch (error) {
      if (!(error instanceof UnhookedFramework) || options.onUnhooked !== 'warn') {
        unhook();
        throw error;
      }
      process.emitWarning(`aegis: ${error.message}`);
      unhooked.push(error.message);
    }
  }
  const { gateway, authenticated } = currentRuntime();
  return { gateway, authenticated, hooked, unhooked, toString: () => told({ gateway, authenticated, hooked, unhooked }) };
}

/** Put every hooked method back and release the decider. */
export function unhook(): void {
  undoHooks();
  replaceRuntime(undefined);
}

function told(report: Omit<Report, 'toString'>): string {
  const known = report.authenticated === undefined ? '' : report.authenticated ? ', authenticated' : ', NOT authenticated';
  const lines = [`aegis: decisions by ${report.gateway}${known}`];
  for (const one of report.hooked) {
    lines.push(`  ${one.framework} ${one.version} (supported ${one.supported}): ${one.seams.join(', ')}`);
    lines.push(...one.barred.map((path) => `    refused, because it cannot be covered: ${path}`));
    lines.push(...one.uncovered.map((path) => `    not covered: ${path}`));
  }
  return [...lines, ...report.unhooked.map((reason) => `  not hooked: ${reason}`)].join('\n');
}
