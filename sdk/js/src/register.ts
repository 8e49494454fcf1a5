/**
 * `node --import aegis-guard/register agent.js`: hook everything before the program is loaded.
 *
 * Packages that hand out functions get guarded ones in their place. `AEGIS_URL`, `AEGIS_API_KEY`, `AEGIS_AGENT` and
 * `AEGIS_ON_APPROVAL` say how; `AEGIS_ON_UNHOOKED=warn` lets a program start whose packages cannot all be covered.
 */

import { createRequire, register as registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

import { REGISTERED, wrapped } from './ai';
import { auto, type Report } from './auto';
import { installed, resolved } from './packages';
import type { Owner } from './patches';

/** Put guarded functions in place of those of packages that are loaded from here on. */
export function guardModules(): void {
  const state = { on: false };
  Object.defineProperty(globalThis, REGISTERED, { value: state, configurable: true });
  const files: Record<string, readonly string[]> = {};
  for (const found of installed('ai')) {
    const file = resolved(found, '.', ['node', 'import', 'module-sync', 'default']);
    if (file !== undefined) files[pathToFileURL(file).href] = ['generateText', 'streamText'];
    const script = resolved(found, '.', ['node', 'require', 'module-sync', 'default']);
    if (script !== undefined && script !== file) replaceScript(script, state);
  }
  registerHooks('./loader.mjs', pathToFileURL(__filename), { data: { files, wrapper: require.resolve('./ai.js') } });
}

/** Put guarded functions in place of those of a module of CommonJS. */
function replaceScript(file: string, state: { on: boolean }): void {
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
