#!/usr/bin/env node
/** The command `aegis-guard`. Exit codes: 0 all is well, 1 something is not covered, 2 usage. */

import { guardModules } from './register';

const USAGE = `usage: aegis-guard doctor [--json]

Asks the gateway (AEGIS_URL, AEGIS_API_KEY), hooks what is installed here, and fires a canary at each hook.`;

async function main(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args;
  if (command === '--help' || command === 'help') {
    console.log(USAGE);
    return 0;
  }
  if (command !== 'doctor' || rest.some((one) => one !== '--json')) {
    console.error(USAGE);
    return 2;
  }
  guardModules();
  const { examine } = await import('./doctor.js');
  const error = console.error;
  console.error = () => undefined; // what the refusals of the canaries say is not for people
  const findings = await examine();
  console.error = error;
  const good = findings.every((one) => one.good);
  if (rest.includes('--json')) console.log(JSON.stringify({ good, findings }));
  else for (const one of findings) console.log(`${one.good ? 'ok  ' : 'FAIL'} ${one.what}: ${one.text}`);
  return good ? 0 : 1;
}

main(process.argv.slice(2)).then(
  (code) => process.exit(code),
  (error: unknown) => {
    console.error(`aegis-guard: ${error instanceof Error ? error.message : String(error)}`);
    process.exit(1);
  },
);
