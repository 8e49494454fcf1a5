/** The OpenAI Responses API: calls in answers, results and refusals in requests. */

import { ForeignAnswer } from '../errors';
import { canonical, isObject } from '../json';
import type { Recall, Refused, Removal } from '../memory';
import {
  callKey,
  type Dialect,
  ended,
  eventObject,
  eventOf,
  HeldBytes,
  list,
  NO_RULING,
  type Output,
  printed,
  type Proposed,
  readArguments,
  ruledBlocks,
  type Ruling,
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

// Executed by the provider before the answer arrives: there is nothing left to decide.
const SERVER_CALLS: ReadonlySet<string> = new Set([
  'file_search_call',
  'web_search_call',
  'code_interpreter_call',
  'image_generation_call',
  'mcp_call',
]);
const BLANK_PNG =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
const FIXED = 'the call was refused: its arguments would have to be changed, and this kind of call does not allow that';
const SNAPSHOTS: ReadonlySet<string> = new Set(['response.created', 'response.queued', 'response.in_progress']);
const ENDS: ReadonlySet<string> = new Set(['response.completed', 'response.incomplete', 'response.failed']);

/** How one type of item names its tool, holds its arguments, and is answered. */
interface Kind {
  readonly tool: string;
  readonly members: readonly string[];
  readonly answer: (refused: Refused) => Wire[];
}

function output(type: string, more: Wire = {}): Kind['answer'] {
  return (refused) => {
    const caller: unknown = refused.call['caller'];
    const item = { type, call_id: refused.callId, output: refused.message, ...more };
    return [caller === undefined || caller === null ? item : { ...item, caller }];
  };
}

const KINDS: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  ['function_call', { tool: '', members: ['arguments'], answer: output('function_call_output') }],
  ['custom_tool_call', { tool: '', members: ['input'], answer: output('custom_tool_call_output') }],
  [
    'local_shell_call',
    {
      tool: 'local_shell',
      members: ['action'],
      answer: (refused) => [{ type: 'local_shell_call_output', id: refused.callId, output: refused.message }],
    },
  ],
  [
    'shell_call',
    {
      tool: 'shell',
      members: ['action'],
      answer: (refused) => [{ type: 'shell_call_output', call_id: refused.callId, output: printed(refused.message) }],
    },
  ],
  [
    'apply_patch_call',
    { tool: 'apply_patch', members: ['operation'], answer: output('apply_patch_call_output', { status: 'failed' }) },
  ],
  [
    'computer_call',
    {
      tool: 'computer',
      members: ['action', 'actions'],
      // The format has no room for words here: a blank picture, and the refusal as the host's word.
      answer: (refused) => [
        {
          type: 'computer_call_output',
          call_id: refused.callId,
          output: { type: 'computer_screenshot', image_url: BLANK_PNG },
        },
        { role: 'developer', content: refused.message },
      ],
    },
  ],
  [
    'tool_search_call',
    {
      tool: 'tool_search',
      members: ['arguments'],
      answer: (refused) => [
        { type: 'tool_search_output', call_id: refused.callId, tools: [], execution: 'client' },
        { role: 'developer', content: refused.message },
      ],
    },
  ],
  [
    'mcp_approval_request',
    {
      tool: '',
      members: ['arguments'],
      answer: (refused) => [
        {
          type: 'mcp_approval_response',
          approval_request_id: str(refused.call['id']),
          approve: false,
          reason: refused.message,
        },
      ],
    },
  ],
]);

/** Whether an output item asks the agent's side to execute something; unknown kinds of calls do. */
function isCall(item: unknown): boolean {
  if (!isObject(item)) return false;
  const kind = str(item['type']);
  if (kind === 'tool_search_call') return item['execution'] !== 'server';
  if (kind === 'shell_call') {
    const environment = item['environment'];
    return !(isObject(environment) && environment['type'] === 'container_reference');
  }
  return KINDS.has(kind) || (kind.endsWith('_call') && !SERVER_CALLS.has(kind));
}

const itemId = (item: Wire): string => str(item['call_id']) || str(item['id']);

/** The call that an item proposes. */
function proposed(item: Wire, key: string): Proposed {
  const kind = str(item['type']);
  const known = KINDS.get(kind);
  let tool = known === undefined ? kind : known.tool;
  let server: string | undefined;
  if (kind === 'function_call' || kind === 'custom_tool_call' || kind === 'mcp_approval_request') {
    tool = str(item['name']);
    const namespace = str(item['namespace']);
    server = namespace !== '' && namespace !== tool ? namespace : undefined;
    if (kind === 'mcp_approval_request') server = `mcp:${str(item['server_label'])}`;
  }
  return { key, callId: itemId(item), tool, server, ...argumentsOf(item, kind, known, tool) };
}

function argumentsOf(item: Wire, kind: string, known: Kind | undefined, tool: string): ReturnType<typeof readArguments> {
  if (tool === '') return readArguments('', '');
  if (known === undefined) {
    const rest = Object.entries(item).filter(([name]) => !['id', 'call_id', 'type', 'status'].includes(name));
    return { arguments: Object.fromEntries(rest), problem: '' };
  }
  if (kind === 'custom_tool_call') {
    const input: unknown = item['input'];
    if (typeof input === 'string') return { arguments: { input }, problem: '' };
    return { problem: `the input of \`${tool}\` is not text` };
  }
  if (kind === 'computer_call') {
    const given = known.members.filter((name) => item[name] !== undefined && item[name] !== null);
    return { arguments: Object.fromEntries(given.map((name) => [name, item[name] as unknown])), problem: '' };
  }
  return readArguments(tool, item[known.members[0] ?? '']);
}

/** The item with other arguments, or nothing where the format does not let them be changed. */
function changedItem(item: Wire, args: Record<string, unknown>): Wire | undefined {
  switch (str(item['type'])) {
    case 'function_call':
      return { ...item, arguments: canonical(args) };
    case 'custom_tool_call':
      return typeof args['input'] === 'string' ? { ...item, input: args['input'] } : undefined;
    case 'local_shell_call':
    case 'shell_call':
      return { ...item, action: args };
    case 'apply_patch_call':
      return { ...item, operation: args };
    case 'tool_search_call':
      return { ...item, arguments: args };
    case 'computer_call':
      return { ...item, ...args };
    default:
      return undefined;
  }
}

/** The item as it may go on, or the record of its refusal. */
function rule(item: Wire, index: number, ruling: Ruling): { block: Wire } | { refused: Refused } {
  if (ruling.allowed) {
    const ruled = ruling.arguments === undefined ? item : changedItem(item, ruling.arguments);
    if (ruled !== undefined) return { block: ruled };
  }
  const message = ruling.allowed ? FIXED : (ruling.message ?? '');
  return { refused: { call: item, callId: itemId(item), index, message } };
}

const keysOf = (kept: readonly Wire[]): string[] => kept.map((item) => callKey(proposed(item, '')));

/** The items that put a refused call back: the call itself and what answers it; none for an unknown kind. */
function answersTo(refused: Refused): Wire[] {
  const kind = KINDS.get(str(refused.call['type']));
  return kind === undefined || refused.callId === '' ? [] : [refused.call, ...kind.answer(refused)];
}

/** The name of the conversation that the provider keeps, in a request or a response. */
function conversationOf(wire: Wire): string[] {
  const conversation: unknown = wire['conversation'];
  const name = isObject(conversation) ? str(conversation['id']) : str(conversation);
  return name === '' ? [] : [`conversation:${name}`];
}

/** The message item with which a response ends that has no call left. */
function finalMessage(said: string, ref: string, structured: boolean): Wire {
  const part = structured
    ? { type: 'refusal', refusal: said }
    : { type: 'output_text', text: said, annotations: [], logprobs: [] };
  return { id: `msg_${ref}`, type: 'message', role: 'assistant', status: 'completed', content: [part] };
}

/** The dialect of `POST /responses`. */
export class ResponsesDialect implements Dialect {
  anchors(answer: Wire): readonly string[] {
    return [str(answer['id']), ...conversationOf(answer)];
  }

  calls(answer: Wire): Proposed[] {
    return list(answer['output']).flatMap((item, index) => (isCall(item) ? [proposed(item as Wire, String(index))] : []));
  }

  settle(answer: Wire, rulings: Rulings, structured: boolean): Settled {
    const { content, kept, refused, place } = ruledBlocks(list(answer['output']), rulings, isCall, rule);
    if (refused.length === 0) return { answer: kept.length > 0 ? { ...answer, output: content } : answer, removals: [] };
    if (kept.length > 0) {
      return { answer: { ...answer, output: content }, removals: [{ refused, kept: keysOf(kept), ref: '', text: '' }] };
    }
    const [said, removal] = ended(refused);
    content.splice(place, 0, finalMessage(said, removal.ref, structured));
    return { answer: { ...answer, output: content }, removals: [removal] };
  }

  stream(structured: boolean): StreamFilter {
    return new ResponsesStream(this, structured);
  }

  structured(request: Wire): boolean {
    const text: unknown = request['text'];
    const wanted = isObject(text) ? text['format'] : undefined;
    return isObject(wanted) && wanted['type'] !== 'text';
  }

  outputs(request: Wire): Output[] {
    return list(request['input']).flatMap((item, index): Output[] => {
      if (!isObject(item) || !/^(function|custom_tool|local_shell|shell|apply_patch)_call_output$/.test(str(item['type']))) {
        return [];
      }
      if (item['output'] === undefined || item['output'] === null) return [];
      const shell = item['type'] === 'shell_call_output';
      return [{ callId: itemId(item), value: item['output'], path: ['input', index, 'output'], shell }];
    });
  }

  putBack(request: Wire, recall: Recall): Wire {
    let items: unknown[] = [];
    let pending: Wire[] = [];
    let changed = false;
    for (const item of list(request['input'])) {
      if (pending.length > 0 && !isCall(item)) {
        items.push(...pending);
        pending = [];
      }
      const removal = removalOf(item, recall);
      if (removal === undefined) {
        items.push(item);
        continue;
      }
      changed = true;
      const pairs = removal.refused.map(answersTo);
      if (removal.kept.length > 0) {
        items.push(...pairs.flatMap((pair) => pair.slice(0, 1)), item);
        pending.push(...pairs.flatMap((pair) => pair.slice(1)));
      } else {
        items.push(...pairs.flat(), { role: 'assistant', content: textsOf(item as Wire).map(str).join('') });
      }
    }
    const anchors = [str(request['previous_response_id']), ...conversationOf(request)];
    const owed = anchors.flatMap((anchor) => recall.byAnchor(anchor)?.refused ?? []);
    const owing = owed.flatMap((refused) => answersTo(refused).slice(1));
    if (!changed && owing.length === 0) return request;
    if (typeof request['input'] === 'string') items = [{ role: 'user', content: request['input'] }];
    return { ...request, input: [...owing, ...items, ...pending] };
  }
}

function removalOf(item: unknown, recall: Recall): Removal | undefined {
  if (!isObject(item)) return undefined;
  if (isCall(item)) return recall.byCall(callKey(proposed(item, '')));
  return item['role'] === 'assistant' ? saidIn(recall, textsOf(item)) : undefined;
}

function textsOf(item: Wire): unknown[] {
  const content: unknown = item['content'];
  if (!Array.isArray(content)) return [content];
  return wires(content).flatMap((part) => [part['text'] as unknown, part['refusal'] as unknown]);
}

/** One output item that is held back: its events so far, and the whole item once it is done. */
interface Held {
  readonly events: Wire[];
  item: Wire | undefined;
}

/**
 * The filter of one streamed response.
 *
 * Items that are calls are released together when the response ends, before the event that ends it; sequence numbers keep
 * rising, and the places of items have no gaps. A response that names another call at its end than it streamed is refused whole.
 */
class ResponsesStream implements StreamFilter {
  anchors: readonly string[] = [''];
  removals: readonly Removal[] = [];
  private readonly held = new Map<number, Held>();
  private readonly bytes = new HeldBytes();
  private readonly places = new Map<number, number>();
  private number = -1;
  private end: Wire | undefined;
  private answer: Wire = {};
  private asked = new Map<string, string>();

  constructor(
    private readonly whole: ResponsesDialect,
    private readonly structuredText: boolean,
  ) {}

  feed(event: WireEvent): Step {
    if (event.data === '' || event.data.startsWith('[DONE]')) return { events: [event], calls: [] };
    const wire = eventObject(event);
    const kind = str(wire['type']) || (event.event ?? '');
    const response: unknown = wire['response'];
    if (ENDS.has(kind) && isObject(response)) return this.finish(wire, response, event);
    if (SNAPSHOTS.has(kind) && isObject(response)) {
      this.anchors = this.whole.anchors(response);
      const given = list(response['output']);
      if (given.some(isCall)) {
        const rest = given.filter((item) => !isCall(item));
        return { events: [this.numbered({ ...wire, response: { ...response, output: rest } })], calls: [] };
      }
    } else if (this.hold(kind, wire, event.data.length)) {
      return { events: [], calls: [] };
    }
    return { events: [this.numbered(wire, event)], calls: [] };
  }

  settle(rulings: Rulings): WireEvent[] {
    let end = this.end;
    if (end === undefined) return [];
    const byId = new Map<string, Ruling>();
    for (const [key, ruling] of rulings) {
      const id = this.asked.get(key);
      if (id !== undefined) byId.set(id, ruling);
    }
    const events: WireEvent[] = [];
    const places = [...this.held.keys()].sort((a, b) => a - b);
    for (const place of places) {
      const held = this.held.get(place) as Held;
      if (held.item === undefined) continue;
      const ruled = rule(held.item, place, byId.get(itemId(held.item)) ?? NO_RULING);
      if ('block' in ruled) events.push(...this.released(held, ruled.block, ruled.block !== held.item));
    }
    this.held.clear();
    this.end = undefined;
    const byPlace = new Map<string, Ruling>();
    list(this.answer['output']).forEach((item, index) => {
      if (isCall(item)) byPlace.set(String(index), byId.get(itemId(item as Wire)) ?? NO_RULING);
    });
    const settled = this.whole.settle(this.answer, byPlace, this.structuredText);
    this.removals = settled.removals;
    for (const removal of settled.removals) {
      if (removal.kept.length > 0) continue;
      const message = wires(settled.answer['output']).find((item) => item['id'] === `msg_${removal.ref}`);
      if (message !== undefined) events.push(...spoken(message, -1).map((wire) => this.numbered(wire)));
    }
    if (Array.isArray((end['response'] as Wire)['output'])) end = { ...end, response: settled.answer };
    return [...events, this.numbered(end)];
  }

  /** Whether the event belongs to a call; then it is kept. */
  private hold(kind: string, wire: Wire, size: number): boolean {
    const place: unknown = wire['output_index'];
    const item: unknown = wire['item'];
    if (!Number.isInteger(place)) return false;
    let held = this.held.get(place as number);
    if (isCall(item)) {
      if (held === undefined) this.held.set(place as number, (held = { events: [], item: undefined }));
      if (kind === 'response.output_item.done') held.item = item as Wire;
    } else if (held === undefined) {
      return false;
    }
    this.bytes.grow(size);
    held.events.push(wire);
    return true;
  }

  private finish(wire: Wire, response: Wire, event: WireEvent): Step {
    this.anchors = this.whole.anchors(response);
    const streamed = new Map<string, Wire>();
    for (const { item } of this.held.values()) if (item !== undefined) streamed.set(itemId(item), item);
    const listed = list(response['output']);
    const calls = (listed.filter(isCall) as Wire[]).slice();
    for (const item of calls) {
      const known = streamed.get(itemId(item));
      if (known !== undefined && substance(known) !== substance(item)) {
        throw new ForeignAnswer('a call differs from the one that was streamed');
      }
      streamed.delete(itemId(item));
    }
    calls.push(...streamed.values());
    if (calls.length === 0) return { events: [this.numbered(wire, event)], calls: [] };
    if (new Set(calls.map(itemId)).size !== calls.length) {
      throw new ForeignAnswer('two calls of the response have the same id');
    }
    this.end = wire;
    this.answer = { ...response, output: [...listed, ...streamed.values()] };
    this.asked = new Map(calls.map((item, number) => [String(number), itemId(item)]));
    return { events: [], calls: calls.map((item, number) => proposed(item, String(number))) };
  }

  private released(held: Held, ruled: Wire, changed: boolean): WireEvent[] {
    if (!changed) return held.events.map((wire) => this.numbered(wire));
    const first = held.events[0] as Wire;
    const last = held.events.at(-1) as Wire;
    const events: Wire[] = [];
    if (first['type'] === 'response.output_item.added') {
      const isFunction = ruled['type'] === 'function_call';
      events.push({ ...first, item: { ...ruled, status: 'in_progress', ...(isFunction ? { arguments: '' } : {}) } });
      if (isFunction) {
        const place = { output_index: last['output_index'] as unknown, item_id: ruled['id'] as unknown };
        const given = ruled['arguments'] as unknown;
        events.push({ type: 'response.function_call_arguments.delta', ...place, delta: given });
        events.push({ type: 'response.function_call_arguments.done', ...place, arguments: given });
      }
    }
    events.push({ ...last, item: ruled });
    return events.map((wire) => this.numbered(wire));
  }

  /**
   * The event with a number above all that went before it, and its item at the place that it has among those that went on;
   * the original where nothing is to be changed.
   */
  private numbered(wire: Wire, original?: WireEvent): WireEvent {
    const number: unknown = wire['sequence_number'] ?? this.number + 1;
    const rising = Number.isInteger(number) ? Math.max(number as number, this.number + 1) : this.number + 1;
    this.number = rising;
    const at: unknown = wire['output_index'];
    const place = Number.isInteger(at) ? this.placed(at as number) : at;
    const same = (rising === number || !('sequence_number' in wire)) && place === at;
    if (original !== undefined && same) return original;
    return eventOf({ ...wire, ...(place === at ? {} : { output_index: place }), sequence_number: rising });
  }

  /** Where an item stands among those that went on: clients take no gaps. */
  private placed(at: number): number {
    const known = this.places.get(at);
    if (known !== undefined) return known;
    const place = this.places.size;
    this.places.set(at, place);
    return place;
  }
}

/** What of a call would be executed. */
function substance(item: Wire): string {
  const call = proposed(item, '');
  return callKey(call) || JSON.stringify([call.tool, call.server, item['arguments']]);
}

/** The events by which a final message is streamed. */
function spoken(message: Wire, place: number): Wire[] {
  const part = (message['content'] as Wire[])[0] as Wire;
  const name = part['type'] === 'refusal' ? 'refusal' : 'text';
  const prefix = name === 'refusal' ? 'response.refusal' : 'response.output_text';
  const at = { item_id: message['id'] as unknown, output_index: place, content_index: 0 };
  const extra = name === 'text' ? { logprobs: [] } : {};
  const said = part[name] as unknown;
  return [
    {
      type: 'response.output_item.added',
      output_index: place,
      item: { ...message, status: 'in_progress', content: [] },
    },
    { type: 'response.content_part.added', ...at, part: { ...part, [name]: '' } },
    { type: `${prefix}.delta`, ...at, delta: said, ...extra },
    { type: `${prefix}.done`, ...at, [name]: said, ...extra },
    { type: 'response.content_part.done', ...at, part },
    { type: 'response.output_item.done', output_index: place, item: message },
  ];
}
