// Requests to the page's API. The types of the responses are in api.ts.
import type { ErrorResponse, Responses } from "./api";

/** What went wrong, where, and what to do about it. `status`: 0 if there was no response. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

/** The page lies at `<Airflow>/statelib/`, however the two are mounted. */
const pageUrl = () => new URL(".", document.baseURI);
export const apiUrl = (path: string) => new URL(`api/${path}`, pageUrl()).href;
export const airflowUrl = (path: string) => new URL(`../${path}`, pageUrl()).href;

export type Parameters = Record<string, string | number>;

/** The path of a route with its parameters in it. The other parameters become the query, sorted by name. */
export function pathOf(route: string, parameters: Parameters): string {
  const query = new URLSearchParams(Object.entries(parameters).map(([name, value]) => [name, String(value)]));
  const path = route.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = query.get(name) ?? "";
    query.delete(name);
    return encodeURIComponent(value);
  });
  query.sort();
  const rest = query.toString();
  return rest ? `${path}?${rest}` : path;
}

export async function getJson<Route extends keyof Responses>(
  route: Route,
  parameters: Parameters,
  signal?: AbortSignal,
): Promise<Responses[Route]> {
  let response: Response;
  try {
    response = await fetch(apiUrl(pathOf(route, parameters)), { credentials: "same-origin", signal: signal ?? null });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "Airflow does not answer.", "Is the api-server running? Retry when it is.");
  }
  const body: unknown = await response.json().catch(() => null);
  if (response.ok && body !== null) return body as Responses[Route];
  throw refused(response.status, body);
}

/** The error of a response. Whatever stands between the page and its API may answer in a form of its own. */
export function refused(status: number, body: unknown): ApiError {
  const { kind = "error", message, hint = "" } = (body ?? {}) as Partial<ErrorResponse>;
  if (typeof message === "string") return new ApiError(status, kind, message, hint);
  if (status === 401) return new ApiError(401, "not-signed-in", "You are not signed in.", "Sign in to Airflow again.");
  if (status === 403) {
    return new ApiError(403, "no-right", "You may not see this.", "Ask for the right to read this pipeline's DAG.");
  }
  return new ApiError(status, "bad-answer", `Airflow answered ${status}.`, "The api-server's log says why.");
}
