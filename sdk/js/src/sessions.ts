/** A session as the host opens it: what is called in it belongs together and serves one task. */

import type { Client, SessionOptions, TurnOptions } from './client';
import { currentSession, scoped } from './context';
import { AegisError } from './errors';
import { currentRuntime } from './runtime';
import { checkCall } from './values';

/** What `session` gives to the code that runs in it. */
export interface Session {
  readonly name: string;
  /** Say what the user said next; see `Client.turn`. */
  turn(text: string, options?: TurnOptions): Promise<void>;
}

/**
 * Make every tool call of `run` part of the session `name`.
 *
 * The session is opened at the gateway where there is anything to say about it, so that the task is trusted and the
 * mission in force. The task is in the host's words and never in the model's; the same words again go on with the same
 * session. Rejects with `InvalidCall` where the session is refused and `GatewayUnavailable` where it could not be opened.
 */
export async function session<T>(
  name: string,
  options: SessionOptions,
  run: (session: Session) => T | Promise<T>,
): Promise<T> {
  checkCall({ tool: 'session', session: name, task: options.task, arguments: {} });
  if (Object.values(options).some((value) => value !== undefined && value !== '')) {
    await sessionHost().openSession(name, options);
  }
  return scoped({ session: { name, task: options.task } }, () => run({ name, turn: (text, more) => turn(text, more) }));
}

/** Say what the user said next in the session of this piece of code. */
export async function turn(text: string, options: TurnOptions = {}): Promise<void> {
  const name = currentSession()?.name;
  if (name === undefined) throw new AegisError('there is no session here: run this inside `session`');
  await sessionHost().turn(name, text, options);
}

function sessionHost(): Client {
  const { client } = currentRuntime();
  if (!('openSession' in client)) throw new AegisError('the decider of this process opens no sessions');
  return client as Client;
}
