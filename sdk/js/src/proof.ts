/**
 * Proof of possession: who calls holds the key that the mission names (RFC 7800).
 *
 * One agent's key lives in a file of its own with mode 0600, where the Python client keeps it too. What is believed of a
 * proof is checked at the gateway alone.
 */

import { createHash, createPrivateKey, createPublicKey, type KeyObject, randomBytes, sign } from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

import { AegisError } from './errors';
import { callDigest, isObject, parse } from './json';
import type { ToolCall } from './values';
import { readable } from './wire';

const KEY_BYTES = 32;
const PKCS8 = Buffer.from('302e020100300506032b657004220420', 'hex'); // RFC 8410: what precedes an Ed25519 seed

/** A key file is missing, readable by others, or not a key. */
export class KeyFileError extends AegisError {}

/** Where holder keys live on this machine: below `home`, `AEGIS_HOME`, or `~/.aegis`. */
export function holderFolder(home?: string): string {
  const given = home ?? (process.env['AEGIS_HOME'] || '~/.aegis');
  return join(given === '~' || given.startsWith('~/') ? join(homedir(), given.slice(1)) : given, 'holders');
}

/** One agent's key under a folder, in a file that is made where there is none; throws `KeyFileError`. */
export class Holder {
  private readonly key: KeyObject;
  private readonly kid: string;
  /** The member `x` of the JWK by which a mission names this key. */
  readonly x: string;

  constructor(folder: string, agent: string) {
    this.key = createPrivateKey({ key: Buffer.concat([PKCS8, secretOf(folder, agent)]), format: 'der', type: 'pkcs8' });
    this.x = createPublicKey(this.key).export({ format: 'jwk' }).x as string;
    this.kid = createHash('sha256').update(Buffer.from(this.x, 'base64url')).digest('hex').slice(0, 32);
  }

  /** The session proof that answers a challenge. */
  answer(asked: { audience: string; nonce: string; mission: string; session: string }, now = Date.now()): string {
    return this.token('aegis-kb+jwt', {
      aud: asked.audience,
      nonce: asked.nonce,
      iat: Math.floor(now / 1000),
      mission_id: asked.mission,
      session: asked.session,
    });
  }

  /** What proves the calls of one session; `number` is the first that was not used. */
  prover(audience: string, session: string, number: number): Prover {
    return new Prover((claims) => this.token('aegis-call+jwt', claims), audience, session, number);
  }

  private token(typ: string, claims: object): string {
    const parts = [{ alg: 'EdDSA', kid: this.kid, typ }, claims].map((part) =>
      Buffer.from(JSON.stringify(part)).toString('base64url'),
    );
    const signed = parts.join('.');
    return `${signed}.${sign(null, Buffer.from(signed), this.key).toString('base64url')}`;
  }
}

/** Numbers and proves the calls of one session. */
export class Prover {
  constructor(
    private readonly token: (claims: object) => string,
    private readonly audience: string,
    private readonly session: string,
    private number: number,
  ) {}

  /** The call with its proof. */
  prove(call: ToolCall): ToolCall {
    const [args, unresolved] = readable(call);
    const digest = callDigest(call.server, call.tool, args);
    const seq = this.number;
    this.number += 1;
    const proof = this.token({ aud: this.audience, sid: this.session, seq, calls: [digest] });
    return { ...call, arguments: parse(args) as Record<string, unknown>, unresolved, proof };
  }
}

function secretOf(folder: string, agent: string): Buffer {
  const path = join(folder, 'agents', `${createHash('sha256').update(agent).digest('hex')}.key`);
  if (!existsSync(path)) create(path, agent);
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (error) {
    throw new KeyFileError(`the key file \`${path}\` cannot be read`, { cause: error });
  }
  try {
    const { mode } = fstatSync(file);
    if ((mode & constants.S_IFMT) !== constants.S_IFREG || (mode & 0o077) !== 0) {
      throw new KeyFileError(`the key file \`${path}\` can be read by others; chmod 600 it, and rotate the key`);
    }
    return read(readFileSync(file, 'utf8'), path, agent);
  } finally {
    closeSync(file);
  }
}

function read(text: string, path: string, agent: string): Buffer {
  let body: unknown;
  try {
    body = parse(text);
  } catch {
    throw new KeyFileError(`the key file \`${path}\` does not hold a key`);
  }
  if (!isObject(body) || typeof body['secret'] !== 'string') {
    throw new KeyFileError(`the key file \`${path}\` does not hold a key`);
  }
  const secret = Buffer.from(body['secret'], 'base64');
  if (body['purpose'] !== 'holder' || body['agent'] !== agent || secret.length !== KEY_BYTES) {
    throw new KeyFileError(`the key file \`${path}\` holds a key for something else`);
  }
  return secret;
}

/** Write a new key whole under another name and link it into place: of two processes that make one, both use the first. */
function create(path: string, agent: string): void {
  const fresh = join(dirname(path), `.${randomBytes(8).toString('hex')}.new`);
  const secret = randomBytes(KEY_BYTES).toString('base64');
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const file = openSync(fresh, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600);
    try {
      writeSync(file, JSON.stringify({ purpose: 'holder', agent, secret }));
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    try {
      linkSync(fresh, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    } finally {
      rmSync(fresh, { force: true });
    }
  } catch (error) {
    throw new KeyFileError(`the key file \`${path}\` cannot be written`, { cause: error });
  }
}
