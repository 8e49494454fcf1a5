/**
 * What can be verified without the gateway: permits, webhooks, and that a receipt is in a log.
 *
 * A permit is looked at with the gateway's public keys, a clock, and a memory of what was seen here. Only the gateway knows
 * whether another verifier took it before, and whether its agent was stopped: a permit opens once per verifier, and one that
 * a person approved, or whose call cannot be undone, is refused here.
 */

import { createHash, createHmac, createPublicKey, type KeyObject, timingSafeEqual, verify } from 'node:crypto';

import type { PermittedCall } from './client';
import { AegisError, InvalidCall, PermitInvalid } from './errors';
import { callDigest, canonical, isObject, type Json, parse } from './json';

const LIFETIME_S = 60;
const MAX_SKEW_S = 30; // how far a verifier's clock may be behind the gateway's
const MAX_REMEMBERED = 100_000; // permits of the last minute; a full memory refuses, and forgets nothing too early
const MAX_CHARS = 16_384; // a token is parsed before it is believed: bounds that work
const TOLERANCE_S = 300;
const HASH_BYTES = 32;
const EMPTY_ROOT = createHash('sha256').digest('hex');
const TEXTS = ['sub', 'aud', 'tool', 'session', 'call_id', 'call_digest', 'decision_id', 'mode', 'jti'] as const;
const NUMBERS = ['receipt', 'iat', 'exp'] as const;

/** Verifies permits against public keys: `keys.json` of a log, or the set of `/.well-known/jwks.json`. */
export class OfflinePermits {
  private readonly keys: ReadonlyMap<string, KeyObject>;
  private readonly seen = new Map<string, number>();

  /** `clock` gives seconds since the epoch. Throws `PermitInvalid` where the document holds no key that signs permits. */
  constructor(
    document: unknown,
    private readonly clock: () => number = () => Date.now() / 1000,
  ) {
    this.keys = permitKeys(document);
    if (this.keys.size === 0) throw new PermitInvalid('the document holds no key that signs permits', { code: 'no_permit_key' });
  }

  /** Take a permit for exactly this call, once at this verifier; rejects with `PermitInvalid`. */
  // eslint-disable-next-line @typescript-eslint/require-await -- rejects like the verifier that asks the gateway
  async redeem(permit: string, call: PermittedCall): Promise<string> {
    const found = this.read(permit);
    const server = call.server ?? found.server ?? undefined;
    const now = Math.floor(this.clock());
    // (1) A permit of a call that nobody would have stopped opens nothing.
    if (found.mode !== 'enforce') {
      throw new PermitInvalid('this permit was given while calls were only observed', { code: 'permit_observed' });
    }
    // (2) Exactly this call.
    const named = (found.server ?? undefined) === server && found.tool === call.tool;
    if (!named || found.call_digest !== callDigest(server, call.tool, canonical(call.arguments))) {
      throw new PermitInvalid('this permit is for another call', { code: 'permit_other_call' });
    }
    // (3) In time.
    const over = { code: 'permit_expired', status: 409 };
    if (found.exp <= now || found.exp - found.iat > LIFETIME_S) throw new PermitInvalid('this permit is over', over);
    if (found.iat > now + MAX_SKEW_S) throw new PermitInvalid('this permit is from the future', over);
    // (4) Not one that the gateway alone redeems.
    if (found.online) {
      const hint = 'a person approved its call, or the call cannot be undone';
      throw new PermitInvalid('this permit is redeemed at the gateway alone', { code: 'permit_online', hint });
    }
    // (5) Once.
    if (this.seen.has(found.jti)) {
      throw new PermitInvalid('this permit was used here before', { code: 'permit_redeemed', status: 409 });
    }
    if (this.seen.size >= MAX_REMEMBERED) {
      for (const [id, ends] of this.seen) if (ends <= now) this.seen.delete(id);
    }
    if (this.seen.size >= MAX_REMEMBERED) {
      throw new PermitInvalid('too many permits were used within a minute', { code: 'verifier_full', status: 409 });
    }
    this.seen.set(found.jti, found.exp);
    return found.jti;
  }

  private read(permit: string): Permit {
    try {
      return permitOf(claimsOf(permit, 'aegis-permit+jwt', this.keys));
    } catch {
      throw new PermitInvalid('this is no permit of this deployment');
    }
  }
}

interface Permit {
  readonly tool: string;
  readonly server: string | null;
  readonly call_digest: string;
  readonly mode: string;
  readonly online: boolean;
  readonly jti: string;
  readonly iat: number;
  readonly exp: number;
}

/** The claims of a permit; throws for other members, and for those of another type. */
function permitOf(claims: Json): Permit {
  if (!isObject(claims)) throw new TypeError('no object');
  const known = new Set<string>([...TEXTS, ...NUMBERS, 'server', 'online', 'approval_id']);
  const wellFormed =
    Object.keys(claims).every((name) => known.has(name)) &&
    TEXTS.every((name) => typeof claims[name] === 'string') &&
    NUMBERS.every((name) => Number.isSafeInteger(claims[name])) &&
    (claims['server'] === null || typeof claims['server'] === 'string') &&
    typeof claims['online'] === 'boolean' &&
    ['string', 'undefined'].includes(claims['approval_id'] === null ? 'undefined' : typeof claims['approval_id']);
  if (!wellFormed) throw new TypeError('a claim is missing, or of another type');
  return claims as unknown as Permit;
}

/** The claims of a compact JWS of this type whose key is trusted and whose signature holds; throws otherwise. */
function claimsOf(token: string, typ: string, keys: ReadonlyMap<string, KeyObject>): Json {
  const parts = token.length > MAX_CHARS ? [] : token.split('.');
  if (parts.length !== 3) throw new TypeError('no compact JWS');
  const [header = '', body = '', signature = ''] = parts;
  const head = parse(decoded(header).toString('utf8'));
  if (!isObject(head) || Object.keys(head).sort().join() !== 'alg,kid,typ') throw new TypeError('another header');
  if (head['alg'] !== 'EdDSA' || head['typ'] !== typ || typeof head['kid'] !== 'string') throw new TypeError('another kind');
  const key = keys.get(head['kid']);
  if (key === undefined || !verify(null, Buffer.from(`${header}.${body}`), key, decoded(signature))) {
    throw new TypeError('not signed by a key that is trusted here');
  }
  return parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(decoded(body)));
}

/** The bytes of base64url without padding, in its one canonical spelling. */
function decoded(text: string): Buffer {
  const data = Buffer.from(text, 'base64url');
  if (data.toString('base64url') !== text) throw new TypeError('not in its canonical spelling');
  return data;
}

function permitKeys(document: unknown): Map<string, KeyObject> {
  const found = new Map<string, KeyObject>();
  const listed = isObject(document) && Array.isArray(document['keys']) ? (document['keys'] as unknown[]) : [];
  for (const key of listed) {
    if (!isObject(key) || key['purpose'] !== 'permit' || 'until' in key) continue;
    const text = typeof key['public'] === 'string' ? key['public'] : String(key['x'] ?? '');
    const raw = Buffer.from(text.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, ''), 'base64url');
    if (raw.length !== HASH_BYTES || typeof key['kid'] !== 'string') {
      throw new PermitInvalid('a key of the document is malformed', { code: 'no_permit_key' });
    }
    found.set(key['kid'], createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') }, format: 'jwk' }));
  }
  return found;
}

export interface WebhookOptions {
  /** Seconds that the message may be old; keep the `webhook-id` that long to know a repetition. */
  readonly tolerance?: number;
  /** Seconds since the epoch; by default this machine's clock. */
  readonly now?: number;
}

/**
 * The parsed body of a webhook that a deployment signed (Standard Webhooks 1.0), for receivers.
 *
 * `body` is the raw one. Throws `InvalidCall` (401) where the signature does not hold or the time is over.
 */
export function verifyWebhook(
  secret: string,
  headers: Readonly<Record<string, string | undefined>>,
  body: Uint8Array | string,
  options: WebhookOptions = {},
): Json {
  const found = new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value ?? '']));
  const id = found.get('webhook-id') ?? '';
  const stamp = found.get('webhook-timestamp') ?? '';
  if (id === '' || !/^[0-9]{1,12}$/.test(stamp)) throw new InvalidCall('the webhook is not signed', { code: 'unsigned', status: 401 });
  const now = options.now ?? Date.now() / 1000;
  if (Math.abs(now - Number(stamp)) > (options.tolerance ?? TOLERANCE_S)) {
    throw new InvalidCall('the webhook is too old, or from the future', { code: 'stale', status: 401 });
  }
  const data = Buffer.from(body);
  const wanted = Buffer.from(createHmac('sha256', keyOf(secret)).update(`${id}.${stamp}.`).update(data).digest('base64'));
  const given = (found.get('webhook-signature') ?? '').split(/\s+/).filter((one) => one.startsWith('v1,'));
  const holds = given.some((one) => {
    const value = Buffer.from(one.slice(3));
    return value.length === wanted.length && timingSafeEqual(value, wanted);
  });
  if (!holds) throw new InvalidCall('the signature of the webhook does not hold', { code: 'bad_signature', status: 401 });
  return parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data));
}

function keyOf(secret: string): Buffer {
  if (!secret.startsWith('whsec_')) return Buffer.from(secret);
  const text = secret.slice('whsec_'.length);
  const key = Buffer.from(text, 'base64');
  if (key.toString('base64') !== text) throw new InvalidCall('the secret of the webhook is not base64 behind `whsec_`', { code: 'secret' });
  return key;
}

/** A proof of a log that does not hold. */
export class LogInvalid extends AegisError {}

/** Guarantee that a leaf hash is leaf `index` of the tree of `size` leaves with that root (RFC 9162, 2.1.3.2); hex. */
export function verifyInclusion(leaf: string, index: number, size: number, path: readonly string[], root: string): void {
  // (1) The leaf must be inside the tree.
  if (!Number.isSafeInteger(index) || !Number.isSafeInteger(size) || index < 0 || index >= size) {
    throw new LogInvalid('the leaf is outside the tree');
  }
  // (2) fn is the leaf's index, sn the index of the last leaf; (3) start from the leaf.
  let [fn, sn, found] = [BigInt(index), BigInt(size) - 1n, leaf];
  // (4) Walk up: a sibling stands left of a right child and of the last node, else right.
  for (const sibling of path) {
    if (sn === 0n) throw new LogInvalid('the inclusion path is too long');
    checkHash(sibling);
    if ((fn & 1n) === 1n || fn === sn) {
      found = nodeHash(sibling, found);
      while ((fn & 1n) === 0n && fn !== 0n) [fn, sn] = [fn >> 1n, sn >> 1n];
    } else {
      found = nodeHash(found, sibling);
    }
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  // (5) The walk must have ended at the root.
  if (sn !== 0n) throw new LogInvalid('the inclusion path is too short');
  if (found !== root) throw new LogInvalid('the inclusion path leads to another root');
}

/** Guarantee that the tree of `second` leaves begins with the tree of `first` leaves (RFC 9162, 2.1.4.2); hex. */
export function verifyConsistency(first: number, second: number, firstRoot: string, secondRoot: string, path: readonly string[]): void {
  if (!Number.isSafeInteger(first) || !Number.isSafeInteger(second) || first < 0 || first > second) {
    throw new LogInvalid('the earlier tree is larger than the later one');
  }
  if (first === 0 || first === second) {
    if (path.length > 0) throw new LogInvalid('the consistency path must be empty');
    if (firstRoot !== (first === second ? secondRoot : EMPTY_ROOT)) throw new LogInvalid('the earlier root is not the one of its tree');
    return;
  }
  // (1) A path is needed.
  if (path.length === 0) throw new LogInvalid('the consistency path is empty');
  path.forEach(checkHash);
  // (2) Where the earlier tree is complete, its root is the first node.
  const size = BigInt(first);
  const nodes = (size & (size - 1n)) === 0n ? [firstRoot, ...path] : [...path];
  // (3) fn and sn are the last leaves of both trees; (4) climb to the first node that is not a right child.
  let [fn, sn] = [size - 1n, BigInt(second) - 1n];
  while ((fn & 1n) === 1n) [fn, sn] = [fn >> 1n, sn >> 1n];
  // (5) Both roots start from the first node; (6) walk up in both trees at once.
  const [start = ''] = nodes;
  let [fr, sr] = [start, start];
  for (const node of nodes.slice(1)) {
    if (sn === 0n) throw new LogInvalid('the consistency path is too long');
    if ((fn & 1n) === 1n || fn === sn) {
      [fr, sr] = [nodeHash(node, fr), nodeHash(node, sr)];
      while ((fn & 1n) === 0n && fn !== 0n) [fn, sn] = [fn >> 1n, sn >> 1n];
    } else {
      sr = nodeHash(sr, node);
    }
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  // (7) Both must have arrived.
  if (sn !== 0n) throw new LogInvalid('the consistency path is too short');
  if (fr !== firstRoot) throw new LogInvalid('the consistency path leads to another earlier root');
  if (sr !== secondRoot) throw new LogInvalid('the consistency path leads to another later root');
}

function nodeHash(left: string, right: string): string {
  return createHash('sha256').update('\x01').update(Buffer.from(left, 'hex')).update(Buffer.from(right, 'hex')).digest('hex');
}

function checkHash(hash: string): void {
  if (!/^[0-9a-f]{64}$/.test(hash)) throw new LogInvalid('a hash of the path has the wrong length');
}
