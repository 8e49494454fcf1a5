/** Methods that were replaced, and how each is put back. */

// biome-style any: what is replaced belongs to packages whose types this package does not depend on.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Method = (this: any, ...args: any[]) => any;
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Owner = Record<PropertyKey, any>;

/** The replacements of one hooked module; after `undo` everything is as it was. */
export class Patches {
  private readonly undos: (() => void)[] = [];
  /** Whether the replacements are in force; wrappers that were handed out before pass calls on when they are not. */
  active = true;

  /** Replace a method by what `make` gives for it; throws `TypeError` where there is none. */
  replace(owner: Owner | undefined, name: PropertyKey, make: (original: Method) => Method): void {
    const holder = holderOf(owner, name);
    const original: unknown = owner?.[name];
    if (owner === undefined || holder === undefined || typeof original !== 'function') {
      throw new TypeError(`\`${String(name)}\` is not where it was expected`);
    }
    const before = Object.getOwnPropertyDescriptor(owner, name);
    Object.defineProperty(owner, name, {
      value: make(original as Method),
      writable: true,
      configurable: true,
      enumerable: before?.enumerable ?? false,
    });
    this.undos.push(() => {
      if (before === undefined) delete owner[name];
      else Object.defineProperty(owner, name, before);
    });
  }

  /** Refuse a method for as long as the hook is on. */
  bar(owner: Owner | undefined, name: PropertyKey, path: string): boolean {
    if (typeof owner?.[name] !== 'function') return false;
    this.replace(owner, name, () => () => {
      throw new TypeError(`\`${path}\` is refused while Aegis is hooked: what arrives over it is not seen`);
    });
    return true;
  }

  /** Do something more when the hook is taken off. */
  onUndo(undo: () => void): void {
    this.undos.push(undo);
  }

  undo(): void {
    this.active = false;
    for (const undo of this.undos.splice(0).reverse()) undo();
  }
}

function holderOf(owner: Owner | undefined, name: PropertyKey): object | undefined {
  for (let one: object | null = owner ?? null; one !== null; one = Object.getPrototypeOf(one) as object | null) {
    if (Object.hasOwn(one, name)) return one;
  }
  return undefined;
}
