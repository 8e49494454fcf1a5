/** OpenAI chat completions: calls in answers, results and refusals in requests. */

import { ForeignAnswer } from '../errors';
import { canonical, isObject, stringify } from '../json';
import type { Recall, Refused, Removal } from '../memory';
import {
  callKey,
  type Dialect,
  ended,
  HeldBytes,
  list,
  NO_RULING,
  type Output,
  type Proposed,
  readArguments,
  type Rulings,
  saidIn,
  type Settled,
  type Step,
  str,
  type StreamFilter,
  type Wire,
  type WireEvent,
  wires,
} from './model';

const LEGACY = 'function_call';
const DONE = '[DONE]';
const OWN: ReadonlySet<string> = new Set(['choices', 'usage', 'obfuscation']); // of each chunk

/** The call that a wire call of an answer proposes. */
function proposed(call: Wire, key: string, answerId: string): Proposed {
  if (call['type'] === 'custom') {
    const custom = member(call, 'custom');
    const tool = str(custom['name']);
    const input: unknown = custom['input'];
    const read =
      typeof input === 'string' && tool !== ''
        ? { arguments: { input }, problem: '' }
        : { problem: tool === '' ? readArguments('', '').problem : 'the input is not text' };
    return { key, callId: str(call['id']), tool, ...read };
  }
  const given = LEGACY in call ? member(call, LEGACY) : member(call, 'function');
  const tool = str(given['name']);
  const callId = LEGACY in call && answerId !== '' ? `${answerId}:${key}` : str(call['id']);
  return { key, callId, tool, ...readArguments(tool, given['arguments']) };
}

function changedCall(call: Wire, args: Record<string, unknown>): Wire {
  if (call['type'] === 'custom') return { ...call, custom: { ...member(call, 'custom'), input: args['input'] } };
  const name = LEGACY in call ? LEGACY : 'function';
  return { ...call, [name]: { ...member(call, name), arguments: canonical(args) } };
}

function ruledCalls(calls: readonly (readonly [string, Wire])[], rulings: Rulings): [Wire[], Refused[]] {
  const kept: Wire[] = [];
  const refused: Refused[] = [];
  calls.forEach(([key, call], index) => {
    const ruling = rulings.get(key) ?? NO_RULING;
    if (ruling.allowed) kept.push(ruling.arguments === undefined ? call : changedCall(call, ruling.arguments));
    else refused.push({ call, callId: str(call['id']), index, message: ruling.message ?? '' });
  });
  return [kept, refused];
}

/** The message members and the removal of a choice that has no call left. */
function ending(refused: readonly Refused[], text: string, structured: boolean): [Wire, Removal] {
  const [said, removal] = ended(refused, text);
  if (structured) return [{ content: text === '' ? null : text, refusal: said }, removal];
  return [{ content: text === '' ? said : `${text}\n\n${said}` }, removal];
}

const keysOf = (kept: readonly Wire[]): string[] => kept.map((call) => callKey(proposed(call, '', '')));

function member(wire: Wire, name: string): Wire {
  const value: unknown = wire[name];
  return isObject(value) ? value : {};
}

function wireCalls(message: unknown, position: number): [string, Wire][] {
  if (!isObject(message)) return [];
  const given = message['tool_calls'];
  const calls = (Array.isArray(given) ? given : given ? [given] : []).map((call: unknown, index): [string, Wire] => [
    `${position}/${index}`,
    isObject(call) ? call : {},
  ]);
  const legacy = message[LEGACY];
  if (legacy) calls.push([`${position}/${LEGACY}`, { [LEGACY]: legacy }]);
  return calls;
}

/** The dialect of `POST /chat/completions`. */
export class ChatDialect implements Dialect {
  anchors(answer: Wire): readonly string[] {
    return [str(answer['id'])];
  }

  calls(answer: Wire): Proposed[] {
    return list(answer['choices']).flatMap((choice, position) =>
      wireCalls(isObject(choice) ? choice['message'] : undefined, position).map(([key, call]) =>
        proposed(call, key, str(answer['id'])),
      ),
    );
  }

  settle(answer: Wire, rulings: Rulings, structured: boolean): Settled {
    const removals: Removal[] = [];
    const choices = list(answer['choices']).map((choice, position) => {
      if (!isObject(choice)) return choice;
      const found = wireCalls(choice['message'], position);
      if (found.length === 0) return choice;
      const [kept, refused] = ruledCalls(found, rulings);
      const { tool_calls: _, [LEGACY]: __, ...message } = choice['message'] as Wire;
      if (kept.length > 0) {
        const modern = kept.filter((call) => !(LEGACY in call));
        if (modern.length > 0) message['tool_calls'] = modern;
        for (const call of kept) if (LEGACY in call) message[LEGACY] = call[LEGACY];
        if (refused.length > 0) removals.push({ refused, kept: keysOf(kept), ref: '', text: '' });
        return { ...choice, message };
      }
      const [members, removal] = ending(refused, str(message['content']), structured);
      removals.push(removal);
      return { ...choice, message: { ...message, ...members }, finish_reason: 'stop' };
    });
    return { answer: choices.length > 0 ? { ...answer, choices } : answer, removals };
  }

  stream(structured: boolean): StreamFilter {
    return new ChatStream(structured);
  }

  structured(request: Wire): boolean {
    const wanted: unknown = request['response_format'];
    return isObject(wanted) && wanted['type'] !== 'text';
  }

  outputs(request: Wire): Output[] {
    return list(request['messages']).flatMap((message, index): Output[] => {
      if (!isObject(message) || message['role'] !== 'tool') return [];
      if (message['content'] === undefined || message['content'] === null) return [];
      const callId = str(message['tool_call_id']);
      return [{ callId, value: message['content'], path: ['messages', index, 'content'] }];
    });
  }

  putBack(request: Wire, recall: Recall): Wire {
    const messages: unknown[] = [];
    let pending: Wire[] = [];
    let changed = false;
    for (const message of list(request['messages'])) {
      if (pending.length > 0 && !(isObject(message) && message['role'] === 'tool')) {
        messages.push(...pending);
        pending = [];
      }
      const removal = removalOf(message, recall);
      if (removal === undefined) {
        messages.push(message);
        continue;
      }
      changed = true;
      const wire = message as Wire;
      const refusals = removal.refused.map(refusalOf);
      if (removal.kept.length > 0) {
        messages.push(withCalls(wire, list(wire['tool_calls']), removal));
        pending = refusals;
      } else {
        const { refusal: _, tool_calls: __, ...bare } = wire;
        const spoken = { ...bare, content: removal.text === '' ? null : removal.text };
        messages.push(withCalls(spoken, [], removal), ...refusals, saidAfter(wire, removal));
      }
    }
    return changed ? { ...request, messages: [...messages, ...pending] } : request;
  }
}

function removalOf(message: unknown, recall: Recall): Removal | undefined {
  if (!isObject(message) || message['role'] !== 'assistant') return undefined;
  for (const [key, call] of wireCalls(message, 0)) {
    const found = recall.byCall(callKey(proposed(call, key, '')));
    if (found !== undefined) return found;
  }
  const { content } = message;
  const parts = wires(content).map((part) => part['text'] as unknown);
  return saidIn(recall, [content, message['refusal'], ...parts]);
}

function withCalls(message: Wire, calls: readonly unknown[], removal: Removal): Wire {
  const restored = [...calls];
  let whole = message;
  for (const refused of removal.refused) {
    if (LEGACY in refused.call) whole = { ...whole, [LEGACY]: refused.call[LEGACY] };
    else restored.splice(refused.index, 0, refused.call);
  }
  return restored.length > 0 ? { ...whole, tool_calls: restored } : whole;
}

function refusalOf(refused: Refused): Wire {
  const legacy = refused.call[LEGACY];
  if (isObject(legacy)) return { role: 'function', name: str(legacy['name']), content: refused.message };
  return { role: 'tool', tool_call_id: refused.callId, content: refused.message };
}

/** The text with which the answer ended, without what the model had said before. */
function saidAfter(message: Wire, removal: Removal): Wire {
  const content: unknown = message['content'];
  if (removal.text !== '' && typeof content === 'string' && content.startsWith(removal.text)) {
    const rest = content.slice(removal.text.length).trimStart();
    return { ...message, content: rest === '' ? null : rest };
  }
  return message;
}

/** One choice as far as it has streamed: what was said, and the calls that are held back. */
interface Choice {
  text: string;
  readonly calls: Map<number, Wire>;
  legacy: Wire | undefined;
  last: Wire | undefined;
}

/** The filter of one streamed completion; a choice's calls are released together, before the chunk that finishes it. */
class ChatStream implements StreamFilter {
  readonly removals: Removal[] = [];
  private readonly choices = new Map<number, Choice>();
  private readonly bytes = new HeldBytes();
  private envelope: Wire = {};
  private waiting: number[] = [];
  private after: WireEvent[] = [];

  constructor(private readonly structuredText: boolean) {}

  get anchors(): readonly string[] {
    return [str(this.envelope['id'])];
  }

  feed(event: WireEvent): Step {
    if (event.data === '') return { events: [event], calls: [] };
    if (event.data.startsWith(DONE)) {
      // A server may leave out the reason for which a choice ends.
      const open = [...this.choices].filter(([, choice]) => choice.calls.size > 0 || choice.legacy !== undefined);
      return this.ask(open.map(([position]) => position), [event]);
    }
    let chunk: unknown;
    try {
      chunk = JSON.parse(event.data);
    } catch {
      throw new ForeignAnswer('a chunk of the stream is not JSON');
    }
    if (!isObject(chunk) || !Array.isArray(chunk['choices'])) return { events: [event], calls: [] };
    this.envelope = Object.fromEntries(Object.entries(chunk).filter(([name]) => !OWN.has(name)));
    const finished: number[] = [];
    const passing: unknown[] = [];
    let changed = false;
    for (const choice of chunk['choices'] as unknown[]) {
      const rest = isObject(choice) ? this.take(choice, event.data.length, finished) : choice;
      changed ||= rest !== choice;
      if (rest !== undefined) passing.push(rest);
    }
    if (!changed) return { events: [event], calls: [] };
    const events = passing.length > 0 || chunk['usage'] ? [chunkEvent({ ...chunk, choices: passing })] : [];
    const step = this.ask(finished, []);
    return { events: [...events, ...step.events], calls: step.calls };
  }

  settle(rulings: Rulings): WireEvent[] {
    const events = this.waiting.flatMap((position) => this.release(position, rulings));
    events.push(...this.after);
    this.waiting = [];
    this.after = [];
    return events;
  }

  /** What of a choice may pass now; its calls, and the end of a choice with calls, are held back. */
  private take(choice: Wire, size: number, finished: number[]): Wire | undefined {
    const position: unknown = choice['index'] ?? 0;
    if (!Number.isInteger(position)) throw new ForeignAnswer('a choice of the stream has no index');
    let state = this.choices.get(position as number);
    if (state === undefined) {
      state = { text: '', calls: new Map(), legacy: undefined, last: undefined };
      this.choices.set(position as number, state);
    }
    const delta: unknown = choice['delta'];
    let rest = choice;
    if (isObject(delta)) {
      if (typeof delta['content'] === 'string') state.text += delta['content'];
      if ((Array.isArray(delta['tool_calls']) ? delta['tool_calls'].length > 0 : delta['tool_calls']) || delta[LEGACY]) {
        this.bytes.grow(size);
        hold(state, delta);
        const { tool_calls: _, [LEGACY]: __, ...kept } = delta;
        rest = { ...choice, delta: kept };
      }
    }
    if (state.calls.size === 0 && state.legacy === undefined) return rest;
    if (choice['finish_reason']) {
      state.last = rest;
      finished.push(position as number);
      return undefined;
    }
    if (rest === choice) return rest;
    return Object.values(rest['delta'] as Wire).some((value) => value !== null && value !== undefined) ? rest : undefined;
  }

  private ask(positions: number[], after: WireEvent[]): Step {
    if (positions.length === 0) return { events: after, calls: [] };
    this.waiting = positions;
    this.after = after;
    const [id = ''] = this.anchors;
    const calls = positions.flatMap((position) => this.callsOf(position).map(([key, call]) => proposed(call, key, id)));
    return { events: [], calls };
  }

  private callsOf(position: number): [string, Wire][] {
    const state = this.choices.get(position);
    if (state === undefined) return [];
    const places = [...state.calls.keys()].sort((a, b) => a - b);
    const found = places.map((at, index): [string, Wire] => [`${position}/${index}`, state.calls.get(at) as Wire]);
    if (state.legacy !== undefined) found.push([`${position}/${LEGACY}`, { [LEGACY]: state.legacy }]);
    return found;
  }

  private release(position: number, rulings: Rulings): WireEvent[] {
    const [kept, refused] = ruledCalls(this.callsOf(position), rulings);
    const state = this.choices.get(position) as Choice;
    const last = state.last ?? { index: position, delta: {}, finish_reason: null };
    state.calls.clear();
    state.legacy = undefined;
    state.last = undefined;
    if (kept.length > 0) {
      if (refused.length > 0) this.removals.push({ refused, kept: keysOf(kept), ref: '', text: '' });
      const modern = kept.filter((call) => !(LEGACY in call));
      const deltas: Wire[] = modern.map((call, index) => ({ tool_calls: [{ index, ...call }] }));
      deltas.push(...kept.filter((call) => LEGACY in call).map((call) => ({ [LEGACY]: call[LEGACY] as unknown })));
      return [...deltas.map((delta) => this.delta(position, delta)), this.chunk(last)];
    }
    const [members, removal] = ending(refused, state.text, this.structuredText);
    this.removals.push(removal);
    // What the model said has already passed: only what stands for the calls is still to be said.
    const name = this.structuredText ? 'refusal' : 'content';
    const whole = str(members[name]);
    const said = whole.startsWith(removal.text) ? whole.slice(removal.text.length) : whole;
    return [this.delta(position, { [name]: said }), this.chunk({ ...last, finish_reason: 'stop' })];
  }

  private delta(position: number, delta: Wire): WireEvent {
    return this.chunk({ index: position, delta, finish_reason: null });
  }

  private chunk(choice: Wire): WireEvent {
    return chunkEvent({ ...this.envelope, choices: [choice] });
  }
}

const chunkEvent = (chunk: Wire): WireEvent => ({ data: stringify(chunk) });

function hold(state: Choice, delta: Wire): void {
  for (const part of list(delta['tool_calls'])) {
    if (!isObject(part)) throw new ForeignAnswer('a call of the stream is not an object');
    const index: unknown = part['index'] ?? state.calls.size;
    if (!Number.isInteger(index)) throw new ForeignAnswer('a call of the stream has no index');
    let call = state.calls.get(index as number);
    if (call === undefined) state.calls.set(index as number, (call = bare()));
    const { index: _, ...rest } = part;
    merge(call, rest);
  }
  if (isObject(delta[LEGACY])) merge((state.legacy ??= bare()), delta[LEGACY]);
}

// Names come from the other side: none of them may be one that every object has.
const bare = (): Wire => Object.create(null) as Wire;

/** Add one delta of a call: arguments grow, objects merge, the rest is set once. */
function merge(into: Wire, part: Wire): void {
  for (const [name, value] of Object.entries(part) as [string, unknown][]) {
    if (isObject(value)) merge((into[name] ??= bare()) as Wire, value);
    else if ((name === 'arguments' || name === 'input') && typeof value === 'string') into[name] = str(into[name]) + value;
    else if (value !== null && value !== undefined && !into[name]) into[name] = value;
  }
}
