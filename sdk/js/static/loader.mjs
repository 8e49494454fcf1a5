// Runs beside the program: a module whose functions are guarded is one that exports everything of the original, and the
// guarded functions in place of its own.
let files = {};

export function initialize(data) {
  files = data.files;
}

export async function load(url, context, next) {
  const guarded = files[url];
  if (guarded === undefined) return next(url, context);
  const original = JSON.stringify(`${url}?aegis-original`);
  const source = `
export * from ${original};
import * as original from ${original};
import { createRequire } from 'node:module';
const { wrapped, REGISTERED } = createRequire(${JSON.stringify(url)})(${JSON.stringify(guarded.by)});
const functions = wrapped(original, () => globalThis[REGISTERED]?.on ?? false);
${guarded.names.map((name) => `export const ${name} = functions.${name};`).join('\n')}
`;
  return { format: 'module', source, shortCircuit: true };
}
