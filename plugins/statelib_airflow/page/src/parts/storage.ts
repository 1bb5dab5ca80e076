// What lies in storage, by what it is for. Shared bytes are a part of the live ones.
import type { StoragePoint, StorageRow } from "../api";

export type Sizes = Omit<StorageRow, "name">;

export type StorageKind = "alone" | "shared" | "savepoint" | "garbage";

export const KINDS: { key: StorageKind; name: string; meaning: string }[] = [
  { key: "alone", name: "one checkpoint's", meaning: "referred to by one checkpoint" },
  { key: "shared", name: "shared", meaning: "referred to by several checkpoints, stored once" },
  { key: "savepoint", name: "savepoints", meaning: "belong to their users; gc leaves them" },
  { key: "garbage", name: "garbage", meaning: "nobody refers to it; gc deletes it" },
];

export function partsOf(sizes: Sizes): Record<StorageKind, number> {
  return {
    alone: Math.max(0, sizes.live_bytes - sizes.shared_bytes),
    shared: Math.min(sizes.shared_bytes, sizes.live_bytes),
    savepoint: sizes.savepoint_bytes,
    garbage: sizes.garbage_bytes,
  };
}

export const totalOf = (sizes: Sizes) => sizes.live_bytes + sizes.savepoint_bytes + sizes.garbage_bytes;

/** Of all: amplification is what lies there for each live byte. */
export function summed(rows: Sizes[]): Sizes {
  const add = (key: Exclude<keyof Sizes, "amplification">) => rows.reduce((sum, row) => sum + row[key], 0);
  const live_bytes = add("live_bytes");
  const garbage_bytes = add("garbage_bytes");
  return {
    files: add("files"),
    live_bytes,
    shared_bytes: add("shared_bytes"),
    garbage_bytes,
    savepoint_bytes: add("savepoint_bytes"),
    amplification: live_bytes > 0 ? (live_bytes + garbage_bytes) / live_bytes : null,
  };
}

/** All pipelines over time: at each sample of any, the last sample of every one. */
export function allSamples(histories: StoragePoint[][]): StoragePoint[] {
  const times = [...new Set(histories.flatMap((samples) => samples.map((one) => one.at_ms)))].sort((a, b) => a - b);
  const sorted = histories.map((samples) => samples.toSorted((one, other) => one.at_ms - other.at_ms));
  const next = sorted.map(() => 0);
  return times.map((at_ms) => {
    const standing = sorted.flatMap((samples, index) => {
      while ((samples[next[index] ?? 0]?.at_ms ?? Infinity) <= at_ms) next[index] = (next[index] ?? 0) + 1;
      const last = samples[(next[index] ?? 0) - 1];
      return last ? [last] : [];
    });
    return { at_ms, ...summed(standing) };
  });
}
