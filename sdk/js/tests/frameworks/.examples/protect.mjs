// Any function as a tool: decided before its body runs, its result observed after.
import { protect, session, ToolCallBlocked } from 'aegis-guard';

const readFile = protect(async function read_file(path) {
  return `the text of ${path}`;
});

await session('example', { task: 'read the report' }, async () => {
  console.log(await readFile('/srv/report.txt'));
  try {
    await readFile('/etc/shadow');
  } catch (error) {
    if (!(error instanceof ToolCallBlocked)) throw error;
    console.log(`refused: ${error.message} (${error.decision.reason})`);
  }
});
