/**
 * Every error that this package throws on purpose.
 *
 *     AegisError
 *     ├── InvalidCall           the caller misused the API (HTTP 4xx other than 409 and 429)
 *     │   └── PermitInvalid     a permit does not cover this call, or was used
 *     ├── ToolCallBlocked       a call was refused where no refusal can be handed to the model
 *     ├── StreamCut             a streamed result was cut; nothing more of it may be used
 *     ├── GatewayUnavailable    the gateway gave no usable answer, and no decision can stand for it
 *     ├── UnhookedFramework     an installed framework cannot be covered
 *     └── ForeignAnswer         a model provider's answer is not of the format that it claims
 */

import type { Decision, ResultDecision } from './values';

/** Base of everything that this package throws on purpose. */
export class AegisError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** What the error shape of the gateway says beside its message. */
export interface Fault {
  readonly code?: string;
  readonly hint?: string;
  readonly status?: number;
}

/** A call that can never be decided as it stands: malformed, or outside the caller's rights. */
export class InvalidCall extends AegisError {
  /** The stable word of the error shape. */
  readonly code: string;
  readonly hint: string;
  /** The HTTP status that stands for it. */
  readonly status: number;

  constructor(message: string, fault: Fault = {}) {
    super(message);
    this.code = fault.code ?? 'malformed';
    this.hint = fault.hint ?? '';
    this.status = fault.status ?? 422;
  }
}

/** A permit that opens nothing: 403 for another call, signature or audience; 409 when used, expired or revoked. */
export class PermitInvalid extends InvalidCall {
  constructor(message: string, fault: Fault = {}) {
    super(message, { code: fault.code ?? 'permit_invalid', hint: fault.hint ?? '', status: fault.status ?? 403 });
  }
}

/** A call was refused and its framework has no way to hand the model a refusal. */
export class ToolCallBlocked extends AegisError {
  readonly decision: Decision;

  constructor(decision: Decision) {
    super(decision.message);
    this.decision = decision;
  }
}

/** A result was cut while it was streamed; `decision` says why. */
export class StreamCut extends AegisError {
  readonly decision: ResultDecision;

  constructor(decision: ResultDecision) {
    super(decision.message);
    this.decision = decision;
  }
}

/** The gateway gave no usable answer, and no decision can stand for it. */
export class GatewayUnavailable extends AegisError {}

/** An installed framework cannot be covered; the message names the supported range. */
export class UnhookedFramework extends AegisError {}

/** A model provider's answer is not of the format that it claims. */
export class ForeignAnswer extends AegisError {}
