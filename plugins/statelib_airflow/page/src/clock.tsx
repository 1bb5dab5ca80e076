// The server's now: ages are told by its clock, not by that of the person who looks.
import { useSyncExternalStore } from "react";

const TICK_MS = 5_000;
let ahead = 0;
let shown = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function tick(): void {
  shown = Date.now() + ahead;
  for (const listener of listeners) listener();
}

/** What an answer said about the time. */
export function heard(nowMs: number): void {
  ahead = nowMs - Date.now();
  if (Math.abs(Date.now() + ahead - shown) > 1_000) tick();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(tick, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

export const useNow = () => useSyncExternalStore(subscribe, () => shown);
