/** Anthropic messages: tool uses in answers, results and refusals in requests. */

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
const SERVER_USES: ReadonlySet<string> = new Set(['server_tool_use', 'mcp_tool_use']);

/** Whether a content block asks the agent's side to execute something; unknown kinds of tool uses do. */
function isCall(block: unknown): boolean {
  if (!isObject(block)) return false;
  const kind = str(block['type']);
  return kind.endsWith('tool_use') && !SERVER_USES.has(kind);
}

/** The call that a block proposes; a toolset is the server of its members. */
function proposed(block: Wire, key: string): Proposed {
  const tool = str(block['name']);
  const toolset = str(block['toolset_name']);
  const server = toolset === '' ? undefined : `toolset:${toolset}`;
  return { key, callId: str(block['id']), tool, server, ...readArguments(tool, block['input']) };
}

/** The block as it may go on, or the record of its refusal. */
function rule(block: Wire, index: number, ruling: Ruling): { block: Wire } | { refused: Refused } {
  if (ruling.allowed) return { block: ruling.arguments === undefined ? block : { ...block, input: ruling.arguments } };
  // Input that could not be read is not an object, and only an object may be sent back.
  const call = isObject(block['input']) ? block : { ...block, input: {} };
  return { refused: { call, callId: str(block['id']), index, message: ruling.message ?? '' } };
}

function refusalOf(refused: Refused): Wire {
  const result = { type: 'tool_result', tool_use_id: refused.callId, content: refused.message, is_error: true };
  const toolset: unknown = refused.call['toolset_name'];
  return toolset === undefined || toolset === null ? result : { ...result, toolset_name: toolset };
}

const keysOf = (kept: readonly Wire[]): string[] => kept.map((block) => callKey(proposed(block, '')));

/** The blocks and the members with which a message ends that has no call left, and the removal. */
function ending(refused: readonly Refused[], message: Wire, structured: boolean): [Wire[], Wire, Removal] {
  const [said, removal] = ended(refused);
  if (structured) {
    const details = { type: 'refusal', category: null, explanation: said };
    return [[], { stop_reason: 'refusal', stop_details: details }, removal];
  }
  const members = message['stop_reason'] === 'tool_use' ? { stop_reason: 'end_turn' } : {};
  return [[{ type: 'text', text: said, citations: null }], members, removal];
}

/** The dialect of `POST /v1/messages`. */
export class MessagesDialect implements Dialect {
  anchors(answer: Wire): readonly string[] {
    return [str(answer['id'])];
  }

  calls(answer: Wire): Proposed[] {
    return list(answer['content']).flatMap((block, index) =>
      isCall(block) ? [proposed(block as Wire, String(index))] : [],
    );
  }

  settle(answer: Wire, rulings: Rulings, structured: boolean): Settled {
    const ruled = ruledBlocks(list(answer['content']), rulings, isCall, rule);
    const { content, kept, refused, place } = ruled;
    if (refused.length === 0) return { answer: kept.length > 0 ? { ...answer, content } : answer, removals: [] };
    if (kept.length > 0) {
      return { answer: { ...answer, content }, removals: [{ refused, kept: keysOf(kept), ref: '', text: '' }] };
    }
    const [blocks, members, removal] = ending(refused, answer, structured);
    content.splice(place, 0, ...blocks);
    return { answer: { ...answer, content, ...members }, removals: [removal] };
  }

  stream(structured: boolean): StreamFilter {
    return new MessagesStream(structured);
  }

  structured(request: Wire): boolean {
    const config: unknown = request['output_config'];
    return Boolean((isObject(config) ? config['format'] : undefined) || request['output_format']);
  }

  outputs(request: Wire): Output[] {
    return list(request['messages']).flatMap((message, at) => {
      if (!isObject(message) || message['role'] !== 'user') return [];
      return list(message['content']).flatMap((block, index): Output[] => {
        if (!isObject(block) || block['type'] !== 'tool_result') return [];
        if (block['content'] === undefined || block['content'] === null) return [];
        const path = ['messages', at, 'content', index, 'content'];
        return [{ callId: str(block['tool_use_id']), value: block['content'], path }];
      });
    });
  }

  putBack(request: Wire, recall: Recall): Wire {
    const messages: unknown[] = [];
    let owing = owedToThread(request, recall);
    let changed = owing.length > 0;
    for (let message of list(request['messages'])) {
      if (owing.length > 0 && !(isObject(message) && message['role'] === 'system')) {
        if (isObject(message) && message['role'] === 'user') {
          const content: unknown = message['content'];
          const rest = Array.isArray(content) ? (content as unknown[]) : content ? [{ type: 'text', text: content }] : [];
          message = { ...message, content: [...owing, ...rest] };
        } else {
          messages.push({ role: 'user', content: owing });
        }
        owing = [];
      }
      const removal = removalOf(message, recall);
      if (removal === undefined) {
        messages.push(message);
        continue;
      }
      changed = true;
      const wire = message as Wire;
      const content = list(wire['content']);
      const results = removal.refused.map(refusalOf);
      if (removal.kept.length > 0) {
        messages.push({ ...wire, content: withCalls(content, removal) });
        owing = results;
      } else {
        const isSaid = (block: unknown): boolean => isObject(block) && str(block['text']).includes(removal.ref);
        const said = content.filter(isSaid);
        const rest = content.filter((block) => !isSaid(block));
        messages.push(
          { ...wire, content: withCalls(rest, removal) },
          { role: 'user', content: results },
          { role: 'assistant', content: said.length > 0 ? said : (wire['content'] as unknown) },
        );
      }
    }
    if (owing.length > 0) messages.push({ role: 'user', content: owing });
    return changed ? { ...request, messages } : request;
  }
}

function owedToThread(request: Wire, recall: Recall): Wire[] {
  const thread: unknown = request['thread'];
  if (!isObject(thread) || list(request['messages']).length === 0) return [];
  const removal = recall.byAnchor(str(thread['previous_message_id']));
  return removal === undefined ? [] : removal.refused.map(refusalOf);
}

function removalOf(message: unknown, recall: Recall): Removal | undefined {
  if (!isObject(message) || message['role'] !== 'assistant') return undefined;
  const blocks = wires(message['content']);
  for (const block of blocks) {
    const found = isCall(block) ? recall.byCall(callKey(proposed(block, ''))) : undefined;
    if (found !== undefined) return found;
  }
  return saidIn(recall, [message['content'], ...blocks.map((block) => block['text'] as unknown)]);
}

function withCalls(content: readonly unknown[], removal: Removal): unknown[] {
  const restored = [...content];
  for (const refused of removal.refused) restored.splice(refused.index, 0, refused.call);
  return restored;
}

/** One tool-use block that is held back. */
interface Held {
  readonly index: number;
  readonly start: Wire;
  readonly events: Wire[];
  stopped: boolean;
}

/** The whole block, with its input read from the deltas; unreadable input stays text. */
function wholeBlock(held: Held): Wire {
  const block = held.start['content_block'] as Wire;
  let text = '';
  for (const event of held.events) {
    const delta: unknown = event['delta'];
    if (isObject(delta) && delta['type'] === 'input_json_delta') text += str(delta['partial_json']);
  }
  if (text === '') return block;
  const read = readArguments(str(block['name']), text);
  return { ...block, input: read.arguments ?? text };
}

/**
 * The filter of one streamed message.
 *
 * Calls that follow one another are released together, as soon as something else follows; blocks are numbered without gaps.
 */
class MessagesStream implements StreamFilter {
  anchors: readonly string[] = [''];
  readonly removals: Removal[] = [];
  private held = new Map<number, Held>();
  private readonly bytes = new HeldBytes();
  private readonly places = new Map<number, number>();
  private readonly kept: Wire[] = [];
  private readonly refused: Refused[] = [];
  private next = 0;
  private waiting: Wire | undefined;
  private done = false;

  constructor(private readonly structuredText: boolean) {}

  feed(event: WireEvent): Step {
    if (event.data === '') return { events: [event], calls: [] };
    const wire = eventObject(event);
    const kind = str(wire['type']) || (event.event ?? '');
    if (kind === 'message_start') {
      this.start(wire);
    } else if (kind === 'content_block_start' && isCall(wire['content_block'])) {
      const index = indexOf(wire);
      if (this.places.has(index) || this.held.has(index)) throw new ForeignAnswer('two blocks of the stream have the same index');
      this.held.set(index, { index, start: wire, events: [], stopped: false });
      this.bytes.grow(event.data.length);
      return { events: [], calls: [] };
    } else if (kind === 'content_block_delta' || kind === 'content_block_stop') {
      const held = this.held.get(indexOf(wire));
      if (held !== undefined) {
        held.events.push(wire);
        held.stopped ||= kind === 'content_block_stop';
        this.bytes.grow(event.data.length);
        return { events: [], calls: [] };
      }
    } else if (kind === 'content_block_start' || kind === 'message_delta' || kind === 'message_stop') {
      return this.ask(kind, wire, event);
    }
    return { events: [this.placed(kind, wire, event)], calls: [] };
  }

  settle(rulings: Rulings): WireEvent[] {
    const events: WireEvent[] = [];
    for (const held of this.held.values()) {
      const block = wholeBlock(held);
      const ruled = rule(block, held.index, rulings.get(String(held.index)) ?? NO_RULING);
      if ('refused' in ruled) {
        this.refused.push(ruled.refused);
      } else {
        this.kept.push(ruled.block);
        events.push(...this.released(held, ruled.block, ruled.block !== block));
      }
    }
    this.held = new Map();
    const waiting = this.waiting;
    this.waiting = undefined;
    if (waiting !== undefined) events.push(...this.resumed(str(waiting['type']), waiting));
    return events;
  }

  private start(wire: Wire): void {
    const message: unknown = wire['message'];
    if (!isObject(message)) return;
    this.anchors = [str(message['id'])];
    if (list(message['content']).some(isCall)) throw new ForeignAnswer('the stream starts with a call');
  }

  private ask(kind: string, wire: Wire, event: WireEvent): Step {
    // A block that never stopped was cut off: it is not a call, and is not passed on.
    this.held = new Map([...this.held].filter(([, held]) => held.stopped));
    if (this.held.size === 0) return { events: this.resumed(kind, wire, event), calls: [] };
    this.waiting = { ...wire, type: kind };
    return { events: [], calls: [...this.held.values()].map((held) => proposed(wholeBlock(held), String(held.index))) };
  }

  /** The event that ends a run of calls; before the end of the message, what stands for refused ones. */
  private resumed(kind: string, wire: Wire, event?: WireEvent): WireEvent[] {
    if (kind === 'content_block_start') {
      const index = indexOf(wire);
      if (this.places.has(index)) throw new ForeignAnswer('two blocks of the stream have the same index');
      this.places.set(index, this.next++);
    } else if (kind === 'message_delta' && this.refused.length > 0 && !this.done) {
      return this.ended(wire);
    }
    return [this.placed(kind, wire, event)];
  }

  private ended(wire: Wire): WireEvent[] {
    this.done = true;
    if (this.kept.length > 0) {
      this.removals.push({ refused: this.refused, kept: keysOf(this.kept), ref: '', text: '' });
      return [eventOf(wire)];
    }
    const delta: Wire = isObject(wire['delta']) ? wire['delta'] : {};
    const [blocks, members, removal] = ending(this.refused, delta, this.structuredText);
    this.removals.push(removal);
    const events = blocks.flatMap((block) => {
      const index = this.next++;
      return [
        eventOf({ type: 'content_block_start', index, content_block: { ...block, text: '' } }),
        eventOf({ type: 'content_block_delta', index, delta: { type: 'text_delta', text: block['text'] as string } }),
        eventOf({ type: 'content_block_stop', index }),
      ];
    });
    return [...events, eventOf({ ...wire, delta: { ...delta, ...members } })];
  }

  private released(held: Held, ruled: Wire, changed: boolean): WireEvent[] {
    const index = this.next++;
    this.places.set(held.index, index);
    const given = changed
      ? [
          { ...held.start, content_block: { ...ruled, input: {} } },
          { type: 'content_block_delta', delta: { type: 'input_json_delta', partial_json: canonical(ruled['input']) } },
          { type: 'content_block_stop' },
        ]
      : [held.start, ...held.events];
    return given.map((wire) => eventOf({ ...wire, index }));
  }

  /** The event with the index that its block has after the filter; the original where that is the same. */
  private placed(kind: string, wire: Wire, event?: WireEvent): WireEvent {
    if (kind.startsWith('content_block_')) {
      const place = this.places.get(indexOf(wire));
      if (place === undefined) throw new ForeignAnswer('an event of the stream belongs to no block');
      if (place !== wire['index']) return eventOf({ ...wire, index: place });
    }
    return event ?? eventOf(wire);
  }
}

function indexOf(wire: Wire): number {
  const index: unknown = wire['index'];
  if (!Number.isInteger(index)) throw new ForeignAnswer('a block of the stream has no index');
  return index as number;
}
