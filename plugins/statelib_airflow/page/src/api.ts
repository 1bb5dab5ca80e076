// The responses of the page's API. Times are integer epoch milliseconds, sizes are bytes, what is absent is null.
// Written by `make docs` from plugins/statelib_airflow/api: change that, not this.

/** One checkpoint of a lineage: the checkpoint that it starts from, its base, the base's base, and so on. */
export interface Ancestor {
  checkpoint_id: number;
  kind: string;
  state: string;
  interval: DataInterval | null;
  mends: DataInterval | null;
  completed_at_ms: number | null;
}

/** The numbers of events of the interval: `read` by Spark's source = `applied` + `null_key` (dropped). */
export interface AppliedEvents {
  read: number;
  applied: number;
  null_key: number;
}

/**
 * A checkpoint with its details. The contents of `_metadata`, from `max_parallelism` to `side_data`, are
 * null if it cannot be read; `problem` then says why.
 */
export interface CheckpointDetail {
  pipeline: string;
  checkpoint_id: number;
  kind: SnapshotKind | string;
  state: CheckpointState | string;
  head: boolean;
  owner: Owner | string;
  strategy: string;
  parallelism: number;
  generation: number;
  base: number | null;
  interval: DataInterval | null;
  mends: DataInterval | null;
  created_at_ms: number;
  completed_at_ms: number | null;
  duration_ms: number | null;
  deadline_ms: number | null;
  sync_ms: number | null;
  async_ms: number | null;
  upload_ms: number | null;
  entries: number | null;
  keys: number | null;
  size_bytes: number | null;
  uploaded_bytes: number | null;
  keys_changed: number | null;
  events: AppliedEvents | null;
  note: string;
  failure: string | null;
  reason: string;
  directory: string;
  gate: GateResult | null;
  report: boolean;
  run: RunLink | null;
  max_parallelism: number | null;
  states: StateFacts[] | null;
  states_total: number | null;
  subtasks: SubtaskFacts[] | null;
  files: CheckpointFile[] | null;
  files_total: number | null;
  operator_state: OperatorStateFacts[] | null;
  side_data: SideDataFacts[] | null;
  lineage: Ancestor[];
  quality: QualityResult[];
  problem: string | null;
}

/**
 * A file of the checkpoint. `path`: as in `_metadata`. `scope`: `exclusive` if it is in the checkpoint's
 * directory, else `shared`.
 */
export interface CheckpointFile {
  path: string;
  size_bytes: number;
  crc32c: string;
  key_groups: [number, number];
  scope: string;
  created_by: number | null;
  shared_with: number[];
  shared_with_total: number;
}

/** One page of the list of checkpoints. `total`: the number of checkpoints on all pages together. */
export interface CheckpointList {
  total: number;
  checkpoints: CheckpointRow[];
  now_ms: number;
}

/**
 * A checkpoint as the catalog has it. `kind`, `state`, `owner` and `failure` are the stored words: a later
 * statelib may have stored words that this one does not have. `mends`: the interval that it corrects, in place of
 * `interval`. `run`: null if a command began the checkpoint.
 */
export interface CheckpointRow {
  pipeline: string;
  checkpoint_id: number;
  kind: SnapshotKind | string;
  state: CheckpointState | string;
  head: boolean;
  owner: Owner | string;
  strategy: string;
  parallelism: number;
  generation: number;
  base: number | null;
  interval: DataInterval | null;
  mends: DataInterval | null;
  created_at_ms: number;
  completed_at_ms: number | null;
  duration_ms: number | null;
  deadline_ms: number | null;
  sync_ms: number | null;
  async_ms: number | null;
  upload_ms: number | null;
  entries: number | null;
  keys: number | null;
  size_bytes: number | null;
  uploaded_bytes: number | null;
  keys_changed: number | null;
  events: AppliedEvents | null;
  note: string;
  failure: string | null;
  reason: string;
  directory: string;
  gate: GateResult | null;
  report: boolean;
  run: RunLink | null;
}

/** The states of a checkpoint. The names are stored in the catalog. */
export type CheckpointState = "PENDING" | "COMPLETED" | "QUARANTINED" | "ABORTED" | "DELETING" | "DELETED";

/**
 * Two checkpoints with the differences between them. `states` and `files` are null if one of the two cannot be
 * read; `problem` then says which and why. `command`: the command that compares them key by key.
 */
export interface ComparisonDetail {
  left: CheckpointRow;
  right: CheckpointRow;
  states: StateComparison[] | null;
  files: FileComparison | null;
  command: string;
  problem: string | null;
}

/** The half-open interval of event time [start_ms, end_ms), in epoch milliseconds UTC. */
export interface DataInterval {
  start_ms: number;
  end_ms: number;
}

/** A state of a pipeline file. */
export interface DeclaredState {
  name: string;
  kind: string;
  type: string;
}

/**
 * The response to a request that failed. `kind`: the kind of error, for programs. `hint`: what to do about it,
 * '' if there is no advice.
 */
export interface ErrorResponse {
  kind: string;
  message: string;
  hint: string;
}

/** The numbers of files, and their bytes, that both checkpoints need or only one needs. */
export interface FileComparison {
  common: number;
  common_bytes: number;
  only_left: number;
  only_left_bytes: number;
  only_right: number;
  only_right_bytes: number;
}

/**
 * The newest run of the gate in numbers of checks. `failed`: failed checks whose severity stops a checkpoint;
 * `warned`: the other failed checks.
 */
export interface GateResult {
  passed: boolean;
  checked: number;
  failed: number;
  warned: number;
}

/** An operator state of the checkpoint. */
export interface OperatorStateFacts {
  name: string;
  mode: string;
  elements: number;
}

/** The owner of the files, who alone may delete them: retention and gc (SYSTEM), or only a person (USER). */
export type Owner = "SYSTEM" | "USER";

/** The pipelines that the user may read. */
export interface PipelineList {
  pipelines: PipelineRow[];
  now_ms: number;
}

/**
 * A pipeline with its head. The settings of its file are null if the file does not load or does not exist, and
 * `error` says why. `error` also names a damaged row of the catalog. `tables`: the names of its published
 * tables.
 */
export interface PipelineRow {
  name: string;
  description: string;
  schedule: string | null;
  backend: string | null;
  strategy: string | null;
  parallelism: number | null;
  max_parallelism: number | null;
  states: DeclaredState[];
  tables: string[];
  head: CheckpointRow | null;
  pending: CheckpointRow | null;
  quarantined: number;
  failures_in_a_row: number;
  cancelled: boolean;
  generation: number;
  error: string | null;
  may: UserRights;
}

/**
 * The result of one check: `failed` of `checked` rows did not pass. `group`: the group of checks, which is
 * also the name of its page in the report. `sentences`: the problems, with file, state and key groups; if the check
 * passed, remarks, for example that only a sample was checked.
 */
export interface QualityResult {
  group: string;
  name: string;
  severity: Severity;
  passed: boolean;
  checked: number;
  failed: number;
  sentences: string[];
}

/** The checkpoint or savepoint that a DAG run began; null if it began none. */
export interface RunCheckpoint {
  pipeline: string;
  checkpoint_id: number | null;
}

/** A DAG run. `href`: the path of its page in Airflow. */
export interface RunLink {
  dag_id: string;
  run_id: string;
  href: string;
}

/** The consequence of a check that fails. The names are stored in the catalog: add new ones, change none. */
export type Severity = "WARN" | "QUARANTINE" | "FAIL";

/**
 * The side data of one name. `pieces`: how many there are; a piece that several subtasks have is counted once.
 * `size_bytes`: the size of all pieces.
 */
export interface SideDataFacts {
  name: string;
  pieces: number;
  size_bytes: number;
}

/** The user of the page. */
export interface SignedInUser {
  name: string;
}

/** The two kinds of snapshot. Retention deletes checkpoints; only the user deletes savepoints. */
export type SnapshotKind = "CHECKPOINT" | "SAVEPOINT";

/**
 * The comparison of one state. `left_entries`, `right_entries`: null if that side does not have the state.
 * `changed`: the numbers of the key groups whose content differs. `key_groups_changed`: their count. Both are null
 * if the two sides have different key groups.
 */
export interface StateComparison {
  name: string;
  left_entries: number | null;
  right_entries: number | null;
  key_groups_changed: number | null;
  changed: number[] | null;
}

/**
 * A state of the checkpoint. `digest_hex`: the sum of the hashes of all entries, equal for equal content. It and
 * `entries` are null if open deltas are not merged with the state yet. `entries_by_key_group`: from key group 0
 * on; null as well, or if the answer would be too large.
 */
export interface StateFacts {
  operator: string;
  name: string;
  kind: string;
  type: string;
  entries: number | null;
  digest_hex: string | null;
  entries_by_key_group: number[] | null;
}

/** The storage that a pipeline uses now and used earlier, the oldest sample first. */
export interface StorageHistory {
  now: StorageRow;
  samples: StoragePoint[];
  now_ms: number;
}

/** The storage use of each pipeline that the user may read. */
export interface StorageList {
  pipelines: StorageRow[];
  now_ms: number;
}

/** The storage that a pipeline used at one time. */
export interface StoragePoint {
  files: number;
  live_bytes: number;
  shared_bytes: number;
  garbage_bytes: number;
  savepoint_bytes: number;
  amplification: number | null;
  at_ms: number;
}

/**
 * The storage that a pipeline uses now. `shared_bytes` is a part of `live_bytes`. `amplification`: the
 * system's bytes on storage divided by the live ones; null if there are none.
 */
export interface StorageRow {
  files: number;
  live_bytes: number;
  shared_bytes: number;
  garbage_bytes: number;
  savepoint_bytes: number;
  amplification: number | null;
  name: string;
}

/**
 * A subtask of the checkpoint. `key_groups`: the first and the last; null without keyed state. `bytes`: the
 * size of all streams of its state.
 */
export interface SubtaskFacts {
  subtask: number;
  key_groups: [number, number] | null;
  restored_from: string | null;
  bytes: number;
}

/** The published tables of a pipeline. */
export interface TableList {
  tables: TableStanding[];
  now_ms: number;
}

/**
 * The position of a published table. `checkpoint_id`: the checkpoint of its newest commit. `interval`: the one
 * that this checkpoint applied; null if there is none. `mends`: the earlier interval that it corrects, in place of
 * `interval`. `behind`: the number of checkpoints that are registered and not published. `error`: why the table
 * cannot be read, and then `behind` is 0; or ''.
 */
export interface TableStanding {
  table: string;
  target: string;
  mode: string;
  format: string;
  checkpoint_id: number | null;
  interval: DataInterval | null;
  mends: DataInterval | null;
  commit: number;
  behind: number;
  error: string;
}

/** The rights of the user on a pipeline. */
export interface UserRights {
  read: boolean;
  trigger: boolean;
}

/** The response of each route, by its path below `api/`. */
export interface Responses {
  "me": SignedInUser;
  "pipelines": PipelineList;
  "pipelines/{name}/checkpoints": CheckpointList;
  "pipelines/{name}/checkpoints/{checkpoint_id}": CheckpointDetail;
  "pipelines/{name}/compare": ComparisonDetail;
  "pipelines/{name}/tables": TableList;
  "storage": StorageList;
  "pipelines/{name}/storage": StorageHistory;
  "runs/{dag_id}/{run_id}": RunCheckpoint;
}
