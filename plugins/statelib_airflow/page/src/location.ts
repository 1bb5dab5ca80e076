// Where the page is: its fragment, and how to go elsewhere.
import { useSyncExternalStore } from "react";
import { parse, type Route } from "./route";

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

export const useHash = () => useSyncExternalStore(subscribe, () => window.location.hash);
export const useRoute = (): Route => parse(useHash());

/** Go on to a place; the present one stays in the history. */
export function go(hash: string): void {
  window.location.hash = hash;
}

/** Be at a place instead of the present one: sorting and filtering leave no trail of their own. */
export function become(hash: string): void {
  window.history.replaceState(window.history.state, "", hash);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
