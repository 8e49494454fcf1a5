/** Server-sent events (WHATWG HTML, section 9.2), incrementally and in bounded memory. */

import { ForeignAnswer } from '../errors';
import type { WireEvent } from './model';

const MAX_EVENT_CHARS = 33_554_432; // an event that never ends would fill the memory

/** Bytes in, events out. Comments and unknown fields are dropped. */
export class SseReader {
  private readonly decoder = new TextDecoder('utf-8', { fatal: true });
  private partial = '';
  private afterCr = false;
  private size = 0;
  private fields: { event: string; id: string; retry: string; data: string[] } = fresh();

  /** The events that a chunk completes; throws `ForeignAnswer` for one too large or not UTF-8. */
  feed(chunk: Uint8Array): WireEvent[] {
    return this.lines(this.decode(chunk, true));
  }

  /** The event that stands at the end of the stream without a blank line, if there is one. */
  end(): WireEvent[] {
    const events = this.lines(this.decode(new Uint8Array(), false));
    if (this.partial !== '') this.line(this.partial, events);
    this.partial = '';
    this.line('', events);
    return events;
  }

  private decode(chunk: Uint8Array, stream: boolean): string {
    try {
      return this.decoder.decode(chunk, { stream });
    } catch {
      throw new ForeignAnswer('the stream is not UTF-8');
    }
  }

  private lines(text: string): WireEvent[] {
    const events: WireEvent[] = [];
    let rest = text;
    // A line ends with CR, LF or CR LF; the LF of a pair may come with the next chunk.
    if (this.afterCr && rest !== '') {
      if (rest.startsWith('\n')) rest = rest.slice(1);
      this.afterCr = false;
    }
    if (rest === '') return events;
    this.afterCr = rest.endsWith('\r');
    const lines = (this.partial + rest.replaceAll('\r\n', '\n').replaceAll('\r', '\n')).split('\n');
    this.partial = lines.pop() ?? '';
    for (const line of lines) this.line(line, events);
    if (this.size + this.partial.length > MAX_EVENT_CHARS) {
      throw new ForeignAnswer('an event of the stream is too large');
    }
    return events;
  }

  private line(line: string, events: WireEvent[]): void {
    if (line === '') {
      const { event, id, retry, data } = this.fields;
      if (data.length > 0 || event !== '' || id !== '' || retry !== '') {
        events.push({ event, id, retry, data: data.join('\n') });
      }
      this.fields = fresh();
      this.size = 0;
      return;
    }
    this.size += line.length;
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.fields.data.push(value);
    else if (field === 'event' || field === 'id' || field === 'retry') this.fields[field] = value;
  }
}

const fresh = (): { event: string; id: string; retry: string; data: string[] } => ({ event: '', id: '', retry: '', data: [] });

/** One event as it goes over the wire. */
export function sseText(event: WireEvent): string {
  let head = '';
  for (const name of ['id', 'retry', 'event'] as const) {
    const value = event[name];
    if (value !== undefined && value !== '') head += `${name}: ${value}\n`;
  }
  const body = event.data.split('\n').map((line) => `data: ${line}\n`);
  return `${head}${body.join('')}\n`;
}
