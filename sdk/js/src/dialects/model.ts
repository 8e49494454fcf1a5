/** What every wire format is translated into: calls that a model proposes, and what became of them. */

import { randomBytes } from 'node:crypto';

import { ForeignAnswer } from '../errors';
import { canonical, isObject, parse, sha256, stringify, textOf } from '../json';
import type { Recall, Refused, Removal } from '../memory';

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Wire = Record<string, any>;

const MAX_HELD_BYTES = 33_554_432; // calls of one answer held back while they are decided: bounds the memory
const MARK = '[aegis ';
const REF_CHARS = 16;
const NO_NAME = 'the call names no tool; name the tool that is to be called';

/**
 * One tool call as it stands in an answer: `key` is its place, `callId` the provider's id.
 *
 * Without `arguments` they cannot be read, and `problem` says why, for the model.
 */
export interface Proposed {
  readonly key: string;
  readonly callId: string;
  readonly tool: string;
  readonly arguments?: Record<string, unknown> | undefined;
  readonly server?: string | undefined;
  readonly problem: string;
}

/** What becomes of one proposed call: it runs, runs with `arguments`, or is refused with `message`. */
export interface Ruling {
  readonly allowed: boolean;
  readonly arguments?: Record<string, unknown> | undefined;
  readonly message?: string | undefined;
}

export type Rulings = ReadonlyMap<string, Ruling>;
export const NO_RULING: Ruling = { allowed: false, message: 'the call was refused' };

/** An answer after its calls were ruled on. */
export interface Settled {
  readonly answer: Wire;
  readonly removals: readonly Removal[];
}

/** One tool result in a request, and the path to its value. `shell` says that the value is what commands printed. */
export interface Output {
  readonly callId: string;
  readonly value: unknown;
  readonly path: readonly (string | number)[];
  readonly shell?: boolean;
}

/** One server-sent event. */
export interface WireEvent {
  readonly data: string;
  readonly event?: string;
  readonly id?: string;
  readonly retry?: string;
}

/** What an event of a stream leads to: events to pass on now, and calls to rule on before going on. */
export interface Step {
  readonly events: readonly WireEvent[];
  readonly calls: readonly Proposed[];
}

/** The events of one streamed answer: text passes at once, calls are held back until they are ruled on. */
export interface StreamFilter {
  readonly anchors: readonly string[];
  readonly removals: readonly Removal[];
  feed(event: WireEvent): Step;
  /** The events that may go on after a step with calls. */
  settle(rulings: Rulings): WireEvent[];
}

/** One wire format, both ways; inputs are never changed in place. */
export interface Dialect {
  /** The names under which the provider keeps an answer: first its own id (it may be empty), then others. */
  anchors(answer: Wire): readonly string[];
  /** The calls that the agent's side would execute, in order. */
  calls(answer: Wire): Proposed[];
  /** The answer without its refused calls and with changed arguments in place; one without a ruling is refused. */
  settle(answer: Wire, rulings: Rulings, structured: boolean): Settled;
  stream(structured: boolean): StreamFilter;
  /** Whether the request asks for text that is going to be parsed as data. */
  structured(request: Wire): boolean;
  /** The tool results that a request carries. */
  outputs(request: Wire): Output[];
  /** The request with the refused calls of earlier answers, and their refusals, where they belong. */
  putBack(request: Wire, recall: Recall): Wire;
}

export const str = (value: unknown): string => (typeof value === 'string' ? value : '');
export const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
export const wires = (value: unknown): Wire[] => list(value).filter(isObject) as Wire[];

/** The object that a model's arguments spell, or a sentence that tells the model what to mend. */
export function readArguments(tool: string, text: unknown): Pick<Proposed, 'arguments' | 'problem'> {
  if (tool === '') return { problem: NO_NAME };
  if (isObject(text)) return { arguments: text, problem: '' };
  if (typeof text !== 'string') {
    return { problem: `the arguments of \`${tool}\` are missing; call it again with a JSON object` };
  }
  if (text.trim() === '') return { arguments: {}, problem: '' };
  let value: unknown;
  try {
    value = parse(text);
  } catch (error) {
    return { problem: `the arguments of \`${tool}\` cannot be read: ${(error as Error).message}; call it again with valid JSON` };
  }
  if (!isObject(value)) {
    return { problem: `the arguments of \`${tool}\` are JSON but not an object; call it again with a JSON object` };
  }
  // What runs the call reads its text with the language's own parser, which would round the number after the decision.
  if (hasBig(value)) {
    return { problem: `a number in the arguments of \`${tool}\` has too many digits to be kept; call it again with text` };
  }
  return { arguments: value, problem: '' };
}

function hasBig(value: unknown): boolean {
  if (typeof value === 'bigint') return true;
  if (Array.isArray(value)) return value.some(hasBig);
  return isObject(value) && Object.values(value).some(hasBig);
}

/** By what a call that stayed is known again: its id, tool and arguments; empty for a call without id. */
export function callKey(call: Proposed): string {
  if (call.callId === '' || call.arguments === undefined) return '';
  try {
    return sha256(`${call.callId}\0${call.server ?? ''}\0${call.tool}\0${canonical(call.arguments)}`);
  } catch {
    return '';
  }
}

/** What an answer says in place of its calls, none of which is left, and what was taken out of it. */
export function ended(refused: readonly Refused[], text = ''): [string, Removal] {
  // A reference that nobody can guess: another conversation must not be able to name it.
  const ref = randomBytes(REF_CHARS / 2).toString('hex');
  const said = `${refused.map((one) => one.message).join('\n')} ${MARK}${ref}]`;
  return [said, { refused, kept: [], ref, text }];
}

/** The removal that one of the texts refers to. */
export function saidIn(recall: Recall, texts: readonly unknown[]): Removal | undefined {
  for (const text of texts) {
    if (typeof text !== 'string') continue;
    for (let at = text.indexOf(MARK); at >= 0; at = text.indexOf(MARK, at + MARK.length)) {
      const end = at + MARK.length + REF_CHARS;
      const found = text[end] === ']' ? recall.byRef(text.slice(at + MARK.length, end)) : undefined;
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

/** The blocks of one answer after its calls were ruled on; `place` is where the first refused call stood. */
export interface Ruled {
  readonly content: unknown[];
  readonly kept: Wire[];
  readonly refused: Refused[];
  readonly place: number;
}

/** Rule on the calls among the blocks of an answer, whose keys are their places. */
export function ruledBlocks(
  blocks: readonly unknown[],
  rulings: Rulings,
  isCall: (block: unknown) => boolean,
  rule: (block: Wire, index: number, ruling: Ruling) => { block: Wire } | { refused: Refused },
): Ruled {
  const content: unknown[] = [];
  const kept: Wire[] = [];
  const refused: Refused[] = [];
  let place = 0;
  blocks.forEach((block, index) => {
    if (!isCall(block)) {
      content.push(block);
      return;
    }
    const one = rule(block as Wire, index, rulings.get(String(index)) ?? NO_RULING);
    if ('refused' in one) {
      if (refused.length === 0) place = content.length;
      refused.push(one.refused);
    } else {
      kept.push(one.block);
      content.push(one.block);
    }
  });
  return { content, kept, refused, place };
}

/** The object that an event spells; throws `ForeignAnswer` for anything else. */
export function eventObject(event: WireEvent): Wire {
  let value: unknown;
  try {
    value = JSON.parse(event.data);
  } catch {
    throw new ForeignAnswer('an event of the stream is not JSON');
  }
  if (!isObject(value)) throw new ForeignAnswer('an event of the stream is not an object');
  return value;
}

/** How much of one answer is held back until its calls are ruled on. */
export class HeldBytes {
  private size = 0;

  grow(size: number): void {
    this.size += size;
    if (this.size > MAX_HELD_BYTES) throw new ForeignAnswer('the calls of the stream are too large');
  }
}

/** The value in the shape that the place of an output takes. */
export function framed(output: Output, value: unknown): unknown {
  if (output.shell === true && !Array.isArray(value)) return printed(textOf(value));
  return typeof output.value === 'string' && typeof value !== 'string' ? stringify(value) : value;
}

/** A notice as what a command printed. */
export function printed(notice: string): unknown[] {
  return [{ stdout: '', stderr: notice, outcome: { type: 'exit', exit_code: 1 } }];
}

/** A copy of `root` with the values at some paths replaced; containers off the paths are shared. */
export function putAll(root: Wire, changes: readonly (readonly [readonly (string | number)[], unknown])[]): Wire {
  const copies = new Map<object, object>();
  const own = (container: object): Wire => {
    const known = copies.get(container);
    if (known !== undefined) return known as Wire;
    const copy = Array.isArray(container) ? [...(container as unknown[])] : { ...container };
    copies.set(container, copy);
    copies.set(copy, copy);
    return copy as Wire;
  };
  const changed = own(root);
  for (const [path, value] of changes) {
    let place = changed;
    for (const token of path.slice(0, -1)) place = place[token] = own(place[token] as object);
    place[path.at(-1) as string] = value;
  }
  return changed;
}

/** An event that says an object, under its own type where it has one. */
export function eventOf(wire: Wire): WireEvent {
  const type = str(wire['type']);
  return type === '' ? { data: stringify(wire) } : { event: type, data: stringify(wire) };
}
