// Where marks of a chart go: round steps of an axis, and the split of a duration.
import type { CheckpointRow } from "../api";

/** Round values from 0 that reach `most`, at most `steps` of them beyond 0; `base` 1024 for bytes. */
export function ticks(most: number, steps: number, base: 10 | 1024 = 10): number[] {
  if (!(most > 0)) return [0];
  const unit = base === 1024 ? 1024 ** Math.floor(Math.log(most) / Math.log(1024)) : 1;
  const least = most / unit / steps;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = ([1, 2, 5, 10].find((round) => round * power >= least - 1e-9) ?? 10) * power * unit;
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, at) => at * step);
}

/** The parts of a duration, which do not overlap: `async` is without `upload`, which a checkpoint's `async_ms` includes. */
export interface Split {
  sync: number;
  async: number;
  upload: number;
  rest: number;
  total: number;
}

/** The parts of a checkpoint's duration. What they leave of it is Spark's start, reading, and the gate. */
export function split(checkpoint: Pick<CheckpointRow, "sync_ms" | "async_ms" | "upload_ms" | "duration_ms">): Split {
  const sync = checkpoint.sync_ms ?? 0;
  const asynchronous = checkpoint.async_ms ?? 0;
  const upload = Math.min(checkpoint.upload_ms ?? 0, asynchronous);
  const measured = sync + asynchronous;
  const total = Math.max(checkpoint.duration_ms ?? 0, measured);
  return { sync, async: asynchronous - upload, upload, rest: total - measured, total };
}

export const PARTS = ["rest", "sync", "async", "upload"] as const;
export const PART_NAMES: Record<(typeof PARTS)[number], string> = {
  rest: "run and gate",
  sync: "sync",
  async: "async without upload",
  upload: "upload",
};

/** Which of `count` labels of a width fit: every n-th, counted from the last. */
export function every(count: number, width: number, labelWidth: number): number {
  return Math.max(1, Math.ceil((count * labelWidth) / Math.max(width, 1)));
}

/** Entries by key group, in at most `cells` cells of equally many key groups each. */
export function binned(entries: number[], cells: number): { size: number; sums: number[] } {
  const size = Math.max(1, Math.ceil(entries.length / cells));
  const sums: number[] = [];
  for (let at = 0; at < entries.length; at += size) {
    sums.push(entries.slice(at, at + size).reduce((sum, value) => sum + value, 0));
  }
  return { size, sums };
}

export interface Spread {
  total: number;
  least: number;
  median: number;
  most: number;
  empty: number;
  /** The fullest against the mean; 1 is perfectly even. */
  skew: number;
}

export function spread(entries: number[]): Spread {
  const sorted = entries.toSorted((one, other) => one - other);
  const total = entries.reduce((sum, value) => sum + value, 0);
  const most = sorted.at(-1) ?? 0;
  return {
    total,
    least: sorted[0] ?? 0,
    median: sorted[Math.floor(sorted.length / 2)] ?? 0,
    most,
    empty: entries.filter((value) => value === 0).length,
    skew: total === 0 ? 1 : (most * entries.length) / total,
  };
}

/** `3–5, 9` of numbers in ascending order. */
export function ranges(numbers: number[]): string {
  const found: [number, number][] = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}
