/**
 * Where the gateway is, and by what it is known to be the gateway.
 *
 * A key that is sent to a counterfeit gateway is lost, and its answers would be believed. TLS names the peer; a Unix
 * socket is known by who owns it. Plain TCP names nobody.
 */

import { lstatSync, readFileSync, statSync } from 'node:fs';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { dirname, resolve } from 'node:path';
import { connect as connectTls } from 'node:tls';

import { InvalidCall } from './errors';
import { isHeaderValue } from './http1';

/** The socket is held by a user who is not the gateway's. */
export class CounterfeitGateway extends Error {}

export interface EndpointOptions {
  /** Path of the gateway's Unix socket; used in place of TCP. */
  readonly uds?: string | undefined;
  /** The user that must hold the Unix socket; by default the user of this process. */
  readonly gatewayUid?: number | undefined;
  /** File of the certificates that may sign the gateway's; by default those of the system. */
  readonly ca?: string | undefined;
}

/** One gateway. */
export class Endpoint {
  readonly hostHeader: string;
  private readonly tlsSessions: { session?: Buffer } = {};
  private certificates: Buffer | undefined;

  private constructor(
    private readonly tls: boolean,
    private readonly host: string,
    private readonly port: number,
    private readonly options: EndpointOptions,
  ) {
    const name = host.includes(':') ? `[${host}]` : host;
    this.hostHeader = port === (tls ? 443 : 80) ? name : `${name}:${port}`;
  }

  /** The endpoint that an address names: `http://`, `https://`, or `unix:///path`; throws `InvalidCall`. */
  static of(url: string, options: EndpointOptions = {}): Endpoint {
    const unix = /^unix:\/\/(\/[^?#]+)$/.exec(url);
    if (unix?.[1] !== undefined) return new Endpoint(false, 'localhost', 80, { ...options, uds: unix[1] });
    let parts: URL;
    try {
      parts = new URL(url);
    } catch {
      throw new InvalidCall("the gateway's address is not a URL");
    }
    if (parts.protocol !== 'http:' && parts.protocol !== 'https:') {
      throw new InvalidCall("the gateway's address must be `http://`, `https://` or `unix:///path`");
    }
    if (parts.username !== '' || parts.password !== '' || parts.pathname !== '/' || parts.search !== '' || parts.hash !== '') {
      throw new InvalidCall("the gateway's address must be a scheme, a host and a port alone");
    }
    const tls = parts.protocol === 'https:';
    const host = parts.hostname.replace(/^\[(.*)\]$/, '$1');
    if (!isHeaderValue(host)) throw new InvalidCall("the gateway's address is not a URL");
    return new Endpoint(tls, host, parts.port === '' ? (tls ? 443 : 80) : Number(parts.port), options);
  }

  /** Whether a connection proves that its other end is the gateway. */
  get authenticated(): boolean {
    return this.options.uds !== undefined || this.tls;
  }

  /** Open a connection, checked as far as its address allows; rejects where it cannot be. */
  connect(milliseconds: number): Promise<Socket> {
    const { uds, ca } = this.options;
    if (uds !== undefined) return this.connectUnix(uds, milliseconds);
    if (!this.tls) {
      const socket = connectTcp({ host: this.host, port: this.port, noDelay: true });
      return opened(socket, 'connect', milliseconds);
    }
    if (ca !== undefined) this.certificates ??= readFileSync(ca);
    const socket = connectTls({
      host: this.host,
      port: this.port,
      ...(isIP(this.host) === 0 ? { servername: this.host } : {}),
      ...(this.certificates === undefined ? {} : { ca: this.certificates }),
      ...(this.tlsSessions.session === undefined ? {} : { session: this.tlsSessions.session }),
      rejectUnauthorized: true, // whatever the environment says
      minVersion: 'TLSv1.2',
    });
    socket.setNoDelay(true);
    socket.on('session', (session) => {
      this.tlsSessions.session = session;
    });
    return opened(socket, 'secureConnect', milliseconds);
  }

  private async connectUnix(path: string, milliseconds: number): Promise<Socket> {
    // A socket's file belongs to whoever bound it, and only its owner can put another one in its place, so that who
    // listens is known by the file before and after connecting.
    const before = this.ownedSocket(path);
    const socket = await opened(connectTcp({ path }), 'connect', milliseconds);
    try {
      const after = this.ownedSocket(path);
      if (before !== after) throw new CounterfeitGateway("the gateway's socket was replaced");
    } catch (error) {
      socket.destroy();
      throw error;
    }
    return socket;
  }

  /** What identifies the socket's file; throws `CounterfeitGateway` unless it is the expected user's. */
  private ownedSocket(path: string): string {
    const wanted = this.options.gatewayUid ?? process.geteuid?.();
    if (wanted === undefined) throw new CounterfeitGateway('this system does not say who owns a socket');
    const found = lstatSync(path, { bigint: true });
    if (!found.isSocket()) throw new CounterfeitGateway("the gateway's address is no socket");
    const trusted = (uid: bigint): boolean => uid === 0n || uid === BigInt(wanted);
    if (!trusted(found.uid)) throw new CounterfeitGateway("the gateway's socket is held by another user");
    for (let folder = dirname(resolve(path)); ; folder = dirname(folder)) {
      const { uid, mode } = statSync(folder, { bigint: true });
      const mine = trusted(uid) || uid === BigInt(process.geteuid?.() ?? -1);
      if (!mine || ((mode & 0o022n) !== 0n && (mode & 0o1000n) === 0n)) {
        throw new CounterfeitGateway("others can replace the gateway's socket: its folder is not its owner's alone");
      }
      if (folder === dirname(folder)) break;
    }
    return `${found.dev}:${found.ino}`;
  }
}

function opened(socket: Socket, event: string, milliseconds: number): Promise<Socket> {
  return new Promise((settle, fail) => {
    const timer = setTimeout(() => socket.destroy(new Error('the gateway cannot be reached in time')), milliseconds);
    const failed = (error?: Error): void => {
      clearTimeout(timer);
      fail(error ?? new Error('the gateway cannot be reached'));
    };
    socket.once('error', failed);
    socket.once('close', failed);
    socket.once(event, () => {
      clearTimeout(timer);
      socket.off('error', failed);
      socket.off('close', failed);
      settle(socket);
    });
  });
}
