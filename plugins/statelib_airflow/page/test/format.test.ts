import { describe, expect, it } from "vitest";
import { ago, bytes, duration, grouped, interval, percent, round, signed, span, utc } from "../src/format";

const thin = (text: string) => text.replaceAll(" ", "\u202f");
const DAY = 86_400_000;

describe("numbers", () => {
  it("groups digits in threes", () => {
    expect([0, 999, 1_000, 12_345_678, -1_234].map(grouped)).toEqual(["0", "999", thin("1 000"), thin("12 345 678"), thin("−1 234")]);
  });

  it("shows bytes with three digits that count, and never 1024 of a unit", () => {
    const shown = [null, 0, 1_023, 1_024, 10_240, 1_048_575, 1_048_576, 5 * 1024 ** 4].map(bytes);
    expect(shown).toEqual(["–", ...["0 B", "1023 B", "1.00 KiB", "10.0 KiB", "1.00 MiB", "1.00 MiB", "5.00 TiB"].map(thin)]);
  });

  it("leaves zeros behind the point out on an axis", () => {
    expect([bytes(2 * 1024 ** 2), bytes(1_536), duration(20_000)].map(round)).toEqual(["2 MiB", "1.50 KiB", "20 s"].map(thin));
  });

  it("says what changed by its sign", () => {
    expect([signed(0), signed(3), signed(-2_048, bytes)]).toEqual(["±0", "+3", `−${thin("2.00 KiB")}`]);
  });

  it("does not round a small share to nothing", () => {
    expect([0, 0.0004, 0.054, 0.5, 1].map(percent)).toEqual(["0 %", "<0.1 %", "5.4 %", "50 %", "100 %"].map(thin));
  });
});

describe("times", () => {
  it("shows durations in two units at most", () => {
    const shown = [null, 12, 1_500, 59_949, 59_950, 61_000, 3_600_000, 90_061_000].map(duration);
    expect(shown).toEqual(["–", thin("12 ms"), thin("1.5 s"), thin("59.9 s"), thin("1 min"), `${thin("1 min")} ${thin("1 s")}`, thin("1 h"), `${thin("1 d")} ${thin("1 h")}`]);
  });

  it("tells ages in one unit", () => {
    const now = 10 ** 12;
    const shown = [0, 5_000, 119_000, 120_000, 3 * 3_600_000, 3 * DAY].map((age) => ago(now - age, now));
    expect(shown).toEqual(["just now", ...["5 s", "119 s", "2 min", "3 h", "3 d"].map((text) => `${thin(text)} ago`)]);
    expect(ago(now + 60_000, now)).toBe(`in ${thin("60 s")}`);
  });

  it("is in UTC wherever it is read", () => {
    expect(utc(Date.UTC(2013, 0, 8, 2, 0, 13))).toBe("2013-01-08 02:00:13 UTC");
  });

  it("shows whole days as dates, the last one included", () => {
    const start = Date.UTC(2013, 0, 1);
    expect(interval(null)).toBe("–");
    expect(interval({ start_ms: start, end_ms: start + DAY })).toBe("2013-01-01");
    expect(interval({ start_ms: start, end_ms: start + 3 * DAY })).toBe("2013-01-01 … 2013-01-03");
    expect(interval({ start_ms: start + 3_600_000, end_ms: start + 7_200_000 })).toBe("2013-01-01 01:00 … 02:00");
  });

  it("names the interval that a checkpoint applied or corrects", () => {
    const first = { start_ms: Date.UTC(2013, 0, 5), end_ms: Date.UTC(2013, 0, 6) };
    expect(span({ interval: first, mends: null })).toBe("2013-01-05");
    expect(span({ interval: null, mends: first })).toBe("mends 2013-01-05");
    expect(span({ interval: null, mends: null })).toBe("–");
  });
});
