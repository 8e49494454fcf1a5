// Runs beside the program: a module whose functions are guarded is one that exports everything of the original, and the
// guarded functions in place of its own.
let files = {};
let wrapper = '';

export function initialize(data) {
  files = data.files;
  wrapper = data.wrapper;
}

export async function load(url, context, next) {
  const names = files[url];
  if (names === undefined) return next(url, context);
  const original = JSON.stringify(`${url}?aegis-original`);
  const source = `
export * from ${original};
import * as original from ${original};
import { createRequire } from 'node:module';
const { wrapped, REGISTERED } = createRequire(${JSON.stringify(url)})(${JSON.stringify(wrapper)});
const functions = wrapped(original, () => globalThis[REGISTERED]?.on ?? false);
${names.map((name) => `export const ${name} = functions.${name};`).join('\n')}
`;
  return { format: 'module', source, shortCircuit: true };
}
