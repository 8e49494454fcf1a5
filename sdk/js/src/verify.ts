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
const SIGNATURE_BYTES = 64;
const MAX_GROUP = 65_536; // bounds the path of a receipt, and so what a forged one can make us hash
const MAX_NOTE_CHARS = 65_536; // a note is parsed before it is believed
const MAX_SIGNATURES = 64;
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

/** A proof, a note or a receipt of a log that does not hold; `kind` is the word of the defect. */
export class LogInvalid extends AegisError {
  constructor(
    message: string,
    readonly kind = 'proof_invalid',
  ) {
    super(message);
  }
}

/** The leaf hash of a receipt: SHA-256(0x00 || canonical bytes); hex. */
export function leafHash(receipt: unknown): string {
  return createHash('sha256').update('\x00').update(canonical(receipt)).digest('hex');
}

/**
 * Guarantee that an Ed25519 key (hex) signed everything of a receipt but `prev`, alone or in a group.
 *
 * Whether that key may sign for this receipt is the caller's question. Throws `LogInvalid`.
 */
export function verifyReceipt(receipt: Readonly<Record<string, unknown>>, publicKey: string): void {
  const { sig, prev: _, ...rest } = receipt;
  if (sig === undefined || sig === null) throw new LogInvalid('the receipt is not signed', 'missing_signature');
  const malformed = (member: string): LogInvalid => new LogInvalid(`\`${member}\` is malformed`, 'malformed_member');
  if (!isObject(sig)) throw malformed('sig');
  const members = Object.keys(sig).sort().join();
  const alone = sig['alg'] === 'Ed25519' && members === 'alg,kid,value';
  if (!alone && !(sig['alg'] === 'Ed25519-batch' && members === 'alg,index,kid,path,size,value')) throw malformed('sig');
  if (typeof sig['kid'] !== 'string' || sig['kid'] === '') throw malformed('sig.kid');
  const value = base64(sig['value'], SIGNATURE_BYTES);
  if (value === undefined) throw malformed('sig.value');
  const data = Buffer.from(canonical(rest));
  let message = Buffer.concat([Buffer.from('aegis/receipt/v1\0'), data]);
  if (!alone) {
    const { index, size, path } = sig;
    if (!Number.isSafeInteger(index) || !Number.isSafeInteger(size) || !Array.isArray(path)) throw malformed('sig.path');
    if ((size as number) < 2 || (size as number) > MAX_GROUP) throw malformed('sig.path');
    const nodes = (path as unknown[]).map((node) => base64(node, HASH_BYTES)?.toString('hex'));
    if (nodes.includes(undefined)) throw malformed('sig.path');
    const leaf = createHash('sha256').update('\x00').update(data).digest('hex');
    const root = rootFromInclusion(leaf, index as number, size as number, nodes as string[]);
    const count = Buffer.alloc(8);
    count.writeBigUInt64BE(BigInt(size as number));
    message = Buffer.concat([Buffer.from('aegis/receipt-batch/v1\0'), count, Buffer.from(root, 'hex')]);
  }
  if (!verify(null, message, keyObject(publicKey), value)) throw new LogInvalid('the receipt was edited', 'edited');
}

/** What a checkpoint says: the log, how many receipts it holds, and their root (hex). */
export interface Checkpoint {
  readonly origin: string;
  readonly size: number;
  readonly root: string;
}

/**
 * The checkpoint that a signed note (C2SP) carries, signed by one of the log's keys (hex).
 *
 * Signatures by other keys are ignored, as the format asks; a wrong one by a known key is not. Throws `LogInvalid`.
 */
export function openCheckpoint(note: string, publicKeys: readonly string[]): Checkpoint {
  const wrong = (why: string): LogInvalid => new LogInvalid(`the checkpoint is not valid: ${why}`, 'checkpoint_invalid');
  // (1) Bounded, and no control characters but newlines.
  // eslint-disable-next-line no-control-regex
  if (note.length > MAX_NOTE_CHARS || !note.isWellFormed() || /[\x00-\x09\x0b-\x1f]/.test(note)) throw wrong('it is no note');
  // (2) Text and signatures, divided by the last empty line.
  const divider = note.lastIndexOf('\n\n');
  if (divider < 0 || !note.endsWith('\n') || divider + 2 >= note.length) throw wrong('it has no signatures');
  const text = note.slice(0, divider);
  const [origin = '', size = '', root = '', ...more] = text.split('\n');
  // (3) Origin, size in decimal without leading zeros, root in base64.
  const hash = base64(root, HASH_BYTES);
  if (more.length > 0 || !isNoteName(origin) || !/^(0|[1-9][0-9]{0,15})$/.test(size) || hash === undefined) {
    throw wrong('its lines are not those of a checkpoint');
  }
  // (4) Signature lines: name, key id and signature.
  const lines = note.slice(divider + 2, -1).split('\n');
  if (lines.length > MAX_SIGNATURES) throw wrong('it has too many signatures');
  let signed = false;
  for (const line of lines) {
    const found = /^\u2014 (\S+) (\S+)$/u.exec(line);
    const data = base64(found?.[2], 4 + SIGNATURE_BYTES);
    if (found?.[1] === undefined || !isNoteName(found[1]) || data === undefined) throw wrong('a signature line is malformed');
    if (found[1] !== origin) continue;
    const key = publicKeys.find((one) => noteKeyId(origin, one).equals(data.subarray(0, 4)));
    if (key === undefined) continue;
    if (!verify(null, Buffer.from(`${text}\n`), keyObject(key), data.subarray(4))) throw wrong('its signature is wrong');
    signed = true;
  }
  if (!signed) throw wrong('no key of the log signed it');
  return { origin, size: Number(size), root: hash.toString('hex') };
}

function isNoteName(name: string): boolean {
  return name !== '' && !/[+\s]/.test(name);
}

function noteKeyId(name: string, publicKey: string): Buffer {
  const key = Buffer.concat([Buffer.from(`${name}\n\x01`), Buffer.from(publicKey, 'hex')]);
  return createHash('sha256').update(key).digest().subarray(0, 4);
}

function keyObject(publicKey: string): KeyObject {
  const x = Buffer.from(publicKey, 'hex').toString('base64url');
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
}

/** The bytes of canonical, padded base64 of one length; nothing for anything else. */
function base64(text: unknown, length: number): Buffer | undefined {
  if (typeof text !== 'string') return undefined;
  const data = Buffer.from(text, 'base64');
  return data.length === length && data.toString('base64') === text ? data : undefined;
}

/** The identifier of a public key (hex): the first 128 bits of its SHA-256. */
export function kidOf(publicKey: string): string {
  return createHash('sha256').update(Buffer.from(publicKey, 'hex')).digest('hex').slice(0, 32);
}

/** Commits a leaf to both digests of a call under a salt (hex). */
export function callCommitment(salt: string, request: string, call: string): string {
  const hash = createHash('sha256').update('aegis/call-commitment/v1\0').update(Buffer.from(salt, 'hex'));
  return `sha-256:${hash.update(`${request}\0${call}`).digest('hex')}`;
}

/** Commits a leaf to the payload that is stored beside the log, under a salt (hex). */
export function payloadCommitment(salt: string, payload: string): string {
  const hash = createHash('sha256').update('aegis/payload-commitment/v1\0').update(Buffer.from(salt, 'hex'));
  return `sha-256:${hash.update(payload).digest('hex')}`;
}

/** A value with every string masked and every number hidden, for showing it; keys and shape stay. */
export function mask(value: unknown): Json {
  if (typeof value === 'string') {
    const chars = [...value];
    if (chars.length === 0) return '';
    return chars.length <= 8 ? '****' : `${chars.slice(0, 2).join('')}****${chars.slice(-2).join('')}`;
  }
  if (Array.isArray(value)) return value.map(mask);
  if (isObject(value)) return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, mask(one)]));
  return value === null || typeof value === 'boolean' ? value : '****';
}

/** Guarantee that a leaf hash is leaf `index` of the tree of `size` leaves with that root (RFC 9162, 2.1.3.2); hex. */
export function verifyInclusion(leaf: string, index: number, size: number, path: readonly string[], root: string): void {
  if (rootFromInclusion(leaf, index, size, path) !== root) throw new LogInvalid('the inclusion path leads to another root');
}

/** The root that a path leads to from a leaf; throws `LogInvalid` for a wrong shape. */
function rootFromInclusion(leaf: string, index: number, size: number, path: readonly string[]): string {
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
  return found;
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
