// What the API answers. Times are integer epoch milliseconds, sizes are bytes, what is absent is null.

export type State = "PENDING" | "COMPLETED" | "ABORTED" | "DELETING" | "DELETED" | "QUARANTINED";
export type Kind = "CHECKPOINT" | "SAVEPOINT";
export type Severity = "FAIL" | "QUARANTINE" | "WARN";

export interface Interval {
  start_ms: number;
  end_ms: number;
}

export interface Gate {
  passed: boolean;
  failed: number;
  warned: number;
  checked: number;
}

export interface Checkpoint {
  pipeline: string;
  checkpoint_id: number;
  kind: Kind;
  state: State;
  head: boolean;
  owner: "SYSTEM" | "USER";
  strategy: string;
  parallelism: number;
  generation: number;
  base: number | null;
  interval: Interval | null;
  created_at_ms: number;
  deadline_ms: number | null;
  completed_at_ms: number | null;
  duration_ms: number | null;
  sync_ms: number | null;
  async_ms: number | null;
  upload_ms: number | null;
  entries: number | null;
  keys: number | null;
  size_bytes: number | null;
  uploaded_bytes: number | null;
  keys_changed: number | null;
  events: { read: number; applied: number; null_key: number } | null;
  note: string | null;
  failure: string | null;
  reason: string | null;
  directory: string | null;
  gate: Gate | null;
  report: boolean;
  run: { dag_id: string; run_id: string; href: string } | null;
}

export interface Pipeline {
  name: string;
  description: string | null;
  schedule: string | null;
  backend: string | null;
  strategy: string | null;
  parallelism: number | null;
  max_parallelism: number | null;
  states: { name: string; kind: string; type: string }[];
  head: Checkpoint | null;
  pending: Checkpoint | null;
  quarantined: number;
  failures_in_a_row: number;
  cancelled: boolean;
  generation: number;
  error: string | null;
  may: { read: boolean; trigger: boolean };
}

export interface KeyedState {
  operator: string;
  name: string;
  kind: string;
  type: string;
  entries: number;
  digest_hex?: string | null;
  entries_by_key_group: number[] | null;
}

export interface Subtask {
  subtask: number;
  key_groups: [number, number];
  restored_from: string | null;
  bytes: number | null;
}

export interface StateFile {
  path: string;
  size_bytes: number;
  crc32c: string | null;
  key_groups: [number, number] | null;
  scope: "exclusive" | "shared";
  created_by: number | null;
  shared_with: number[];
  shared_with_total: number;
}

export interface Ancestor {
  checkpoint_id: number;
  kind: Kind;
  state: State;
  interval: Interval | null;
  completed_at_ms: number | null;
}

export interface QualityResult {
  name: string;
  group: string;
  severity: Severity;
  passed: boolean;
  checked: number | null;
  failed: number | null;
  sentences: string[];
}

export interface CheckpointDetail extends Checkpoint {
  states: KeyedState[] | null;
  states_total: number | null;
  max_parallelism: number | null;
  subtasks: Subtask[] | null;
  files: StateFile[] | null;
  files_total: number | null;
  lineage: Ancestor[] | null;
  quality: QualityResult[] | null;
  operator_state: { name: string; mode: string; elements: number }[] | null;
  problem?: string | null;
}

export interface Comparison {
  left: Checkpoint;
  right: Checkpoint;
  states: {
    name: string;
    left_entries: number | null;
    right_entries: number | null;
    key_groups_changed: number | null;
    changed: number[] | null;
  }[] | null;
  files: {
    common_bytes: number;
    common: number;
    only_left: number;
    only_left_bytes: number;
    only_right: number;
    only_right_bytes: number;
  } | null;
  command: string;
  problem?: string | null;
}

export interface Sizes {
  live_bytes: number;
  shared_bytes: number;
  garbage_bytes: number;
  savepoint_bytes: number;
  amplification: number | null;
}

export interface StorageRow extends Sizes {
  name: string;
  files: number;
}

export interface StorageSample extends Sizes {
  at_ms: number;
}

export interface StorageHistory {
  now: StorageRow;
  samples: StorageSample[];
}

/** What went wrong, where, and what to do about it. */
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
const here = () => new URL(".", document.baseURI);
export const apiUrl = (path: string) => new URL(`api/${path}`, here()).href;
export const airflowUrl = (path: string) => new URL(`../${path}`, here()).href;

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(apiUrl(path), { credentials: "same-origin", signal: signal ?? null });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "Airflow does not answer.", "Is the api-server running? Retry when it is.");
  }
  const body: unknown = await response.json().catch(() => null);
  if (response.ok && body !== null) return body as T;
  throw refused(response.status, body);
}

export function refused(status: number, body: unknown): ApiError {
  const said = (body ?? {}) as { kind?: string; message?: string; hint?: string };
  if (typeof said.message === "string") {
    return new ApiError(status, said.kind ?? "error", said.message, said.hint ?? "");
  }
  if (status === 401) return new ApiError(401, "not-signed-in", "You are not signed in.", "Sign in to Airflow again.");
  if (status === 403) {
    return new ApiError(403, "no-right", "You may not see this.", "Ask for the right to read this pipeline's DAG.");
  }
  return new ApiError(status, "bad-answer", `Airflow answered ${status}.`, "The api-server's log says why.");
}
