/**
 * `node --import aegis-guard/register agent.js`: hook everything before the program is loaded.
 *
 * Packages that hand out functions get guarded ones in their place. `AEGIS_URL`, `AEGIS_API_KEY`, `AEGIS_AGENT` and
 * `AEGIS_ON_APPROVAL` say how; `AEGIS_ON_UNHOOKED=warn` lets a program start whose packages cannot all be covered.
 */

import { createRequire, register as registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

import * as ai from './ai';
import * as claude from './claude';
import { auto, type Report } from './auto';
import { installed, resolved } from './packages';
import type { Owner } from './patches';

const GUARDED = [
  { framework: 'ai', names: ['generateText', 'streamText'], by: './ai.js', module: ai },
  { framework: '@anthropic-ai/claude-agent-sdk', names: ['query', ...claude.BARRED], by: './claude.js', module: claude },
];

/** Put guarded functions in place of those of packages that are loaded from here on. */
export function guardModules(): void {
  const files: Record<string, { readonly names: readonly string[]; readonly by: string }> = {};
  for (const { framework, names, by, module } of GUARDED) {
    const state = { on: false };
    Object.defineProperty(globalThis, module.REGISTERED, { value: state, configurable: true });
    for (const found of installed(framework)) {
      const file = resolved(found, '.', ['node', 'import', 'module-sync', 'default']);
      if (file !== undefined) files[pathToFileURL(file).href] = { names, by: require.resolve(by) };
      const script = resolved(found, '.', ['node', 'require', 'module-sync', 'default']);
      if (script !== undefined && script !== file) replaceScript(script, module.wrapped, state);
    }
  }
  registerHooks('./loader.mjs', pathToFileURL(__filename), { data: { files } });
}

/** Put guarded functions in place of those of a module of CommonJS. */
function replaceScript(file: string, wrapped: typeof ai.wrapped, state: { on: boolean }): void {
  const load = createRequire(file);
  const original = load(file) as Owner;
  const exports = Object.create(null) as Owner;
  Object.defineProperties(exports, Object.getOwnPropertyDescriptors(original));
  const cached = load.cache[file];
  if (cached !== undefined) cached.exports = { ...exports, ...wrapped(original, () => state.on) };
}

/** Guard the modules and hook what is installed. */
export function start(): Promise<Report> {
  guardModules();
  return auto({ onUnhooked: process.env['AEGIS_ON_UNHOOKED'] === 'warn' ? 'warn' : 'error' });
}
