/** A map that forgets its oldest entries beyond a number, or a weight, of them. */
export class Bounded<V> {
  private readonly entries = new Map<string, { readonly value: V; readonly weight: number }>();
  private weight = 0;

  constructor(
    private readonly most: number,
    private readonly heaviest = Number.POSITIVE_INFINITY,
  ) {}

  get(key: string): V | undefined {
    return this.entries.get(key)?.value;
  }

  put(key: string, value: V, weight = 0): void {
    this.drop(key);
    this.entries.set(key, { value, weight });
    this.weight += weight;
    while (this.entries.size > this.most || (this.weight > this.heaviest && this.entries.size > 1)) {
      this.drop(this.entries.keys().next().value as string);
    }
  }

  drop(key: string): void {
    const found = this.entries.get(key);
    if (found === undefined) return;
    this.weight -= found.weight;
    this.entries.delete(key);
  }
}
