/**
 * A streamed result at the gateway: lines out, verdicts in, released bytes back.
 *
 * The gateway says how many bytes, from the first on, may be passed on; nothing else of the stream leaves here, and what
 * ends in any other way than with a recorded permission is cut.
 */

import type { Socket } from 'node:net';

import { InvalidCall, StreamCut } from './errors';
import { type Headers, HttpAnswer, requestHead, WireError } from './http1';
import { isObject, parseBytes } from './json';
import { type Transport, TransportError } from './transport';
import type { ResultDecision } from './values';
import * as wire from './wire';

const MAX_PIECE = 524_288; // bytes that one line carries: the gateway takes lines of a mebibyte
const MAX_AHEAD = 1_048_576; // bytes sent and not yet answered: bounds what is kept here

export type Chunk = Uint8Array | string;

export interface StreamOptions {
  /** What the chunks hold: plain bytes, server-sent events (`sse`) or lines of JSON (`lines`). */
  readonly framing?: 'plain' | 'sse' | 'lines';
  /** The tool's signature over the whole; asked once the last chunk came. */
  readonly provenance?: () => string | undefined;
}

interface Talk {
  readonly host: string;
  readonly headers: Headers;
  readonly seconds: number;
}

/** What of `chunks` may be used; throws `StreamCut` where it may not, and what the source of the chunks throws. */
export async function* judgedStream(
  transport: Transport,
  talk: Talk,
  decisionId: string,
  chunks: AsyncIterable<Chunk> | Iterable<Chunk>,
  options: StreamOptions,
): AsyncGenerator<Buffer> {
  const target = `/v1/results/${encodeURIComponent(decisionId)}/stream?framing=${options.framing ?? 'plain'}`;
  const headers = { ...talk.headers, 'content-type': 'application/x-ndjson', 'transfer-encoding': 'chunked' };
  let exchange: Exchange;
  try {
    exchange = new Exchange(await transport.connect(talk.seconds), talk.seconds);
  } catch (error) {
    throw cut(error);
  }
  try {
    exchange.begin(requestHead('POST', target, talk.host, headers), chunks, options.provenance);
    while (exchange.decision === undefined) {
      const passed = await exchange.hear();
      if (passed.length > 0) yield passed;
    }
  } catch (error) {
    throw cut(error);
  } finally {
    exchange.close();
  }
  if (!exchange.decision.allowed) throw new StreamCut(exchange.decision);
}

/** What goes wrong on the wire cuts the stream; everything else is as it is. */
function cut(error: unknown): unknown {
  if (error instanceof TransportError || error instanceof WireError) return new StreamCut(wire.withheld('unavailable'));
  return error;
}

/** One connection on which a stream is sent while its verdicts are read. */
class Exchange {
  decision: ResultDecision | undefined;
  private readonly answer = new HttpAnswer();
  private readonly waiting: { settle: () => void }[] = [];
  private kept: Buffer[] = [];
  private passed: Buffer[] = [];
  private lines: Buffer = Buffer.alloc(0);
  private sent = 0;
  private answered = 0;
  private released = 0;
  private ended = false;
  private failure: { error: unknown } | undefined;
  private closed = false;

  constructor(
    private readonly socket: Socket,
    private readonly seconds: number,
  ) {
    socket.on('data', (data: Buffer) => this.receive(data));
    socket.on('error', () => this.fail(new TransportError('the gateway went away')));
    socket.on('close', () => this.fail(new TransportError('the gateway went away')));
  }

  /** Send, from now on, beside whatever is heard. */
  begin(head: string, chunks: AsyncIterable<Chunk> | Iterable<Chunk>, provenance?: () => string | undefined): void {
    this.send(head, chunks, provenance).catch((error: unknown) => this.fail(error));
  }

  /** The bytes that the next words of the gateway release, if any. */
  async hear(): Promise<Buffer> {
    if (this.passed.length === 0 && this.failure === undefined && this.decision === undefined) await this.news();
    if (this.passed.length > 0) return Buffer.concat(this.passed.splice(0));
    if (this.failure !== undefined && this.decision === undefined) throw this.failure.error;
    return Buffer.alloc(0);
  }

  close(): void {
    this.closed = true;
    this.socket.destroy();
    this.wake();
  }

  private async send(
    head: string,
    chunks: AsyncIterable<Chunk> | Iterable<Chunk>,
    provenance?: () => string | undefined,
  ): Promise<void> {
    this.socket.write(head);
    for await (const chunk of chunks) {
      const data = typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.from(chunk);
      for (let start = 0; start < data.length; start += MAX_PIECE) {
        const piece = data.subarray(start, start + MAX_PIECE);
        this.kept.push(piece);
        this.sent += piece.length;
        this.socket.write(framed({ base64: piece.toString('base64') }));
        this.wake(); // from here on the gateway owes an answer
        while (this.sent - this.answered > MAX_AHEAD && !this.over) await this.news();
      }
      if (this.over) return;
    }
    const signature = provenance?.();
    this.socket.write((signature === undefined ? '' : framed({ provenance: signature })) + '0\r\n\r\n');
    this.ended = true;
    this.wake();
  }

  private get over(): boolean {
    return this.closed || this.failure !== undefined || this.decision !== undefined;
  }

  /** Wait for something to happen; a silent source is waited for, a gateway that owes an answer not for ever. */
  private news(): Promise<void> {
    return new Promise((settle) => {
      const owes = this.ended || this.sent > this.answered;
      const late = (): void => this.fail(new TransportError('the gateway did not answer in time'));
      const timer = owes ? setTimeout(late, this.seconds * 1000) : undefined;
      this.waiting.push({
        settle: () => {
          clearTimeout(timer);
          settle();
        },
      });
    });
  }

  private wake(): void {
    for (const one of this.waiting.splice(0)) one.settle();
  }

  private fail(error: unknown): void {
    this.failure ??= { error };
    this.wake();
  }

  private receive(data: Buffer): void {
    if (this.over) return;
    try {
      this.answer.feed(data);
      this.read();
    } catch (error) {
      this.fail(error);
      return;
    }
    this.wake();
  }

  private read(): void {
    const { status, done } = this.answer;
    if (status !== 200) {
      if (!done) return;
      if (status >= 400 && status < 500 && status !== 429) throw wire.readError(this.answer.body, status);
      throw new WireError('the gateway does not judge the stream');
    }
    this.lines = Buffer.concat([this.lines, this.answer.take()]);
    for (let end = this.lines.indexOf(10); end >= 0 && this.decision === undefined; end = this.lines.indexOf(10)) {
      const line = this.lines.subarray(0, end);
      this.lines = this.lines.subarray(end + 1);
      this.verdict(line);
    }
    if (done && this.decision === undefined) throw new WireError('the verdicts ended before the stream');
  }

  private verdict(line: Buffer): void {
    const [taken, released, final] = countsOf(line);
    if (!(this.released <= released && released <= taken && taken <= this.sent)) {
      throw new WireError('a verdict releases what was not sent');
    }
    this.answered = taken;
    const all = Buffer.concat(this.kept);
    const now = all.subarray(0, released - this.released);
    this.kept = [all.subarray(now.length)];
    this.released = released;
    if (now.length > 0) this.passed.push(now);
    if (final) {
      try {
        this.decision = wire.readResult(line);
      } catch {
        throw new WireError('a verdict is malformed');
      }
    }
  }
}

function countsOf(line: Buffer): [number, number, boolean] {
  let value: unknown;
  try {
    value = parseBytes(line);
  } catch (error) {
    if (error instanceof InvalidCall) throw new WireError('a verdict is malformed');
    throw error;
  }
  if (!isObject(value)) throw new WireError('a verdict is malformed');
  const { bytes, released, final } = value;
  if (!Number.isSafeInteger(bytes) || !Number.isSafeInteger(released) || typeof final !== 'boolean') {
    throw new WireError('a verdict is malformed');
  }
  return [bytes as number, released as number, final];
}

/** One line as a chunk of the body (RFC 9112, 7.1). */
function framed(value: Readonly<Record<string, string>>): string {
  const line = `${JSON.stringify(value)}\n`;
  return `${Buffer.byteLength(line).toString(16)}\r\n${line}\r\n`;
}
