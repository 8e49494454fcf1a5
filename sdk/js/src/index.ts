/** Decide every tool call of a JavaScript agent before it runs, at an Aegis gateway. */

export { auto, type AutoOptions, type Hooked, type Report, unhook } from './auto';
export { Client, type ClientOptions, type PermittedCall, type SessionOptions, type TurnOptions } from './client';
export { currentPermit, currentSession } from './context';
export {
  AegisError,
  ForeignAnswer,
  GatewayUnavailable,
  InvalidCall,
  PermitInvalid,
  StreamCut,
  ToolCallBlocked,
  UnhookedFramework,
} from './errors';
export type { OnApproval } from './enforcer';
export { callDigest, canonical, type Json, type JsonObject, parse, sha256 } from './json';
export { protect, type ProtectOptions, requirePermit, type RequirePermitOptions, withPermit } from './protect';
export { configure, type RuntimeOptions } from './runtime';
export { session, type Session, turn } from './sessions';
export type { Chunk, StreamOptions } from './stream';
export type {
  Decider,
  Decision,
  OpenedSession,
  Outcome,
  Reason,
  ResultDecision,
  Risk,
  ToolCall,
  ToolResult,
  Verdict,
} from './values';
