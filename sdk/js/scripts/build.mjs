// Compile to CommonJS once, and put a thin ES module before every entry: one copy of the code and of its state.
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
process.chdir(root);
rmSync('dist', { recursive: true, force: true });
execFileSync(process.execPath, [createRequire(import.meta.url).resolve('typescript/package.json').replace(/package\.json$/, 'bin/tsc'), '-p', '.'], {
  stdio: 'inherit',
});
const require = createRequire(import.meta.url);
const { exports: entries } = JSON.parse(readFileSync('package.json', 'utf8'));
for (const entry of Object.values(entries)) {
  if (typeof entry === 'string' || entry.import === undefined) continue;
  const name = entry.require.default.replace(/^\.\/dist\/(.*)\.js$/, '$1');
  const words = Object.keys(require(`../dist/${name}.js`)).filter((word) => word !== '__esModule');
  writeFileSync(`dist/${name}.mjs`, `import all from './${name}.js';\nexport const { ${words.join(', ')} } = all;\n`);
  writeFileSync(`dist/${name}.d.mts`, `export * from './${name}.js';\n`);
}
for (const name of ['loader.mjs', 'register.mjs']) copyFileSync(`static/${name}`, `dist/${name}`);
copyFileSync('../../LICENSE', 'LICENSE');
chmodSync('dist/bin.js', 0o755);
