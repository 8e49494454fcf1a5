/** The reasoning of a model in its answers, for the receipt of the calls that it makes: nobody believes it. */

import { list, str, type Wire, type WireEvent, wires } from './dialects/model';
import { canonical, isObject, sha256 } from './json';

// The bounds of the gateway (`aegis.core.reasoning`): beyond them the end is sent, and the digest of all.
const MAX_BLOCKS = 256;
const MAX_CHARS = 65_536;
const MAX_SIGNATURE_CHARS = 128;
const MAX_COLLECTED = 8_388_608; // characters of one answer: beyond it nothing more of its reasoning is read
const HINTS = ['hinking', 'easoning', 'signature']; // one of them is in every event that brings any

/** One block: its text, empty where the provider hides it, and the provider's signature over it, where there is one. */
export interface ReasoningBlock {
  readonly text?: string | undefined;
  readonly signature?: string | undefined;
}

/** What a host says of why a call is made; `digest` is of all blocks where these are only a part of them. */
export interface Reasoning {
  readonly blocks?: readonly ReasoningBlock[] | undefined;
  readonly purpose?: string | undefined;
  readonly digest?: string | undefined;
  readonly changed?: number | undefined;
}

type Whole = Required<{ [name in keyof ReasoningBlock]: string }>;

/** What a call brings of these blocks, within bounds; `undefined` of nothing. */
export function reasoningOf(blocks: readonly ReasoningBlock[]): Reasoning | undefined {
  const whole = blocks.map(plain).filter((one) => one.text !== '' || one.signature !== '');
  if (whole.length === 0) return undefined;
  const kept: Whole[] = [];
  let left = MAX_CHARS;
  for (const one of whole.slice(-MAX_BLOCKS).reverse()) {
    const text = left > 0 ? wellFormed(one.text.slice(-left)) : '';
    left -= text.length;
    kept.unshift({ text, signature: one.signature });
  }
  const cut = digestOf(kept) === digestOf(whole) ? {} : { digest: digestOf(whole) };
  return { blocks: kept.map(({ text, signature }) => ({ ...(text && { text }), ...(signature && { signature }) })), ...cut };
}

const digestOf = (blocks: readonly Whole[]): string => sha256(canonical(blocks.map((one) => [one.text, one.signature])));
// Half of a pair of code units has no form in UTF-8.
const wellFormed = (text: string): string => text.replace(/\p{Surrogate}/gu, '?');

function plain(block: ReasoningBlock): Whole {
  const signature = wellFormed(block.signature ?? '');
  return { text: wellFormed(block.text ?? ''), signature: signature.length > MAX_SIGNATURE_CHARS ? sha256(signature) : signature };
}

/** Collects the reasoning of one answer, from the whole or from the events of its stream. */
export class ReasoningReader {
  private readonly blocks: Whole[] = [];
  private readonly open = new Map<number, Whole>();
  private left = MAX_COLLECTED;

  /** What was collected until now, blocks included whose end was not told. */
  get found(): Reasoning | undefined {
    return reasoningOf([...this.blocks, ...this.open.values()]);
  }

  /** Take a whole answer. */
  whole(answer: Wire): this {
    for (const message of messagesOf(answer)) this.add(blocksOf(message));
    return this;
  }

  /** Take an event of a stream. */
  take({ data }: WireEvent): void {
    if (!HINTS.some((hint) => data.includes(hint)) && this.open.size === 0) return;
    let value: unknown;
    try {
      value = JSON.parse(data);
    } catch {
      return; // what is no JSON spells none
    }
    if (!isObject(value)) return;
    const wire: Wire = value;
    const index: unknown = wire['index'];
    if (typeof index === 'number' && this.piece(index, wire)) return;
    const item: unknown = wire['type'] === 'response.output_item.done' ? wire['item'] : undefined;
    for (const message of isObject(item) ? [item] : messagesOf(wire)) this.add(blocksOf(message));
  }

  /** Take a piece of a block that comes in pieces, as Anthropic's do. */
  private piece(index: number, wire: Wire): boolean {
    const begun: unknown = wire['content_block'];
    if (isObject(begun)) {
      for (const block of inPart(begun)) this.grow(index, block.text, block.signature);
      return true;
    }
    const delta: unknown = wire['delta'];
    if (isObject(delta) && (delta['type'] === 'thinking_delta' || delta['type'] === 'signature_delta')) {
      this.grow(index, str(delta['thinking']), str(delta['signature']));
      return true;
    }
    const block = wire['type'] === 'content_block_stop' ? this.open.get(index) : undefined;
    if (block === undefined) return false;
    this.open.delete(index);
    this.blocks.push(block);
    return true;
  }

  private grow(index: number, text: string, signature: string): void {
    const block = this.open.get(index) ?? { text: '', signature: '' };
    this.left -= text.length + signature.length;
    if (this.left > 0) this.open.set(index, { text: block.text + text, signature: block.signature + signature });
  }

  /** Keep blocks; texts that come in pieces without a signature make one block. */
  private add(found: readonly Whole[]): void {
    for (const block of found) {
      this.left -= block.text.length + block.signature.length;
      if (this.left <= 0) return;
      const last = this.blocks.at(-1);
      if (last !== undefined && last.signature === '' && block.signature === '') {
        this.blocks[this.blocks.length - 1] = { text: last.text + block.text, signature: '' };
      } else {
        this.blocks.push(block);
      }
    }
  }
}

/** The messages of an answer, or of an event that is one with some of its parts. */
function messagesOf(answer: Wire): Wire[] {
  const chosen = wires(answer['choices']).flatMap((one) => [one['message'], one['delta']].filter(isObject));
  return [...chosen, ...wires(answer['output']), ...(Array.isArray(answer['content']) ? [answer] : [])];
}

function blocksOf(message: Wire): Whole[] {
  if (message['type'] === 'reasoning') return [ofItem(message)].filter((one) => one.text !== '' || one.signature !== '');
  const texts = ['reasoning_content', 'reasoning', 'thinking'].map((name) => str(message[name])).filter((text) => text !== '');
  const beside = texts.slice(0, 1).map((text) => ({ text, signature: '' }));
  return [...beside, ...wires(message['content']).flatMap(inPart)];
}

/** A reasoning item of OpenAI: what it tells of itself, and what it encrypts. */
function ofItem(item: Wire): Whole {
  const told = [...list(item['summary']), ...list(item['content'])].filter(isObject).map((one) => str(one['text']));
  return { text: told.filter((text) => text !== '').join('\n'), signature: str(item['encrypted_content']) };
}

function inPart(part: Wire): Whole[] {
  if (part['type'] === 'thinking') return [{ text: str(part['thinking']), signature: str(part['signature']) }];
  return part['type'] === 'redacted_thinking' ? [{ text: '', signature: str(part['data']) }] : [];
}
