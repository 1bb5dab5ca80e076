import { describe, expect, it } from "vitest";
import type { CheckpointFile, CheckpointRow } from "../src/api";
import { steps } from "../src/parts/areas";
import { moved } from "../src/parts/figure";
import { columnsFor, ownerOf } from "../src/parts/heat";
import { binned, ranges, split, spread, ticks } from "../src/parts/scale";
import { allSamples, partsOf, summed } from "../src/parts/storage";
import { sortedBy } from "../src/parts/table";
import { putBack } from "../src/pages/history";
import { originsOf, seenFrom } from "../src/pages/checkpoint/files";

describe("axes", () => {
  it("go by round steps and reach the largest value", () => {
    expect(ticks(17, 4)).toEqual([0, 5, 10, 15, 20]);
    expect(ticks(1, 2)).toEqual([0, 0.5, 1]);
    expect(ticks(0, 3)).toEqual([0]);
    expect(ticks(1.6 * 1024 ** 2, 2, 1024)).toEqual([0, 1024 ** 2, 2 * 1024 ** 2]);
  });
});

describe("a checkpoint's duration", () => {
  it("is its parts and the rest", () => {
    const whole = { sync_ms: 1, async_ms: 5, upload_ms: 3, duration_ms: 10 };
    expect(split(whole)).toEqual({ sync: 1, async: 2, upload: 3, rest: 4, total: 10 });
    expect(split({ ...whole, duration_ms: 5 })).toMatchObject({ rest: 0, total: 6 });
    expect(split({ sync_ms: null, async_ms: null, upload_ms: null, duration_ms: null }).total).toBe(0);
  });
});

describe("key groups", () => {
  it("share cells when there are many, and none is lost", () => {
    expect(binned([1, 2, 3], 4)).toEqual({ size: 1, sums: [1, 2, 3] });
    expect(binned([1, 2, 3, 4, 5], 2)).toEqual({ size: 3, sums: [6, 9] });
  });

  it("are told by their spread", () => {
    expect(spread([0, 2, 4, 10])).toEqual({ total: 16, least: 0, median: 4, most: 10, empty: 1, skew: 2.5 });
    expect(spread([0, 0]).skew).toBe(1);
  });

  it("belong to the subtask whose range they are in", () => {
    const subtasks = [[0, 63], [64, 127]].map(([first = 0, last = 0], subtask) => ({ subtask, key_groups: [first, last] as [number, number], restored_from: null, bytes: 0 }));
    expect([0, 63, 64, 127, 128].map((group) => ownerOf(group, subtasks))).toEqual([0, 0, 1, 1, null]);
  });

  it("line up in columns of a power of two", () => {
    expect([100, 300, 1200].map((width) => columnsFor(width, 128))).toEqual([8, 16, 32]);
    expect(columnsFor(1200, 4)).toBe(4);
  });

  it("are listed as ranges", () => {
    expect(ranges([1, 2, 3, 7, 9, 10])).toBe("1–3, 7, 9–10");
    expect(ranges([])).toBe("");
  });
});

describe("a chart's cursor", () => {
  it("stays within the chart", () => {
    const keys = ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End", "a"];
    expect(keys.map((key) => moved(key, 5, 40, 16))).toEqual([6, 4, 21, 0, 0, 39, null]);
  });
});

describe("storage", () => {
  const one = { files: 2, live_bytes: 100, shared_bytes: 60, garbage_bytes: 20, savepoint_bytes: 5, amplification: 1.2 };
  const other = { files: 3, live_bytes: 300, shared_bytes: 0, garbage_bytes: 80, savepoint_bytes: 0, amplification: 1.27 };

  it("counts shared bytes once", () => {
    expect(partsOf(one)).toEqual({ alone: 40, shared: 60, savepoint: 5, garbage: 20 });
    expect(summed([one, other])).toEqual({ files: 5, live_bytes: 400, shared_bytes: 60, garbage_bytes: 100, savepoint_bytes: 5, amplification: 1.25 });
    expect(summed([]).amplification).toBeNull();
  });

  it("of all is what each had last", () => {
    const all = allSamples([
      [{ at_ms: 3, ...other }, { at_ms: 1, ...one }],
      [{ at_ms: 2, ...one }],
    ]);
    expect(all.map((sample) => [sample.at_ms, sample.live_bytes])).toEqual([
      [1, 100],
      [2, 200],
      [3, 400],
    ]);
  });

  it("stands as sampled until the next sample", () => {
    expect(steps([[0, 1], [4, 3]])).toEqual([[0, 1], [4, 1], [4, 3]]);
    expect(steps([])).toEqual([]);
  });

  it("is told by who wrote it", () => {
    const file = (created_by: number | null, size_bytes: number, scope = "shared"): CheckpointFile => ({ path: `${created_by}-${size_bytes}`, size_bytes, crc32c: "00000000", key_groups: [0, 127], scope, created_by, shared_with: [], shared_with_total: 0 });
    expect(originsOf([file(3, 1), file(5, 2), file(3, 4), file(null, 8, "exclusive"), file(null, 16)], 5)).toEqual([
      { id: 5, bytes: 10 },
      { id: 3, bytes: 5 },
      { id: null, bytes: 16 },
    ]);
  });
});

describe("sorting", () => {
  const columns = [{ id: "a", by: (row: { a: number | string | null }) => row.a }];

  it("puts what is absent last, up or down", () => {
    const rows = [{ a: 2 }, { a: null }, { a: 10 }];
    expect(sortedBy(rows, columns, { by: "a", down: false }).map((row) => row.a)).toEqual([2, 10, null]);
    expect(sortedBy(rows, columns, { by: "a", down: true }).map((row) => row.a)).toEqual([10, 2, null]);
    expect(sortedBy(rows, columns, null)).toBe(rows);
  });

  it("sorts numbers in names as numbers", () => {
    expect(sortedBy([{ a: "x10" }, { a: "x9" }], columns, { by: "a", down: false }).map((row) => row.a)).toEqual(["x9", "x10"]);
  });
});

describe("a file's path", () => {
  it("is told from the checkpoint's directory", () => {
    expect(seenFrom("file:///state/p/chk-4", "file:///state/p/shared/a-0")).toBe("../shared/a-0");
    expect(seenFrom("file:///state/p/chk-4", "a-0")).toBe("a-0");
    expect(seenFrom("file:///state/p/chk-4", "s3://kept/a-0")).toBe("s3://kept/a-0");
    expect(seenFrom("", "a-0")).toBe("a-0");
  });
});

describe("a restore", () => {
  it("shows in the history, at what was taken next", () => {
    const row = (checkpoint_id: number, base: number | null, generation: number) => ({ checkpoint_id, base, generation }) as CheckpointRow;
    const rows = [row(1, null, 0), row(2, 1, 0), row(3, 1, 1), row(4, 3, 1), row(9, 8, 2)];
    expect(rows.map((one) => putBack(one, rows))).toEqual([null, null, 1, null, null]);
  });
});
