/** The packages that are installed beside the program, in every module system and every copy of them. */

import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { isObject } from './json';
import type { Owner } from './patches';

/** One copy of a package. */
export interface Installed {
  readonly name: string;
  readonly version: string;
  readonly folder: string;
  readonly manifest: Readonly<Record<string, unknown>>;
}

/**
 * Every copy of a package that the program, its working directory or this package would load, and that the packages `via`
 * which it comes with would load: installers may hide it below them.
 */
export function installed(name: string, via: readonly string[] = []): Installed[] {
  const script = process.argv[1];
  const starts = [script === undefined ? undefined : dirname(real(script)), process.cwd(), __dirname];
  starts.push(...via.flatMap((one) => installed(one)).map((one) => one.folder));
  const found = new Map<string, Installed>();
  for (const start of starts) {
    if (start === undefined) continue;
    for (let folder = start; ; folder = dirname(folder)) {
      const path = join(folder, 'node_modules', name);
      if (existsSync(join(path, 'package.json'))) {
        const home = real(path);
        const manifest: unknown = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
        if (isObject(manifest) && typeof manifest['version'] === 'string') {
          found.set(home, { name, version: manifest['version'], folder: home, manifest });
        }
        break; // what is further up is hidden by this one
      }
      if (folder === dirname(folder)) break;
    }
  }
  return [...found.values()];
}

/** The instances of one module of a package: as an ES module and as CommonJS, which are often two; throws where neither is. */
export async function instances(found: Installed, subpath = '.'): Promise<Owner[]> {
  const modules: Owner[] = [];
  const asModule = resolved(found, subpath, ['node', 'import', 'module-sync', 'default']);
  if (asModule !== undefined) modules.push((await import(pathToFileURL(asModule).href)) as Owner);
  const asScript = resolved(found, subpath, ['node', 'require', 'module-sync', 'default']);
  if (asScript !== undefined && asScript !== asModule) {
    modules.push(createRequire(join(found.folder, 'package.json'))(asScript) as Owner);
  }
  if (modules.length === 0) throw new TypeError(`\`${found.name}\` has no \`${subpath}\``);
  return modules;
}

/** The file that a path of a package stands for under some conditions (Node's documentation, "Package entry points"). */
export function resolved(found: Installed, subpath: string, conditions: readonly string[]): string | undefined {
  const { exports, module, main } = found.manifest;
  let target: string | undefined;
  if (exports === undefined) {
    const entry = conditions.includes('import') && typeof module === 'string' ? module : main;
    target = subpath === '.' ? (typeof entry === 'string' ? entry : 'index.js') : subpath;
  } else {
    target = targetOf(exports, subpath, conditions);
  }
  if (target === undefined) return undefined;
  const path = join(found.folder, target);
  for (const file of [path, `${path}.js`, join(path, 'index.js')]) if (existsSync(file) && /\.[cm]?js$/.test(file)) return real(file);
  return undefined;
}

function targetOf(exports: unknown, subpath: string, conditions: readonly string[]): string | undefined {
  if (!isObject(exports) || !Object.keys(exports).some((key) => key.startsWith('.'))) {
    return subpath === '.' ? conditioned(exports, conditions) : undefined;
  }
  if (Object.hasOwn(exports, subpath)) return conditioned(exports[subpath], conditions);
  let best: { length: number; target: string | undefined } = { length: -1, target: undefined };
  for (const [pattern, target] of Object.entries(exports)) {
    const [head, tail] = pattern.split('*');
    if (head === undefined || tail === undefined || head.length <= best.length) continue;
    if (!subpath.startsWith(head) || !subpath.endsWith(tail) || subpath.length < head.length + tail.length) continue;
    const filled = subpath.slice(head.length, subpath.length - tail.length);
    best = { length: head.length, target: conditioned(target, conditions)?.replaceAll('*', filled) };
  }
  return best.target;
}

function conditioned(target: unknown, conditions: readonly string[]): string | undefined {
  if (typeof target === 'string') return target;
  if (Array.isArray(target)) return target.map((one) => conditioned(one, conditions)).find((one) => one !== undefined);
  if (!isObject(target)) return undefined;
  for (const [condition, inner] of Object.entries(target)) {
    if (!conditions.includes(condition)) continue;
    const found = conditioned(inner, conditions);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The release numbers of a version; what is not a number ends them. */
export function numbers(version: string): number[] {
  return (/^[0-9]+(\.[0-9]+)*/.exec(version)?.[0] ?? '').split('.').map(Number);
}

/** Whether a version is at least `low` and below `high`; a pre-release of `high` is not. */
export function isWithin(version: string, low: readonly number[], high: readonly number[]): boolean {
  const given = numbers(version);
  return compare(given, low) >= 0 && compare(given, high) < 0;
}

function compare(a: readonly number[], b: readonly number[]): number {
  for (let index = 0; index < Math.max(a.length, b.length); index += 1) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
