/** The gateway as a decider: what it does not plainly allow, this side refuses. */

import { randomBytes } from 'node:crypto';

import { Endpoint, type EndpointOptions } from './endpoint';
import { GatewayUnavailable, InvalidCall, PermitInvalid } from './errors';
import { type HttpAnswer, isHeaderValue } from './http1';
import { canonical, isObject, type JsonObject } from './json';
import { Holder, Prover, holderFolder } from './proof';
import { judgedStream, type Chunk, type StreamOptions } from './stream';
import { Transport, TransportError } from './transport';
import {
  type Decider,
  type Decision,
  MESSAGES,
  type OpenedSession,
  type Outcome,
  type Reason,
  type ResultDecision,
  type ToolCall,
  type ToolResult,
} from './values';
import * as wire from './wire';

const DEFAULT_TIMEOUT = 30;
const LONG_POLL = 30; // seconds that the gateway is asked to hold one request
const PAUSE = 2; // seconds between requests where the gateway does not hold them
const PATIENCE = 60; // seconds without any answer after which the gateway counts as gone
const MAX_SESSIONS = 65_536; // sessions that one process proves: bounds memory; the oldest ones are forgotten

const MAY_RUN: ReadonlySet<Outcome> = new Set<Outcome>(['allow', 'sanitize', 'block']);
const HELD: ReadonlySet<Outcome> = new Set<Outcome>(['require_approval']);
const REFUSED: ReadonlySet<Outcome> = new Set<Outcome>(['block']);
const PASSING: ReadonlySet<Reason> = new Set<Reason>(['unavailable', 'rate_limited']);
const UNUSABLE = 'the gateway gave no usable answer about the session';

export interface ClientOptions extends EndpointOptions {
  /** The agent's key; sent as a bearer credential, and only to this gateway. */
  readonly apiKey?: string | undefined;
  /** The agent's name, for calls that name none. */
  readonly agent?: string | undefined;
  /** Seconds that one exchange may take as a whole. */
  readonly timeout?: number | undefined;
  /** Where this agent's holder key lives; by default `AEGIS_HOME` or `~/.aegis`. */
  readonly home?: string | undefined;
}

/** What a session is opened with; `task` and `turns` are the user's words, on the host's credential. */
export interface SessionOptions {
  readonly task?: string | undefined;
  readonly turns?: readonly string[] | undefined;
  readonly owner?: string | undefined;
  readonly parent?: { readonly session: string; readonly callId?: string } | undefined;
  readonly mission?: string | undefined;
  readonly tools?: readonly unknown[] | undefined;
  readonly mounts?: readonly string[] | undefined;
}

/** What a further turn of the user brings beside the words; `documents` count as read and are not trusted. */
export interface TurnOptions {
  readonly turn?: number | undefined;
  readonly documents?: readonly string[] | undefined;
}

/** What a permit is redeemed for. */
export interface PermittedCall {
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly server?: string | undefined;
}

/**
 * A decider over HTTP that fails closed.
 *
 * Every transport error, time-out, 409, 429, 5xx, redirect and every answer that the contract does not allow for the very
 * call is a block decision; any other 4xx rejects with `InvalidCall`. Safe to share by any number of calls at once.
 */
export class Client implements Decider {
  private readonly headers: Record<string, string>;
  private readonly endpoint: Endpoint;
  private readonly transport: Transport;
  private readonly agent: string | undefined;
  private readonly timeout: number;
  private readonly home: string | undefined;
  private readonly provers = new Map<string, Prover>();

  /** `url` is `http://HOST:PORT`, `https://HOST:PORT` or `unix:///path`. */
  constructor(url = 'http://127.0.0.1:8787', options: ClientOptions = {}) {
    const timeout = options.timeout ?? DEFAULT_TIMEOUT;
    if (!(timeout > 0) || !Number.isFinite(timeout)) throw new InvalidCall('`timeout` must be a positive number of seconds');
    const key = options.apiKey ?? '';
    if (key !== '' && !isHeaderValue(key)) throw new InvalidCall('`apiKey` holds something other than visible ASCII');
    this.headers = key === '' ? {} : { authorization: `Bearer ${key}` };
    this.endpoint = Endpoint.of(url, options);
    this.transport = new Transport(this.endpoint);
    this.agent = options.agent;
    this.timeout = timeout;
    this.home = options.home;
  }

  /** Whether every connection proves that its other end is the gateway (TLS, or the socket's owner). */
  get authenticated(): boolean {
    return this.endpoint.authenticated;
  }

  /** The gateway's decision; rejects with `InvalidCall` for misuse alone. */
  async decide(call: ToolCall): Promise<Decision> {
    // The id exists before anything is sent: it is what makes a repetition harmless.
    const asked = wire.ask(this.proved(call), call.callId ?? randomBytes(16).toString('hex'), this.agent);
    try {
      return decided(asked, await this.post('/v1/decisions', asked.body));
    } catch (error) {
      if (error instanceof TransportError) return wire.blocked(asked, 'unavailable');
      throw error;
    }
  }

  /** The gateway's decision on a result; rejects with `InvalidCall` for misuse alone. */
  async observe(result: ToolResult): Promise<ResultDecision> {
    const body = wire.resultBody(result);
    try {
      return observed(await this.post('/v1/results', body));
    } catch (error) {
      if (error instanceof TransportError) return wire.withheld('unavailable');
      throw error;
    }
  }

  /**
   * The decision that a held call comes to, asked for again under the same call id.
   *
   * Waits at most `timeout` seconds (without one: until the approval is resolved or the gateway stays away) and gives
   * back a decision that does not allow when they are over. Only a decision that the gateway gave anew can allow.
   */
  async wait(call: ToolCall, held: Decision, timeout?: number): Promise<Decision> {
    // The same call id, or the gateway would take the repetition for a new call.
    const again: ToolCall = { ...call, callId: held.callId };
    const deadline = timeout === undefined ? undefined : now() + timeout;
    let decision = held;
    let pause = 0;
    let resubmit = false;
    let silentSince: number | undefined;
    const unanswered = (wait?: number): void => {
      silentSince ??= now();
      pause = Math.max(PAUSE, wait ?? 0);
    };
    for (;;) {
      const approval = decision.approval;
      if (decision.outcome !== 'require_approval' || approval === undefined) return decision;
      if (silentSince !== undefined && now() - silentSince > PATIENCE) {
        const { approval: _, ...rest } = decision;
        return { ...rest, outcome: 'block', allowed: false, reason: 'unavailable', message: MESSAGES.unavailable };
      }
      if (resubmit) {
        resubmit = false;
        const next = await this.decide(again);
        if (next.outcome === 'block' && PASSING.has(next.reason)) {
          unanswered(next.retryAfter); // the approval stands; only the answer is missing
        } else {
          silentSince = undefined;
          decision = next;
        }
        continue;
      }
      const left = deadline === undefined ? LONG_POLL + pause : deadline - now();
      if (left <= pause) return decision;
      const seconds = Math.min(LONG_POLL, left - pause);
      if (pause > 0) await sleep(pause);
      const askedAt = now();
      let answer: HttpAnswer;
      try {
        const target = `/v1/approvals/${approval.id}?wait=${Math.floor(seconds)}`;
        answer = await this.transport.request('GET', target, this.headers, null, seconds + this.timeout);
      } catch (error) {
        if (!(error instanceof TransportError)) throw error;
        unanswered();
        continue;
      }
      if (answer.status === 429 || answer.status >= 500 || answer.status < 200) {
        unanswered(wire.retryAfter(answer.headers['retry-after']));
        continue;
      }
      if (answer.status >= 400) throw wire.readError(answer.body, answer.status);
      let state: string;
      try {
        state = wire.readApprovalState(answer.body, approval.id);
      } catch {
        unanswered();
        continue;
      }
      silentSince = undefined;
      resubmit = state !== 'pending';
      // A gateway that answers at once does not hold requests; nor is the same approval asked for in a loop.
      pause = resubmit || now() - askedAt < 1 ? PAUSE : 0;
    }
  }

  /**
   * Open a session with the words that the host trusts, and under a mission where one is named.
   *
   * Where the mission names a holder key, possession is proved here, and from then on with every call of the session. The
   * same words again find the same session. Rejects with `InvalidCall` where it is refused and `GatewayUnavailable`
   * where nobody can say.
   */
  async openSession(session: string, options: SessionOptions = {}): Promise<OpenedSession> {
    const parent = options.parent;
    const body = {
      session,
      task: options.task === '' ? undefined : options.task,
      turns: options.turns,
      owner: options.owner,
      parent: parent === undefined ? undefined : { session: parent.session, call_id: parent.callId },
      mission: options.mission,
      available_tools: options.tools,
      mounts: options.mounts !== undefined && options.mounts.length > 0 ? options.mounts : undefined,
    };
    let opened: [JsonObject, number];
    try {
      opened = await this.told('/v1/sessions', canonical(body));
    } catch (error) {
      if (options.mission === undefined || !(error instanceof InvalidCall) || error.code !== 'proof_invalid') throw error;
      const [challenge] = await this.told('/v1/sessions:challenge', '');
      const proof = this.holder().answer({
        audience: member(challenge, 'audience'),
        nonce: member(challenge, 'nonce'),
        mission: options.mission,
        session,
      });
      opened = await this.told('/v1/sessions', canonical({ ...body, proof }));
    }
    const [answer, status] = opened;
    const number = answer['next_number'] ?? 1;
    const receipt = receiptIn(answer);
    if (typeof number !== 'number' || !Number.isSafeInteger(number)) throw new GatewayUnavailable(UNUSABLE);
    if (Object.hasOwn(answer, 'audience') && !this.provers.has(session)) {
      this.provers.set(session, this.holder().prover(member(answer, 'audience'), session, number));
      if (this.provers.size > MAX_SESSIONS) this.provers.delete(this.provers.keys().next().value as string);
    }
    return { session: member(answer, 'session'), receipt, fresh: status === 201 };
  }

  /**
   * Say what the user said next, on the host's credential; opens a session that is not open.
   *
   * Rejects with `InvalidCall` where it is refused (a turn of this number with other words included) and with
   * `GatewayUnavailable` where nobody can say.
   */
  async turn(session: string, text: string, options: TurnOptions = {}): Promise<JsonObject> {
    const body = canonical({ text, turn: options.turn, documents: options.documents });
    const [answer] = await this.told(`/v1/sessions/${encodeURIComponent(session)}/turns`, body);
    return answer;
  }

  /**
   * Use up a permit for exactly this call, at the gateway, and give its identifier.
   *
   * Rejects with `PermitInvalid` for anything but its yes.
   */
  async redeem(permit: string, call: PermittedCall): Promise<string> {
    const members = canonical({ permit, tool: call.tool, server: call.server });
    const body = `{"arguments":${canonical(call.arguments)},${members.slice(1)}`;
    const unavailable = (): PermitInvalid =>
      new PermitInvalid('the permit could not be redeemed, so it opens nothing', { code: 'unavailable', status: 503 });
    let answer: HttpAnswer;
    try {
      answer = await this.post('/v1/permits/verify', body);
    } catch (error) {
      if (error instanceof TransportError) throw unavailable();
      throw error;
    }
    if (answer.status === 200) {
      try {
        return wire.readRedeemed(answer.body);
      } catch {
        throw unavailable();
      }
    }
    const refusal = wire.readError(answer.body, answer.status);
    if (answer.status === 403 || answer.status === 409) throw new PermitInvalid(refusal.message, refusal);
    if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) throw refusal;
    throw unavailable();
  }

  /**
   * What of a streamed result may be used, while it arrives; throws `StreamCut` where it may not.
   *
   * What is held back is given in time though no chunk comes.
   */
  evaluateStreaming(
    decisionId: string,
    chunks: AsyncIterable<Chunk> | Iterable<Chunk>,
    options: StreamOptions = {},
  ): AsyncGenerator<Buffer> {
    const talk = { host: this.endpoint.hostHeader, headers: this.headers, seconds: this.timeout };
    return judgedStream(this.transport, talk, decisionId, chunks, options);
  }

  /** Close the idle connections; the client opens new ones if it is used again. */
  close(): void {
    this.transport.close();
  }

  private post(target: string, body: string): Promise<HttpAnswer> {
    return this.transport.request('POST', target, this.headers, body, this.timeout);
  }

  private proved(call: ToolCall): ToolCall {
    const prover = call.session === undefined || call.proof !== undefined ? undefined : this.provers.get(call.session);
    return prover === undefined ? call : prover.prove(call);
  }

  private holder(): Holder {
    if (this.agent === undefined) {
      throw new InvalidCall("the mission names a holder key, which is kept by the agent's name: say `agent`");
    }
    return new Holder(holderFolder(this.home), this.agent);
  }

  /** The object that the gateway answers about a session, and its status. */
  private async told(target: string, body: string): Promise<[JsonObject, number]> {
    let answer: HttpAnswer;
    try {
      answer = await this.post(target, body);
    } catch (error) {
      if (error instanceof TransportError) throw new GatewayUnavailable('the gateway did not answer about the session');
      throw error;
    }
    const { status } = answer;
    if (status >= 400 && status < 500 && status !== 429) throw wire.readError(answer.body, status);
    if (status !== 200 && status !== 201) throw new GatewayUnavailable(UNUSABLE);
    try {
      return [wire.readObject(answer.body), status];
    } catch {
      throw new GatewayUnavailable(UNUSABLE);
    }
  }
}

/** What an answer means for the call; anything unknown is a refusal. */
function decided(asked: wire.AskedCall, answer: HttpAnswer): Decision {
  const { status } = answer;
  if (status === 200 || status === 202) {
    try {
      return wire.readDecision(answer.body, asked, status === 200 ? MAY_RUN : HELD);
    } catch {
      return wire.blocked(asked, 'unavailable');
    }
  }
  const wait = wire.retryAfter(answer.headers['retry-after']);
  if (status === 429) return refusal(asked, answer, 'rate_limited', wait);
  if (status === 409) return refusal(asked, answer, 'conflict', wait);
  if (status >= 400 && status < 500) throw wire.readError(answer.body, status);
  return refusal(asked, answer, 'unavailable', wait);
}

/** The block decision in the body where there is one, and otherwise one made here. */
function refusal(asked: wire.AskedCall, answer: HttpAnswer, reason: Reason, wait: number | undefined): Decision {
  try {
    const decision = wire.readDecision(answer.body, asked, REFUSED);
    return wait === undefined ? decision : { ...decision, retryAfter: wait };
  } catch {
    return wire.blocked(asked, reason, wait);
  }
}

function observed(answer: HttpAnswer): ResultDecision {
  const { status } = answer;
  if (status === 200) {
    try {
      return wire.readResult(answer.body);
    } catch {
      return wire.withheld('unavailable');
    }
  }
  if (status === 429) return wire.withheld('rate_limited');
  if (status === 409) return wire.withheld('conflict');
  if (status >= 400 && status < 500) throw wire.readError(answer.body, status);
  return wire.withheld('unavailable');
}

function member(answer: JsonObject, name: string): string {
  try {
    return wire.text(answer, name);
  } catch {
    throw new GatewayUnavailable(UNUSABLE);
  }
}

function receiptIn(answer: JsonObject): OpenedSession['receipt'] {
  try {
    const receipt = wire.receiptOf(answer);
    if (receipt === undefined || !isObject(answer)) throw new GatewayUnavailable(UNUSABLE);
    return receipt;
  } catch {
    throw new GatewayUnavailable(UNUSABLE);
  }
}

const now = (): number => performance.now() / 1000;
const sleep = (seconds: number): Promise<void> => new Promise((settle) => setTimeout(settle, seconds * 1000));
