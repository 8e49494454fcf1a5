/** Keep-alive connections to the gateway. */

import type { Socket } from 'node:net';

import type { Endpoint } from './endpoint';
import { type Headers, HttpAnswer, requestText } from './http1';

const MAX_IDLE = 64; // idle connections kept; more callers at once open their own for one request

/** No answer: the gateway is gone, slow, counterfeit, or does not speak HTTP/1.1. */
export class TransportError extends Error {}

interface Exchange {
  readonly answer: HttpAnswer;
  settle(answer: HttpAnswer | null): void;
  fail(error: Error): void;
}

/** One connection, with listeners that are put on it once: an exchange is what its bytes belong to. */
class Connection {
  private exchange: Exchange | null = null;
  private readonly closed: (connection: Connection) => void;

  constructor(
    private readonly socket: Socket,
    closed: (connection: Connection) => void,
  ) {
    this.closed = closed;
    socket.on('data', (data: Buffer) => this.receive(data));
    socket.on('end', () => this.ended(null));
    socket.on('error', (error) => this.ended(error));
    socket.on('close', () => this.ended(null));
  }

  /** Send a request; `null` where the connection was stale and nothing was answered. */
  send(request: string): Promise<HttpAnswer | null> {
    return new Promise((settle, fail) => {
      this.exchange = { answer: new HttpAnswer(), settle, fail };
      this.socket.ref();
      this.socket.write(request);
    });
  }

  destroy(): void {
    this.socket.destroy();
  }

  /** Let the process end while this connection idles. */
  rest(): void {
    this.socket.unref();
  }

  private receive(data: Buffer): void {
    const exchange = this.exchange;
    if (exchange === null) {
      this.destroy(); // bytes that nobody asked for
      return;
    }
    try {
      exchange.answer.feed(data);
    } catch (error) {
      this.exchange = null;
      this.destroy();
      exchange.fail(error as Error);
      return;
    }
    if (exchange.answer.done) {
      this.exchange = null;
      exchange.settle(exchange.answer);
    }
  }

  private ended(error: Error | null): void {
    this.closed(this);
    this.socket.destroy();
    const exchange = this.exchange;
    if (exchange === null) return;
    this.exchange = null;
    if (!exchange.answer.started) {
      exchange.settle(null);
      return;
    }
    try {
      if (error !== null) throw error;
      exchange.answer.end();
      exchange.settle(exchange.answer);
    } catch (broken) {
      exchange.fail(broken as Error);
    }
  }
}

/**
 * Sends one request, and gives back one whole answer or rejects with `TransportError`.
 *
 * The time bounds the whole exchange, connecting included. A request is repeated once, on a new connection, only if an
 * idle one turned out stale before any byte of an answer came: decisions are idempotent by call id.
 */
export class Transport {
  private readonly idle: Connection[] = [];

  constructor(private readonly endpoint: Endpoint) {}

  async request(
    method: string,
    target: string,
    headers: Headers,
    body: string | null,
    seconds: number,
  ): Promise<HttpAnswer> {
    const request = requestText(method, target, this.endpoint.hostHeader, headers, body);
    const deadline = performance.now() + seconds * 1000;
    let used: Connection | null = null;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, fail) => {
      timer = setTimeout(() => {
        fail(new Error('the gateway did not answer in time'));
        used?.destroy();
      }, seconds * 1000);
    });
    late.catch(() => undefined);
    const exchange = async (): Promise<HttpAnswer> => {
      const kept = this.idle.pop();
      if (kept !== undefined) {
        used = kept;
        const answer = await kept.send(request);
        if (answer !== null) return this.settled(kept, answer);
      }
      const socket = await this.endpoint.connect(Math.max(1, deadline - performance.now()));
      if (performance.now() >= deadline) {
        socket.destroy();
        throw new Error('the gateway did not answer in time');
      }
      const fresh = new Connection(socket, (one) => this.drop(one));
      used = fresh;
      const answer = await fresh.send(request);
      if (answer === null) throw new Error('the gateway gave no answer');
      return this.settled(fresh, answer);
    };
    try {
      return await Promise.race([exchange(), late]);
    } catch (error) {
      throw new TransportError('the gateway gave no answer', { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }

  /** Open a connection that is the caller's alone, and is closed by it; rejects with `TransportError`. */
  async connect(seconds: number): Promise<Socket> {
    try {
      return await this.endpoint.connect(seconds * 1000);
    } catch (error) {
      throw new TransportError('the gateway cannot be reached', { cause: error });
    }
  }

  /** Close the idle connections; one that is in use closes itself afterwards. */
  close(): void {
    for (const connection of this.idle.splice(0)) connection.destroy();
  }

  private settled(connection: Connection, answer: HttpAnswer): HttpAnswer {
    if (answer.reusable && this.idle.length < MAX_IDLE) {
      connection.rest();
      this.idle.push(connection);
    } else {
      connection.destroy();
    }
    return answer;
  }

  private drop(connection: Connection): void {
    const place = this.idle.indexOf(connection);
    if (place >= 0) this.idle.splice(place, 1);
  }
}
