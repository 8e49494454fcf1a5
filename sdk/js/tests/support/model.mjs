// A model provider on loopback that says what a script says, in the formats of OpenAI and Anthropic.
import { createServer } from 'node:http';

/** Serve `turns`, one a request: `{ text, calls: [{ id, tool, arguments }] }`; the last one is repeated. */
export async function scriptedModel(turns) {
  const asked = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const body = text ? JSON.parse(text) : {};
    const turn = turns[Math.min(asked.length, turns.length - 1)];
    asked.push({ path: request.url, headers: request.headers, body });
    const path = request.url.split('?')[0];
    const speak = path.endsWith('/chat/completions') ? chat : path.endsWith('/responses') ? responses : messages;
    speak(response, body, turn, asked.length);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${server.address().port}`;
  return { url, asked, close: () => (server.closeAllConnections(), server.close()), resultOf: (call) => resultOf(asked, call) };
}

const args = (call) => JSON.stringify(call.arguments);

function json(response, body) {
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function events(response, list, { named = true, done = false } = {}) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const event of list) response.write(`${named ? `event: ${event.type}\n` : ''}data: ${JSON.stringify(event)}\n\n`);
  response.end(done ? 'data: [DONE]\n\n' : '');
}

function chat(response, body, turn, number) {
  const envelope = { id: `chatcmpl-${number}`, created: 1, model: 'scripted' };
  const calls = (turn.calls ?? []).map((call) => ({
    id: call.id,
    type: 'function',
    function: { name: call.tool, arguments: call.text ?? args(call) },
  }));
  const reason = calls.length ? 'tool_calls' : 'stop';
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  if (!body.stream) {
    const message = { role: 'assistant', content: turn.text, refusal: null, ...(calls.length ? { tool_calls: calls } : {}) };
    json(response, { ...envelope, object: 'chat.completion', choices: [{ index: 0, message, finish_reason: reason, logprobs: null }], usage });
    return;
  }
  const chunk = (delta, finish = null) => ({
    ...envelope,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, finish_reason: finish, logprobs: null }],
  });
  const list = [chunk({ role: 'assistant', content: '' }), chunk({ content: turn.text })];
  calls.forEach((call, index) => {
    const { arguments: text } = call.function;
    list.push(chunk({ tool_calls: [{ ...call, index, function: { name: call.function.name, arguments: '' } }] }));
    for (const part of [text.slice(0, 5), text.slice(5)]) list.push(chunk({ tool_calls: [{ index, function: { arguments: part } }] }));
  });
  list.push(chunk({}, reason), { ...envelope, object: 'chat.completion.chunk', choices: [], usage });
  events(response, list, { named: false, done: true });
}

function responses(response, body, turn, number) {
  const output = [
    {
      id: `msg_${number}`,
      type: 'message',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: turn.text, annotations: [], logprobs: [] }],
    },
    ...(turn.calls ?? []).map((call) => ({
      id: `fc_${call.id}`,
      type: 'function_call',
      status: 'completed',
      call_id: call.id,
      name: call.tool,
      arguments: call.text ?? args(call),
    })),
  ];
  const usage = {
    input_tokens: 1,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 1,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 2,
  };
  const whole = {
    id: `resp_${number}`, object: 'response', created_at: 1, status: 'completed', model: 'scripted', output, usage,
    error: null, incomplete_details: null, instructions: null, metadata: {}, parallel_tool_calls: true, temperature: 1,
    tool_choice: 'auto', tools: [], top_p: 1,
  };
  if (!body.stream) return json(response, whole);
  const started = { ...whole, status: 'in_progress', output: [], usage: null };
  const list = [
    { type: 'response.created', response: started },
    { type: 'response.in_progress', response: started },
  ];
  output.forEach((item, output_index) => {
    const at = { item_id: item.id, output_index };
    if (item.type === 'message') {
      const part = item.content[0];
      list.push(
        { type: 'response.output_item.added', output_index, item: { ...item, status: 'in_progress', content: [] } },
        { type: 'response.content_part.added', ...at, content_index: 0, part: { ...part, text: '' } },
        { type: 'response.output_text.delta', ...at, content_index: 0, delta: part.text, logprobs: [] },
        { type: 'response.output_text.done', ...at, content_index: 0, text: part.text, logprobs: [] },
        { type: 'response.content_part.done', ...at, content_index: 0, part },
      );
    } else {
      list.push(
        { type: 'response.output_item.added', output_index, item: { ...item, status: 'in_progress', arguments: '' } },
        { type: 'response.function_call_arguments.delta', ...at, delta: item.arguments },
        { type: 'response.function_call_arguments.done', ...at, name: item.name, arguments: item.arguments },
      );
    }
    list.push({ type: 'response.output_item.done', output_index, item });
  });
  list.push({ type: 'response.completed', response: whole });
  events(response, list.map((event, sequence_number) => ({ ...event, sequence_number })));
}

function messages(response, body, turn, number) {
  const calls = (turn.calls ?? []).map((call) => ({ type: 'tool_use', id: call.id, name: call.tool, input: call.arguments }));
  const content = [{ type: 'text', text: turn.text, citations: null }, ...calls];
  const whole = {
    id: `msg_${number}`,
    type: 'message',
    role: 'assistant',
    model: 'scripted',
    content,
    stop_reason: calls.length ? 'tool_use' : 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 1 },
  };
  if (!body.stream) return json(response, whole);
  const list = [{ type: 'message_start', message: { ...whole, content: [], stop_reason: null } }];
  content.forEach((block, index) => {
    const isText = block.type === 'text';
    const start = isText ? { ...block, text: '' } : { ...block, input: {} };
    list.push({ type: 'content_block_start', index, content_block: start });
    const deltas = isText
      ? [{ type: 'text_delta', text: block.text }]
      : [JSON.stringify(block.input).slice(0, 4), JSON.stringify(block.input).slice(4)].map((partial_json) => ({
          type: 'input_json_delta',
          partial_json,
        }));
    for (const delta of deltas) list.push({ type: 'content_block_delta', index, delta });
    list.push({ type: 'content_block_stop', index });
  });
  list.push(
    { type: 'message_delta', delta: { stop_reason: whole.stop_reason, stop_sequence: null }, usage: { output_tokens: 1 } },
    { type: 'message_stop' },
  );
  events(response, list);
}

/** What the model was told as the result of a call, in the last request that says it. */
function resultOf(asked, call) {
  for (const { body } of asked.toReversed()) {
    for (const message of body.messages ?? []) {
      if (message.role === 'tool' && message.tool_call_id === call.id) return flat(message.content);
      for (const block of Array.isArray(message.content) ? message.content : []) {
        if (block.type === 'tool_result' && block.tool_use_id === call.id) return flat(block.content);
      }
    }
    for (const item of Array.isArray(body.input) ? body.input : []) {
      if (item.type === 'function_call_output' && item.call_id === call.id) return flat(item.output);
    }
  }
  return undefined;
}

/** The text of a result, whatever parts it comes in. */
export function flat(content) {
  if (typeof content === 'string') return content;
  if (Array.isArray(content)) return content.map((part) => (typeof part === 'string' ? part : (part.text ?? JSON.stringify(part)))).join('');
  return JSON.stringify(content);
}
