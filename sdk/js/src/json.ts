/**
 * JSON in, strictly, and one sequence of bytes out for one value (RFC 8785).
 *
 * Refused on the way in is what two parsers could read differently: duplicate keys, lone surrogates, numbers beyond a
 * double. Integers that a double cannot hold are a `bigint` here and are written with their exact digits, never rounded:
 * a payment or an identifier that differs in its last digit is another call.
 */

import { createHash } from 'node:crypto';

import { InvalidCall } from './errors';

export const MAX_NESTING = 200; // deeper values are refused before they can exhaust a stack
export const MAX_VALUES = 4_000_000; // shared containers unfold to exponentially many values: bounds the unfolding
export const MAX_DIGITS = 4_000; // turning digits into a number is quadratic: bounds what one number costs

/** A JSON value as this package reads and writes it. */
export type Json = null | boolean | number | bigint | string | readonly Json[] | { readonly [name: string]: Json };
export type JsonObject = { readonly [name: string]: Json };

/** Whether a value is an object with members, and no list. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * The value that `text` spells, and that every strict parser would read the same; throws `InvalidCall`.
 *
 * Names are own members always: one that is called `__proto__` changes nothing else.
 */
export function parse(text: string): Json {
  // (1) Grammar by the engine's parser. What comes back unchanged hid no duplicate key and lost no digit.
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidCall('the body is not strict JSON');
  }
  if (JSON.stringify(value) === text && text.isWellFormed() && !text.includes('\\ud')) return value as Json;
  // (2) Everything else goes through the parser that sees every pair and every digit.
  return new Reader(text).document();
}

/** Read bytes as UTF-8 JSON; throws `InvalidCall`. */
export function parseBytes(data: Uint8Array): Json {
  let text: string;
  try {
    text = UTF8.decode(data);
  } catch {
    throw new InvalidCall('the body is not strict JSON: it is not UTF-8');
  }
  return parse(text);
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\.)*"/sy;
const BLANK = /[ \t\r\n]*/y;
const WORDS: Readonly<Record<string, Json>> = { true: true, false: false, null: null };

/** Reads a text that is known to be JSON, and refuses what the engine's parser lets pass. */
class Reader {
  private at = 0;

  constructor(private readonly text: string) {}

  document(): Json {
    const value = this.value(0);
    this.blank();
    if (this.at !== this.text.length) throw new InvalidCall('the body is not strict JSON: data follows the value');
    return value;
  }

  private value(depth: number): Json {
    this.blank();
    const first = this.text[this.at];
    if (first === '{') return this.object(depth + 1);
    if (first === '[') return this.list(depth + 1);
    if (first === '"') return this.string();
    for (const [word, value] of Object.entries(WORDS)) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.number();
  }

  private object(depth: number): JsonObject {
    this.deep(depth);
    const members: Record<string, Json> = {};
    this.at += 1;
    this.blank();
    if (this.text[this.at] === '}') {
      this.at += 1;
      return members;
    }
    for (;;) {
      this.blank();
      const name = this.string();
      if (Object.hasOwn(members, name)) {
        throw new InvalidCall('an object has the same key twice', { code: 'duplicate_key' });
      }
      this.blank();
      this.at += 1; // the colon
      const value = this.value(depth);
      Object.defineProperty(members, name, { value, enumerable: true, writable: true, configurable: true });
      this.blank();
      this.at += 1;
      if (this.text[this.at - 1] === '}') return members;
    }
  }

  private list(depth: number): readonly Json[] {
    this.deep(depth);
    const items: Json[] = [];
    this.at += 1;
    this.blank();
    if (this.text[this.at] === ']') {
      this.at += 1;
      return items;
    }
    for (;;) {
      items.push(this.value(depth));
      this.blank();
      this.at += 1;
      if (this.text[this.at - 1] === ']') return items;
    }
  }

  private string(): string {
    const value = JSON.parse(this.match(STRING)) as string;
    if (!value.isWellFormed()) throw new InvalidCall('the body is not strict JSON: half a character');
    return value;
  }

  private number(): number | bigint {
    NUMBER.lastIndex = this.at;
    const found = NUMBER.exec(this.text);
    if (found === null) throw new InvalidCall('the body is not strict JSON');
    this.at = NUMBER.lastIndex;
    const digits = found[0];
    const value = Number(digits);
    if (!Number.isFinite(value)) {
      throw new InvalidCall('the body is not strict JSON: a number is beyond what a double holds');
    }
    if (found[1] !== undefined || found[2] !== undefined || Number.isSafeInteger(value)) return value;
    // What a double spells with the very digits stays one: its canonical form is the same.
    return String(value) === digits ? value : BigInt(digits);
  }

  private blank(): void {
    this.match(BLANK);
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found === null) throw new InvalidCall('the body is not strict JSON');
    this.at = pattern.lastIndex;
    return found[0];
  }

  private deep(depth: number): void {
    if (depth > MAX_NESTING * 5) throw new InvalidCall('the body is nested too deeply', { code: 'too_deep' });
  }
}

/**
 * The canonical text of a JSON value.
 *
 * Members that are `undefined` are absent. Throws `InvalidCall` for everything else that is not JSON: other types, NaN
 * and infinities, lone surrogates, nesting beyond `MAX_NESTING` (cycles included), more than `MAX_VALUES` values,
 * integers of more than `MAX_DIGITS` digits.
 */
export function canonical(value: unknown): string {
  const out: string[] = [];
  write(value, out, 0);
  return out.join('');
}

function write(value: unknown, out: string[], depth: number): void {
  if (depth >= MAX_NESTING) {
    throw new InvalidCall(`a value is nested deeper than ${MAX_NESTING} levels`, { code: 'too_deep' });
  }
  if (out.length > 4 * MAX_VALUES) {
    throw new InvalidCall(`a value holds more than ${MAX_VALUES} values`, { code: 'too_large' });
  }
  switch (typeof value) {
    case 'string':
      out.push(quoted(value));
      return;
    case 'number':
      if (!Number.isFinite(value)) throw new InvalidCall('a number is NaN or infinite, which JSON does not have');
      out.push(value === 0 ? '0' : String(value));
      return;
    case 'bigint':
      out.push(digitsOf(value));
      return;
    case 'boolean':
      out.push(value ? 'true' : 'false');
      return;
    case 'object':
      if (value === null) out.push('null');
      else if (Array.isArray(value)) writeList(value, out, depth);
      else writeObject(value, out, depth);
      return;
    default:
      throw new InvalidCall(`a value of type \`${typeof value}\` is not JSON`);
  }
}

function writeList(items: readonly unknown[], out: string[], depth: number): void {
  out.push('[');
  for (let position = 0; position < items.length; position += 1) {
    if (position > 0) out.push(',');
    write(items[position], out, depth + 1);
  }
  out.push(']');
}

function writeObject(value: object, out: string[], depth: number): void {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null && !isForeignPlain(prototype)) {
    throw new InvalidCall(`a value of type \`${value.constructor?.name ?? 'object'}\` is not JSON`);
  }
  // RFC 8785, 3.2.3: keys are ordered by their UTF-16 code units, which is the order of this language.
  const names = Object.keys(value).sort();
  out.push('{');
  let first = true;
  for (const name of names) {
    const member = (value as Record<string, unknown>)[name];
    if (member === undefined) continue;
    if (!first) out.push(',');
    first = false;
    out.push(quoted(name), ':');
    write(member, out, depth + 1);
  }
  out.push('}');
}

/** Whether a prototype is the plain object's of another realm (a `vm` context, a test runner). */
function isForeignPlain(prototype: unknown): boolean {
  return (
    typeof prototype === 'object' &&
    prototype !== null &&
    Object.getPrototypeOf(prototype) === null &&
    Object.hasOwn(prototype, 'isPrototypeOf')
  );
}

function quoted(text: string): string {
  if (!text.isWellFormed()) {
    throw new InvalidCall('a value is not valid JSON text (lone surrogate or unsupported type)');
  }
  return JSON.stringify(text);
}

const MOST = 10n ** BigInt(MAX_DIGITS);

function digitsOf(value: bigint): string {
  if (value >= MOST || value <= -MOST) {
    throw new InvalidCall(`an integer has more than ${MAX_DIGITS} digits`, { code: 'too_large' });
  }
  return value.toString();
}

/** `sha-256:` and the lower-case hex digest of a text's UTF-8. */
export function sha256(text: string): string {
  return `sha-256:${createHash('sha256').update(text).digest('hex')}`;
}

/**
 * The digest of a call: SHA-256 over the canonical JSON of `{arguments, server, tool}`.
 *
 * `args` is canonical text; over the submitted one this is the request digest, over the one that will run the call digest.
 */
export function callDigest(server: string | null | undefined, tool: string, args: string): string {
  return sha256(`{"arguments":${args},"server":${quotedOrNull(server)},"tool":${quoted(tool)}}`);
}

function quotedOrNull(text: string | null | undefined): string {
  return text === null || text === undefined ? 'null' : quoted(text);
}

/** One reference token of a JSON pointer (RFC 6901), escaped. */
export function escapeToken(token: string): string {
  return token.replaceAll('~', '~0').replaceAll('/', '~1');
}

/** Text as it goes to a model or a host: as it is, or as JSON; integers of any size with their digits. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : stringify(value);
}

/** JSON text of a value in the order of its members, integers of any size with their digits. */
export function stringify(value: unknown): string {
  if (typeof value === 'bigint') return value.toString();
  if (Array.isArray(value)) return `[${value.map((item) => stringify(item ?? null)).join(',')}]`;
  if (isObject(value)) {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${stringify(member)}`).join(',')}}`;
  }
  return JSON.stringify(value) ?? 'null';
}

/**
 * A value as JSON, the way this language makes it: `toJSON` is asked, `undefined` members are absent.
 *
 * Throws `InvalidCall` for what has no such form: functions, streams, cycles, numbers that JSON does not have.
 */
export function jsonable(value: unknown, depth = 0): Json {
  if (depth > MAX_NESTING) {
    throw new InvalidCall(`a value is nested deeper than ${MAX_NESTING} levels`, { code: 'too_deep' });
  }
  if (value === null || value === undefined) return null;
  if (typeof value === 'string' || typeof value === 'boolean' || typeof value === 'bigint') return value;
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new InvalidCall('a number is NaN or infinite, which JSON does not have');
    return value;
  }
  if (typeof value !== 'object') throw new InvalidCall(`a value of type \`${typeof value}\` is not JSON`);
  const own = (value as { toJSON?: unknown }).toJSON;
  if (typeof own === 'function') return jsonable((own as (key: string) => unknown).call(value, ''), depth + 1);
  if (Array.isArray(value)) return value.map((item) => jsonable(item, depth + 1));
  if (isStream(value)) throw new InvalidCall('a stream is not JSON');
  if (value instanceof Map || value instanceof Set || ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
    throw new InvalidCall(`a value of type \`${value.constructor.name}\` is not JSON`);
  }
  const members: Record<string, Json> = {};
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined || typeof member === 'function' || typeof member === 'symbol') {
      if (member === undefined) continue;
      throw new InvalidCall(`a value of type \`${typeof member}\` is not JSON`);
    }
    Object.defineProperty(members, name, {
      value: jsonable(member, depth + 1),
      enumerable: true,
      writable: true,
      configurable: true,
    });
  }
  return members;
}

/** Whether a value can be read only once, or is not there yet: a promise, an iterator, a stream. */
export function isStream(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const found = value as Record<PropertyKey, unknown>;
  return (
    typeof found['then'] === 'function' ||
    typeof found['next'] === 'function' ||
    typeof found['getReader'] === 'function' ||
    typeof found['pipe'] === 'function' ||
    typeof found[Symbol.asyncIterator] === 'function'
  );
}
