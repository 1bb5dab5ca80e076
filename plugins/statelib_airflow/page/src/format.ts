// Numbers and times for people. Groups of digits are parted by a narrow space that does not break.

const THIN = "\u202f";
export const NONE = "–";

export function grouped(value: number): string {
  const [whole = "", rest] = String(Math.abs(value)).split(".");
  const digits = whole.replace(/\B(?=(\d{3})+$)/g, THIN);
  return `${value < 0 ? "−" : ""}${digits}${rest ? `.${rest}` : ""}`;
}

export const count = (value: number | null | undefined) => (value == null ? NONE : grouped(value));

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 3 digits that count: `812 B`, `1.46 KiB`, `23.1 MiB`. */
export function bytes(value: number | null | undefined): string {
  if (value == null) return NONE;
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1023.5 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return `${value < 0 ? "−" : ""}${size.toFixed(digits)}${THIN}${UNITS[unit]}`;
}

/** A round value on an axis: `2 MiB`, not `2.00 MiB`. */
export const round = (text: string) => text.replace(/\.0+(?=\D|$)/, "");

export const exactBytes = (value: number) => `${grouped(value)} bytes`;

export function duration(ms: number | null | undefined): string {
  if (ms == null) return NONE;
  if (ms < 1000) return `${Math.round(ms)}${THIN}ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)}${THIN}s`;
  return longer(Math.round(ms / 1000));
}

function longer(seconds: number): string {
  const days = Math.floor(seconds / 86_400);
  const hours = Math.floor((seconds % 86_400) / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  const pieces = [
    [days, "d"],
    [hours, "h"],
    [minutes, "min"],
    [seconds % 60, "s"],
  ] as const;
  const first = pieces.findIndex(([value]) => value > 0);
  const shown = pieces.slice(Math.max(first, 0), Math.max(first, 0) + 2).filter(([value], at) => at === 0 || value > 0);
  return shown.map(([value, unit]) => `${value}${THIN}${unit}`).join(" ");
}

/** How long ago, in one unit: `just now`, `42 s ago`, `5 min ago`, `3 d ago`. */
export function ago(thenMs: number, nowMs: number): string {
  const seconds = Math.round((nowMs - thenMs) / 1000);
  if (seconds < -5) return `in ${oneUnit(-seconds)}`;
  return seconds < 5 ? "just now" : `${oneUnit(seconds)} ago`;
}

function oneUnit(seconds: number): string {
  const steps: [number, string][] = [
    [86_400 * 365, "y"],
    [86_400 * 2, "d"],
    [3600 * 2, "h"],
    [120, "min"],
    [1, "s"],
  ];
  const [size, unit] = steps.find(([least]) => seconds >= least) ?? [1, "s"];
  const one = { y: 86_400 * 365, d: 86_400, h: 3600, min: 60, s: 1 }[unit] ?? size;
  return `${Math.floor(seconds / one)}${THIN}${unit}`;
}

const two = (value: number) => String(value).padStart(2, "0");

/** `2013-01-08 02:00:13 UTC` */
export function utc(ms: number): string {
  return `${day(ms)} ${clock(ms)} UTC`;
}

export function day(ms: number): string {
  const at = new Date(ms);
  return `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
}

export function clock(ms: number): string {
  const at = new Date(ms);
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
}

const DAY = 86_400_000;

interface Bounds {
  start_ms: number;
  end_ms: number;
}

/** The data interval: one day is its date, whole days are dates, the rest has hours and minutes. */
export function interval(value: Bounds | null): string {
  if (value === null) return NONE;
  const { start_ms: start, end_ms: end } = value;
  if (start % DAY === 0 && end % DAY === 0) {
    return end - start === DAY ? day(start) : `${day(start)} … ${day(end - DAY)}`;
  }
  const until = day(start) === day(end) ? clock(end).slice(0, 5) : `${day(end)} ${clock(end).slice(0, 5)}`;
  return `${day(start)} ${clock(start).slice(0, 5)} … ${until}`;
}

/** What a checkpoint took from the source: the interval that it applied, or the earlier one that it corrects. */
export function span(one: { interval: Bounds | null; mends: Bounds | null }): string {
  return one.mends ? `mends ${interval(one.mends)}` : interval(one.interval);
}

/** `+1 024`, `−3`, `±0`: what became more or less. */
export function signed(value: number, show: (magnitude: number) => string = grouped): string {
  if (value === 0) return "±0";
  return `${value > 0 ? "+" : "−"}${show(Math.abs(value))}`;
}

export function percent(share: number): string {
  if (share > 0 && share < 0.001) return `<0.1${THIN}%`;
  const digits = share === 0 || share >= 0.0995 ? 0 : 1;
  return `${(share * 100).toFixed(digits)}${THIN}%`;
}

export const factor = (value: number | null | undefined) => (value == null ? NONE : `${value.toFixed(2)}×`);
export const plural = (value: number, one: string, many = `${one}s`) => `${grouped(value)} ${value === 1 ? one : many}`;
export const words = (constant: string) => constant.toLowerCase().replaceAll("_", " ");
