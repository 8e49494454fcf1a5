// Stands for the program that the Claude Agent SDK drives: speaks its protocol, asks its hooks, and runs two tools.
import { createInterface } from 'node:readline';

import { loop } from './loop.mjs';

const waiting = new Map();
let hooks = {};
let next = 0;
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const base = { session_id: 's', uuid: '00000000-0000-4000-8000-000000000000' };

function request(asked) {
  return new Promise((done) => {
    const request_id = `r${++next}`;
    waiting.set(request_id, done);
    say({ type: 'control_request', request_id, request: asked });
  });
}

function ask(event, input) {
  const callbacks = (hooks[event] ?? []).flatMap((matcher) => matcher.hookCallbackIds);
  const about = { hook_event_name: event, session_id: 's', transcript_path: '', cwd: '.', ...input };
  return Promise.all(
    callbacks.map((callback_id) => request({ subtype: 'hook_callback', callback_id, input: about, tool_use_id: input.tool_use_id })),
  );
}

/** What a tool gives: one of a server inside the SDK's process by its protocol, any other by HTTP. */
async function executed(tool_name, given) {
  const [, server_name, name] = /^mcp__(.+?)__(.+)$/.exec(tool_name) ?? [];
  if (name === undefined) return (await fetch(process.env.TOOLS_URL, { method: 'POST', body: JSON.stringify([tool_name, given]) })).json();
  const message = { jsonrpc: '2.0', id: ++next, method: 'tools/call', params: { name, arguments: given } };
  const { result } = (await request({ subtype: 'mcp_message', server_name, message })).mcp_response;
  return result.isError ? { error: result.content[0].text } : { result: result.content };
}

const world = { url: process.env.WORLD_URL };
const told = (answers, name) => answers.map((one) => one?.hookSpecificOutput?.[name]).find((one) => one !== undefined);

async function run(tool_name, given, call) {
  const about = { tool_name, tool_input: given, tool_use_id: call };
  const before = await ask('PreToolUse', about);
  if (told(before, 'permissionDecision') === 'deny') return told(before, 'permissionDecisionReason');
  about.tool_input = told(before, 'updatedInput') ?? given;
  const { result, error } = await executed(tool_name, about.tool_input);
  if (error !== undefined) {
    await ask('PostToolUseFailure', { ...about, error });
    const stopped = (await ask('PostToolBatch', { tool_calls: [{ ...about, tool_response: error }] })).find((one) => one?.continue === false);
    if (stopped) {
      say({ type: 'result', subtype: 'success', is_error: false, result: stopped.stopReason, duration_ms: 1, duration_api_ms: 1, num_turns: 1, total_cost_usd: 0, usage: {}, permission_denials: [], ...base });
      process.exit(0);
    }
    return error;
  }
  const seen = told(await ask('PostToolUse', { ...about, tool_response: result }), 'updatedToolOutput') ?? result;
  return typeof seen === 'string' ? seen : seen.map((part) => part.text).join('\n');
}

async function turn() {
  const result = await loop(world, (name, given, call) => run(name, given, call));
  say({ type: 'result', subtype: 'success', is_error: false, result, duration_ms: 1, duration_api_ms: 1, num_turns: 1, total_cost_usd: 0, usage: {}, permission_denials: [], ...base });
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const message = JSON.parse(line);
  if (message.type === 'control_request') {
    if (message.request.subtype === 'initialize') hooks = message.request.hooks ?? {};
    const response = { commands: [], models: [], account: {}, output_style: 'default', available_output_styles: [], hook_on_failure_supported: true };
    say({ type: 'control_response', response: { subtype: 'success', request_id: message.request_id, response } });
  } else if (message.type === 'control_response') {
    const { request_id, response } = message.response;
    waiting.get(request_id)?.(response);
  } else if (message.type === 'user') {
    void turn();
  }
}).on('close', () => process.exit(0));
