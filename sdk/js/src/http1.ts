/**
 * HTTP/1.1 as the client needs it: one request out, one answer in, without any I/O of its own.
 *
 * What is not plainly one well-formed answer (RFC 9112) throws `WireError`; nothing is guessed or repaired.
 */

const MAX_HEAD_BYTES = 65_536; // a head that never ends would fill the memory
const MAX_BODY_BYTES = 33_554_432; // a decision carries arguments of at most 4 MiB, escaped sixfold at worst

/** The peer sent something other than one well-formed HTTP/1.1 answer. */
export class WireError extends Error {}

export type Headers = Readonly<Record<string, string>>;

/** The head of one request; names and values were checked by `checkHeaderValue` before. */
export function requestHead(method: string, target: string, host: string, headers: Headers): string {
  const lines = [`${method} ${target} HTTP/1.1`, `host: ${host}`, 'accept: application/json'];
  for (const name in headers) lines.push(`${name}: ${headers[name]}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

/** One request, ready to send. */
export function requestText(method: string, target: string, host: string, headers: Headers, body: string | null): string {
  if (body === null) return requestHead(method, target, host, headers);
  const framed = { 'content-type': 'application/json', ...headers, 'content-length': String(Buffer.byteLength(body)) };
  return requestHead(method, target, host, framed) + body;
}

/** Whether a value is visible ASCII: a line break would start another header. */
export function isHeaderValue(value: string): boolean {
  return /^[!-~]+$/.test(value);
}

type State = 'head' | 'length' | 'chunk-size' | 'chunk' | 'chunk-end' | 'trailers' | 'until-close' | 'done';

/** One answer, as far as it has arrived. */
export class HttpAnswer {
  status = 0;
  headers: Record<string, string> = Object.create(null) as Record<string, string>;
  /** Whether at least one byte came. */
  started = false;
  /** Whether the connection may carry another request once `done`. */
  reusable = false;
  private parts: Buffer[] = [];
  private size = 0;
  private state: State = 'head';
  private left = 0;
  private buffer: Buffer = Buffer.alloc(0);

  /** Whether the answer is complete. */
  get done(): boolean {
    return this.state === 'done';
  }

  /** The body as far as it has arrived. */
  get body(): Buffer {
    if (this.parts.length > 1) this.parts = [Buffer.concat(this.parts)];
    return this.parts[0] ?? Buffer.alloc(0);
  }

  /** Take what of the body has arrived, and forget it. */
  take(): Buffer {
    const body = this.body;
    this.parts = [];
    return body;
  }

  /** Take the next bytes; throws `WireError`. */
  feed(data: Buffer): void {
    this.started = true;
    this.buffer = this.buffer.length === 0 ? data : Buffer.concat([this.buffer, data]);
    while (this.advance()) continue;
    if (this.done && this.buffer.length > 0) throw new WireError('bytes follow the answer');
    if (this.size > MAX_BODY_BYTES) throw new WireError('the answer is too large');
  }

  /** Take the end of the stream; throws `WireError` where the answer was cut off. */
  end(): void {
    if (this.state !== 'until-close') throw new WireError('the answer was cut off');
    this.state = 'done';
  }

  private advance(): boolean {
    switch (this.state) {
      case 'head':
        return this.readHead();
      case 'length':
      case 'chunk':
        return this.readCounted();
      case 'chunk-size':
        return this.readChunkSize();
      case 'chunk-end':
        return this.readChunkEnd();
      case 'trailers':
        return this.readTrailers();
      case 'until-close':
        this.keep(this.buffer.length);
        return false;
      case 'done':
        return false;
    }
  }

  private keep(count: number): void {
    if (count > 0) this.parts.push(this.buffer.subarray(0, count));
    this.size += count;
    this.buffer = this.buffer.subarray(count);
  }

  private readHead(): boolean {
    const end = this.buffer.indexOf('\r\n\r\n');
    if (end < 0) {
      if (this.buffer.length > MAX_HEAD_BYTES) throw new WireError('the head of the answer is too large');
      return false;
    }
    const [first = '', ...rest] = this.buffer.toString('latin1', 0, end).split('\r\n');
    this.buffer = this.buffer.subarray(end + 4);
    const found = /^HTTP\/1\.1 ([0-9]{3})(?: |$)/.exec(first);
    if (found === null) throw new WireError('the answer does not begin with an HTTP/1.1 status line');
    this.status = Number(found[1]);
    for (const line of rest) this.readField(line);
    if (this.status >= 100 && this.status < 200) {
      this.headers = Object.create(null) as Record<string, string>;
      return true;
    }
    this.frame();
    return true;
  }

  private readField(line: string): void {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon);
    if (colon < 1 || name !== name.trim() || line.includes('\n')) throw new WireError('a header is malformed');
    const key = name.toLowerCase();
    if (key in this.headers && ONCE.has(key)) throw new WireError('a header of the answer is given twice');
    this.headers[key] = line.slice(colon + 1).trim();
  }

  private frame(): void {
    // RFC 9112, section 6.3: a body is framed in exactly one way, or the peers may disagree on its end.
    const coding = this.headers['transfer-encoding'];
    const length = this.headers['content-length'];
    this.reusable = this.headers['connection']?.toLowerCase() !== 'close';
    if (coding !== undefined) {
      if (coding.toLowerCase() !== 'chunked' || length !== undefined) {
        throw new WireError('the answer is framed in more than one way');
      }
      this.state = 'chunk-size';
    } else if (this.status === 204 || this.status === 304) {
      this.state = 'done';
    } else if (length !== undefined) {
      if (!/^[0-9]{1,10}$/.test(length) || Number(length) > MAX_BODY_BYTES) {
        throw new WireError('the length of the answer is not one that is accepted');
      }
      this.left = Number(length);
      this.state = this.left > 0 ? 'length' : 'done';
    } else {
      this.reusable = false;
      this.state = 'until-close';
    }
  }

  private readCounted(): boolean {
    const count = Math.min(this.left, this.buffer.length);
    this.keep(count);
    this.left -= count;
    if (this.left > 0) return false;
    this.state = this.state === 'length' ? 'done' : 'chunk-end';
    return !this.done;
  }

  private line(): string | null {
    const end = this.buffer.indexOf('\r\n');
    if (end < 0) {
      if (this.buffer.length > MAX_HEAD_BYTES) throw new WireError('a line of the answer is too long');
      return null;
    }
    const line = this.buffer.toString('latin1', 0, end);
    this.buffer = this.buffer.subarray(end + 2);
    return line;
  }

  private readChunkSize(): boolean {
    const line = this.line();
    if (line === null) return false;
    const digits = (line.split(';', 1)[0] ?? '').trim();
    if (!/^[0-9a-fA-F]{1,8}$/.test(digits)) throw new WireError('a chunk of the answer has no size');
    this.left = Number.parseInt(digits, 16);
    if (this.size + this.left > MAX_BODY_BYTES) throw new WireError('the answer is too large');
    this.state = this.left > 0 ? 'chunk' : 'trailers';
    return true;
  }

  private readChunkEnd(): boolean {
    const line = this.line();
    if (line === null) return false;
    if (line !== '') throw new WireError('a chunk of the answer has another size than it says');
    this.state = 'chunk-size';
    return true;
  }

  private readTrailers(): boolean {
    const line = this.line();
    if (line === null) return false;
    if (line === '') this.state = 'done';
    return line !== '';
  }
}

const ONCE: ReadonlySet<string> = new Set(['content-length', 'transfer-encoding', 'location', 'retry-after']);
