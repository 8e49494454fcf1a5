/** One request to a provider and its answer: results are observed, calls are enforced; and the `fetch` of an SDK around it. */

import { currentScope, currentSession } from './context';
import type { Dialect, Output, Proposed, Ruling, StreamFilter, Wire, WireEvent } from './dialects/model';
import { framed, putAll } from './dialects/model';
import { SseReader, sseText } from './dialects/sse';
import { type Attempt, type Enforced, type Enforcer } from './enforcer';
import { ForeignAnswer } from './errors';
import { canonical, isObject, sha256, stringify } from './json';
import type { Decided, Memory } from './memory';
import { ReasoningReader } from './reasoning';

const UNREADABLE = 'the result was withheld: it is not valid JSON text, so it could not be checked';
const BESIDE = 'the result was withheld: its tool ran without a decision about what it ran with';
const UNASKED = 'the result was withheld: the call was refused, and must not have run';

/**
 * The passage of one request and its answer through a hook.
 *
 * Tools that the scope names as deferred are enforced where a runner executes them, with their final arguments, and pass.
 */
export class ProviderTurn {
  private readonly session = currentSession();
  private readonly deferred = currentScope().deferred ?? new Set<string>();
  private readonly reader = new ReasoningReader();
  private structured = false;

  constructor(
    private readonly enforcer: Enforcer,
    private readonly memory: Memory,
    private readonly dialect: Dialect,
  ) {}

  /** The request as the provider may see it: results observed, refused calls put back. */
  async amended(request: Wire): Promise<Wire> {
    this.structured = this.dialect.structured(request);
    const observed = await this.observed(request);
    return this.dialect.putBack(observed, this.memory.recall(this.name));
  }

  /** The text of a whole answer as the agent may see it; the same text where nothing changes. */
  async body(text: string): Promise<string> {
    let answer: unknown;
    try {
      answer = JSON.parse(text);
    } catch {
      return text; // the SDK cannot read a call from it either: it uses the same parser
    }
    if (!isObject(answer)) return text;
    const anchors = this.dialect.anchors(answer);
    const calls = this.dialect.calls(answer);
    if (calls.length > 0) this.reader.whole(answer);
    const rulings = await this.rulings(calls, anchors[0] ?? '');
    const settled = this.dialect.settle(answer, rulings, this.structured);
    this.memory.learnRemovals(this.name, anchors, settled.removals);
    if (settled.answer === answer) return text;
    const changed = stringify(settled.answer);
    return changed === stringify(answer) ? text : changed;
  }

  /** The text of a streamed answer as the agent may see it. */
  async *chunks(source: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
    const reader = new SseReader();
    const filter = this.dialect.stream(this.structured);
    for await (const chunk of source) {
      for (const event of reader.feed(chunk)) yield* this.heard(filter, event);
    }
    for (const event of reader.end()) yield* this.heard(filter, event);
  }

  private heard(filter: StreamFilter, event: WireEvent): AsyncGenerator<string> {
    this.reader.take(event);
    return this.step(filter, filter.feed(event));
  }

  private async *step(filter: StreamFilter, step: ReturnType<StreamFilter['feed']>): AsyncGenerator<string> {
    if (step.events.length > 0) yield step.events.map(sseText).join('');
    if (step.calls.length === 0) return;
    const events = filter.settle(await this.rulings(step.calls, filter.anchors[0] ?? ''));
    this.memory.learnRemovals(this.name, filter.anchors, filter.removals);
    if (events.length > 0) yield events.map(sseText).join('');
  }

  private get name(): string {
    return this.session?.name ?? '';
  }

  private async rulings(calls: readonly Proposed[], answerId: string): Promise<Map<string, Ruling>> {
    const rulings = new Map<string, Ruling>();
    const reasoning = calls.length > 0 ? this.reader.found : undefined;
    const asked: Proposed[] = [];
    const attempts: Attempt[] = [];
    for (const call of calls) {
      if (this.deferred.has(call.server ?? call.tool)) {
        rulings.set(call.key, this.deferring(call));
      } else if (call.arguments === undefined) {
        rulings.set(call.key, { allowed: false, message: call.problem });
        this.memory.learnDecision(this.name, call.callId, { decisionId: '', allowed: false });
      } else {
        asked.push(call);
        const callId = this.memory.callId(this.name, answerId, call.callId);
        attempts.push({ tool: call.tool, arguments: call.arguments, server: call.server, callId, reasoning });
      }
    }
    const enforced = await this.enforcer.enforce(attempts, this.session);
    enforced.forEach((outcome, index) => {
      const call = asked[index] as Proposed;
      rulings.set(call.key, rulingOf(outcome));
      this.memory.learnDecision(this.name, call.callId, {
        decisionId: outcome.decision.decisionId,
        allowed: outcome.allowed,
        ...(outcome.allowed ? { enforced: outcome } : {}),
      });
    });
    return rulings;
  }

  /** Let a runner's call pass. One that cannot be read passes empty, for its refusal to be its result. */
  private deferring(call: Proposed): Ruling {
    if (call.arguments !== undefined) {
      this.memory.forgetDecision(this.name, call.callId);
      this.enforcer.openCalls.opened(this.name, call.callId, call.tool);
      return { allowed: true };
    }
    this.memory.learnDecision(this.name, call.callId, { decisionId: '', allowed: false, refusal: call.problem });
    return { allowed: true, arguments: {} };
  }

  /** The request with every tool result as the model may see it. */
  private async observed(request: Wire): Promise<Wire> {
    // (1) What each result is known by, and which of them were never seen.
    const found: [Output, Decided, string][] = [];
    const unseen = new Map<string, [Decided, string, unknown]>();
    for (const output of this.dialect.outputs(request)) {
      const digest = digestOf(output.value);
      let decided = this.memory.decision(this.name, output.callId);
      const beside = this.enforcer.openCalls.closed(this.name, output.callId);
      if (beside && decided?.results.has(digest) !== true) {
        // Whatever was decided, this is not what was judged under it.
        decided = { decisionId: '', allowed: false, told: BESIDE, results: new Map() };
        this.memory.learnDecision(this.name, output.callId, decided);
      }
      if (decided === undefined) continue; // of no call that this process decided
      found.push([output, decided, digest]);
      if (decided.allowed && digest !== '' && !decided.results.has(digest)) {
        unseen.set(`${decided.decisionId}\0${digest}`, [decided, digest, output.value]);
      }
    }
    // (2) Observe those, each once, however often the conversation repeats it.
    const asked = [...unseen.values()];
    // A runner's result was observed where it ran; this is what its framework made of it, or a shorter form.
    const seen = await this.enforcer.observe(
      asked.map(([{ decisionId, results }, , result]) => ({ decisionId, result, further: results.size > 0 })),
    );
    seen.forEach(({ changed, value }, index) => {
      const [decided, digest] = asked[index] as [Decided, string, unknown];
      this.memory.learnResult(decided, digest, changed, value);
    });
    // (3) Replace what the model may not see as it is; a result of a refused call is never shown.
    const changes = found.flatMap(([output, decided, digest]) => {
      const known = decided.results.get(digest) ?? {
        changed: true,
        value: decided.allowed ? UNREADABLE : (decided.told ?? UNASKED),
      };
      return known.changed ? [[output.path, framed(output, known.value)] as const] : [];
    });
    return changes.length > 0 ? putAll(request, changes) : request;
  }
}

function rulingOf(outcome: Enforced): Ruling {
  if (!outcome.allowed) return { allowed: false, message: outcome.refusal };
  return { allowed: true, arguments: outcome.changed ? outcome.arguments() : undefined };
}

/** By what a result is known again; empty for what is not JSON. */
function digestOf(value: unknown): string {
  try {
    return sha256(canonical(value));
  } catch {
    return '';
  }
}

/** The dialect for the path of a request; nothing for one that proposes no calls; throws for one that is not covered. */
export type DialectOf = (path: string) => Dialect | undefined;

type FetchInit = { method?: string; body?: unknown; headers?: unknown } & Record<string, unknown>;

/**
 * Send one request of an SDK through a turn: the body amended before `send`, the answer settled after.
 *
 * A body that is no JSON text cannot be read and is refused where its path proposes calls.
 */
export async function throughTurn(
  enforcer: Enforcer,
  memory: Memory,
  dialectOf: DialectOf,
  url: unknown,
  init: FetchInit | undefined,
  send: (init: FetchInit | undefined) => Promise<Response>,
): Promise<Response> {
  const path = new URL(String(url instanceof Request ? url.url : url), 'http://localhost').pathname;
  const dialect = dialectOf(path);
  if (dialect === undefined) return send(init);
  const turn = new ProviderTurn(enforcer, memory, dialect);
  let amendedInit = init;
  const sent = init?.body;
  if (typeof sent === 'string' && sent !== '') {
    const request: unknown = JSON.parse(sent);
    if (isObject(request)) {
      const amended = await turn.amended(request);
      if (amended !== request) amendedInit = withBody(init as FetchInit, stringify(amended));
    }
  } else if (sent !== undefined && sent !== null && sent !== '') {
    throw new ForeignAnswer('the body of a model request is no JSON text, so it could not be looked at');
  }
  const response = await send(amendedInit);
  if (!response.ok) return response;
  const kind = (response.headers.get('content-type') ?? '').toLowerCase();
  if (kind.includes('eventstream')) {
    throw new ForeignAnswer(`streams of type \`${kind}\` are not covered; call the model without streaming`);
  }
  if (kind.includes('event-stream')) return replaced(response, streamOf(turn.chunks(bytesOf(response))));
  const text = await response.text();
  return replaced(response, await turn.body(text));
}

function withBody(init: FetchInit, body: string): FetchInit {
  const headers = new Headers(init.headers as ConstructorParameters<typeof Headers>[0]);
  if (headers.has('content-length')) headers.set('content-length', String(Buffer.byteLength(body)));
  return { ...init, body, headers };
}

async function* bytesOf(response: Response): AsyncGenerator<Uint8Array> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function streamOf(source: AsyncGenerator<string>): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await source.next();
        if (done === true) controller.close();
        else controller.enqueue(encoder.encode(value));
      } catch (error) {
        controller.error(error);
      }
    },
    async cancel() {
      await source.return(undefined);
    },
  });
}

// They describe the bytes that came over the wire, not those that go on.
const OF_THE_WIRE = ['content-encoding', 'content-length', 'transfer-encoding'];

/** The same answer with another body. */
function replaced(response: Response, body: string | ReadableStream<Uint8Array>): Response {
  const headers = new Headers(response.headers);
  for (const name of OF_THE_WIRE) headers.delete(name);
  const { status, statusText, url } = response;
  const bare = status === 204 || status === 304;
  const made = new Response(bare ? null : body, { status, statusText, headers });
  Object.defineProperty(made, 'url', { value: url });
  return made;
}
