// An agent's loop that knows no SDK: a model over plain HTTP, and tools that something else runs.

/** Ask the model of the world until it makes no more calls; `run(name, args, id)` gives what the model is told. */
export async function loop(world, run) {
  const messages = [{ role: 'user', content: 'go' }];
  for (;;) {
    const body = JSON.stringify({ model: 'scripted', messages });
    const answer = await (await fetch(`${world.url}/v1/chat/completions`, { method: 'POST', body })).json();
    const { message } = answer.choices[0];
    messages.push(message);
    if (!message.tool_calls) return message.content;
    const results = await Promise.all(
      message.tool_calls.map(async (call) => {
        const given = await run(call.function.name, JSON.parse(call.function.arguments), call.id).catch((error) => `error: ${error.message}`);
        return { role: 'tool', tool_call_id: call.id, content: given };
      }),
    );
    messages.push(...results);
  }
}
