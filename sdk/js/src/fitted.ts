/** What a tool's body gets in place of its validated arguments. */

import { canonical, isObject, type Json, jsonable } from './json';

/**
 * What a body gets in place of its validated `values` when `allowed` may run.
 *
 * Plain JSON is given as the fresh decode of what was decided. Values of other kinds (dates) stay where nothing was
 * changed; else `validate` makes them again from what is allowed. Throws where something else would run than that.
 */
export function fitted(
  values: unknown,
  allowed: Record<string, unknown>,
  validate?: (allowed: Record<string, unknown>) => unknown,
): unknown {
  if (isPlain(values)) return allowed;
  const wanted = canonical(allowed);
  if (canonical(jsonable(values)) === wanted) return values;
  const made = validate === undefined ? allowed : validate(allowed);
  if (canonical(jsonable(made)) !== wanted) throw new TypeError('the changed arguments do not fit the tool');
  return made;
}

/** Whether a value is its own JSON form. */
export function isPlain(value: unknown): boolean {
  if (value === null || value === undefined || ['string', 'number', 'boolean', 'bigint'].includes(typeof value)) return true;
  if (Array.isArray(value)) return value.every(isPlain);
  if (!isObject(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return (prototype === Object.prototype || prototype === null) && Object.values(value).every(isPlain);
}

/** A value as a model would see it: as JSON, or as text where it has no such form. */
export function shownTo(value: unknown): Json {
  try {
    return jsonable(value);
  } catch {
    return String(value);
  }
}
