// The plugin of OpenCode below `aegis run`: every tool is decided before it runs, every result before the model reads it.
// Events are handed to `aegis hook` in the form of Claude Code; anything but its whole answer ends the call.
import { spawn } from 'node:child_process';

const [program, ...options] = JSON.parse(process.env.AEGIS_HOOK_COMMAND);

function ask(event) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, options, { stdio: ['pipe', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => { out += data; });
    child.stderr.on('data', (data) => { err += data; });
    child.on('error', reject);
    child.stdin.on('error', () => {});
    child.on('close', (code) => {
      if (code !== 0) reject(new Error(err.trim() || 'the call was refused'));
      else resolve(out.trim() ? JSON.parse(out).hookSpecificOutput ?? {} : {});
    });
    child.stdin.end(JSON.stringify(event));
  });
}

// A tool of an MCP server is called by the server's name, an underscore and its own; hooks spell it as Claude Code does.
const servers = JSON.parse(process.env.AEGIS_HOOK_SERVERS ?? '[]').sort((a, b) => b.length - a.length);

function spelled(tool) {
  const found = servers.find((one) => tool.startsWith(`${one.replace(/[^a-zA-Z0-9_-]/g, '_')}_`));
  return found === undefined ? tool : `mcp__${found}__${tool.slice(found.length + 1)}`;
}

function named(event, input, args) {
  const tool = spelled(input.tool);
  return { hook_event_name: event, session_id: input.sessionID, tool_use_id: input.callID, tool_name: tool, tool_input: args };
}

export const Aegis = async () => {
  const made = new Map();
  return {
    'tool.execute.before': async (input, output) => {
      const answer = await ask(named('PreToolUse', input, output.args));
      if (answer.permissionDecision === 'deny') throw new Error(answer.permissionDecisionReason ?? 'the call was refused');
      if (answer.updatedInput) output.args = answer.updatedInput;
      made.set(input.callID, output.args);
    },
    'tool.execute.after': async (input, output) => {
      const event = named('PostToolUse', input, made.get(input.callID) ?? {});
      made.delete(input.callID);
      try {
        const answer = await ask({ ...event, tool_response: output.output });
        if (answer.updatedToolOutput !== undefined) {
          const seen = answer.updatedToolOutput;
          output.output = typeof seen === 'string' ? seen : JSON.stringify(seen);
        }
      } catch (error) {
        output.output = String(error.message);
      }
    },
  };
};
