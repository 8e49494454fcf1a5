/**
 * Mastra (`@mastra/core`): the tools of agents, whoever gives them: their own, toolsets, memory, agents and workflows as
 * tools.
 *
 * An agent prepares its tools anew for every run; they are decided where they are executed from then on.
 */

import { guardTools } from './ai';
import { type Hook, type Hooked, requireHook, type Seams } from './hooks';
import type { Owner } from './patches';

export const mastra: Hook = {
  framework: '@mastra/core',
  supported: [[1, 71], [2]],
  async hook(_runtime, patches, load): Promise<Seams> {
    for (const module of await load('./agent')) {
      patches.replace((module['Agent'] as Owner)['prototype'] as Owner, 'convertTools', (original) => {
        return async function (this: unknown, ...args: unknown[]) {
          const tools = (await original.apply(this, args)) as object;
          return patches.active ? guardTools(tools) : tools;
        };
      });
    }
    return {
      seams: ['Agent.convertTools'],
      uncovered: [
        'what a schema makes of the arguments after the decision (defaults, transforms)',
        'tools that a workflow or the host executes by itself: give those to `protect`',
        'tools that a provider hosts',
      ],
    };
  },
};

/** Hook the installed package of Mastra with the gateway of this process. */
export async function hook(): Promise<Hooked[]> {
  return requireHook(mastra);
}
