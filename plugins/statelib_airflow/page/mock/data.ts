// Made-up answers of the API for working on the page without Airflow, and for the tests of its parts.
import type { CheckpointRow, CheckpointDetail, ComparisonDetail, PipelineRow, CheckpointFile, StorageHistory, TableStanding } from "../src/api";

const DAY = 86_400_000;
const KIB = 1024;
export const NOW = Date.UTC(2026, 10, 21, 9, 30);
const FIRST_DAY = Date.UTC(2013, 0, 1);
const dayOf = (at: number) => ({ start_ms: FIRST_DAY + at * DAY, end_ms: FIRST_DAY + (at + 1) * DAY });

/** Numbers that look random and are always the same. */
export function dice(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

interface Recipe {
  name: string;
  description: string;
  backend: string;
  strategy: string;
  parallelism: number;
  days: number;
  keys: number;
  bytesPerKey: number;
  states: PipelineRow["states"];
}

const RECIPES: Recipe[] = [
  {
    name: "aircraft_activity",
    description: "Flights, distance and delays of every aircraft, and where it was seen last",
    backend: "rocksdb",
    strategy: "incremental",
    parallelism: 4,
    days: 143,
    keys: 3_820,
    bytesPerKey: 412,
    states: [
      { name: "activity", kind: "value", type: "row<flights long, distance long, dep_delay double, arr_delay double, first_seen instant, last_seen instant, last_dest string>" },
      { name: "flights_per_dest", kind: "map", type: "map<string, long>" },
    ],
  },
  {
    name: "route_delays",
    description: "Count, mean, extremes and distribution of the delays of every route and carrier",
    backend: "heap",
    strategy: "changelog",
    parallelism: 2,
    days: 58,
    keys: 612,
    bytesPerKey: 1_460,
    states: [
      { name: "worst_arr_delay", kind: "reducing", type: "double" },
      { name: "delays", kind: "aggregating", type: "row<flights long, departed long, dep_delay double, arr_delay double>" },
      { name: "arr_delay_histogram", kind: "aggregating", type: "list<long>" },
    ],
  },
  {
    name: "carrier_streaks",
    description: "How many flights in a row each carrier has brought in on time",
    backend: "heap",
    strategy: "canonical",
    parallelism: 1,
    days: 9,
    keys: 16,
    bytesPerKey: 88,
    states: [{ name: "streaks", kind: "value", type: "row<flights long, on_time long, current_streak long, longest_streak long, last_flight instant>" }],
  },
];

function historyOf(recipe: Recipe): CheckpointRow[] {
  const random = dice(recipe.days);
  const made: CheckpointRow[] = [];
  let base: number | null = null;
  for (let at = 0; at < recipe.days; at += 1) {
    const one = checkpointOf(recipe, at, base, random);
    if (one.state === "COMPLETED" && one.kind === "CHECKPOINT") base = one.checkpoint_id;
    made.push(one);
  }
  const head = made.findLast((one) => one.state === "COMPLETED" && one.kind === "CHECKPOINT");
  if (head) head.head = true;
  return made;
}

type Fate = Pick<CheckpointRow, "state" | "kind" | "failure" | "reason" | "note" | "mends">;

function fateOf(recipe: Recipe, at: number): Fate {
  const left = recipe.days - at;
  const fine: Fate = { state: "COMPLETED", kind: "CHECKPOINT", failure: null, reason: "", note: "", mends: null };
  if (recipe.name === "route_delays" && left === 1) return { ...fine, state: "PENDING" };
  if (recipe.name === "route_delays" && left === 2) {
    return { ...fine, state: "QUARANTINED", failure: "FINALIZE_CHECKPOINT_FAILURE", reason: "null rate of arr_delay 41.2 % is far from 2.4 % of the previous seven" };
  }
  if (recipe.name === "route_delays" && left === 4) return { ...fine, note: "mends [2013-02-14T00:00:00+00:00, 2013-02-15T00:00:00+00:00)", mends: dayOf(44) };
  if (recipe.name === "aircraft_activity" && left === 6) return { ...fine, kind: "SAVEPOINT", note: "before the release of the new histogram bounds" };
  if (at % 31 === 17) return { ...fine, state: "ABORTED", failure: "CHECKPOINT_EXPIRED", reason: "subtask 1 did not acknowledge within 600 s" };
  return left > 48 ? { ...fine, state: "DELETED" } : fine;
}

function checkpointOf(recipe: Recipe, at: number, base: number | null, random: () => number): CheckpointRow {
  const id = at + 1;
  const fate = fateOf(recipe, at);
  const interval = fate.kind === "SAVEPOINT" || fate.mends ? null : dayOf(at);
  const keys = Math.round(recipe.keys * (1 - Math.exp(-(at + 3) / 22)));
  const entries = Math.round(keys * 2.4);
  const size = Math.round(keys * recipe.bytesPerKey * (1 + random() * 0.08));
  const whole = recipe.strategy === "canonical" || at % 14 === 0 || fate.kind === "SAVEPOINT";
  const created = NOW - (recipe.days - at) * 3_600_000 + Math.round(random() * 60_000) + (fate.state === "PENDING" ? 3_540_000 : 0);
  const done = fate.state !== "ABORTED" && fate.state !== "PENDING";
  const sync = Math.round(40 + random() * 160);
  const asynchronous = Math.round(600 + random() * 1_400 + (whole ? 1_600 : 0));
  const upload = Math.round(200 + random() * 700 + (whole ? 900 : 0));
  const duration = sync + asynchronous + upload + Math.round(9_000 + random() * 5_000);
  const read = Math.round(700 + random() * 260);
  const failed = fate.state === "QUARANTINED" ? 1 : 0;
  return {
    pipeline: recipe.name,
    checkpoint_id: id,
    ...fate,
    head: false,
    owner: fate.kind === "SAVEPOINT" ? "USER" : "SYSTEM",
    strategy: fate.kind === "SAVEPOINT" ? "canonical" : recipe.strategy,
    parallelism: recipe.parallelism,
    generation: at > 90 ? 2 : 1,
    base,
    interval,
    created_at_ms: created,
    deadline_ms: fate.state === "PENDING" ? created + 600_000 : null,
    completed_at_ms: done ? created + duration : null,
    duration_ms: done ? duration : null,
    sync_ms: done ? sync : null,
    async_ms: done ? asynchronous + upload : null,
    upload_ms: done ? upload : null,
    entries: done ? entries : null,
    keys: done ? keys : null,
    size_bytes: done ? size : null,
    uploaded_bytes: done ? (whole ? size : Math.round(size * (0.06 + random() * 0.16))) : null,
    keys_changed: done ? (fate.kind === "SAVEPOINT" ? 0 : Math.min(keys, Math.round(read * 0.7))) : null,
    events: done ? { read, applied: read - 6, null_key: 6 } : null,
    directory: `s3://state-prod/checkpoints/${recipe.name}/chk-${id}`,
    gate: done ? { passed: failed === 0, failed, warned: id % 19 === 0 ? 1 : 0, checked: 24 } : null,
    report: done && fate.state !== "DELETED",
    run: runOf(recipe.name, fate.kind, at),
  };
}

function runOf(name: string, kind: CheckpointRow["kind"], at: number): NonNullable<CheckpointRow["run"]> {
  const dag_id = `${name}.${kind === "SAVEPOINT" ? "savepoint" : "checkpoint"}`;
  const run_id = `${kind === "SAVEPOINT" ? "manual" : "scheduled"}__${new Date(FIRST_DAY + (at + 1) * DAY).toISOString().replace(".000Z", "+00:00")}`;
  return { dag_id, run_id, href: `/dags/${dag_id}/runs/${encodeURIComponent(run_id)}` };
}

export const HISTORIES = new Map(RECIPES.map((recipe) => [recipe.name, historyOf(recipe)]));

export function pipelines(): PipelineRow[] {
  const made = RECIPES.map((recipe): PipelineRow => {
    const history = HISTORIES.get(recipe.name) ?? [];
    return {
      name: recipe.name,
      description: recipe.description,
      schedule: "@daily",
      backend: recipe.backend,
      strategy: recipe.strategy,
      parallelism: recipe.parallelism,
      max_parallelism: 128,
      states: recipe.states,
      tables: tablesOf(recipe.name).map((one) => one.table),
      head: history.find((one) => one.head) ?? null,
      pending: history.find((one) => one.state === "PENDING") ?? null,
      quarantined: history.filter((one) => one.state === "QUARANTINED").length,
      failures_in_a_row: recipe.name === "route_delays" ? 1 : 0,
      cancelled: false,
      generation: history.at(-1)?.generation ?? 1,
      error: null,
      may: { read: true, trigger: recipe.name !== "carrier_streaks" },
    };
  });
  return [...made, broken()];
}

/** One table of each kind: up to date, behind, in trouble. */
export function tablesOf(name: string): TableStanding[] {
  if (name !== "aircraft_activity") return [];
  const history = HISTORIES.get(name) ?? [];
  const head = history.find((one) => one.head);
  const [, , earlier] = history.filter((one) => one.state === "COMPLETED" && one.kind === "CHECKPOINT").reverse();
  const of = (one: CheckpointRow | undefined) => ({ checkpoint_id: one?.checkpoint_id ?? null, interval: one?.interval ?? null, mends: one?.mends ?? null });
  const target = "s3://lake-prod/tables/aircraft";
  return [
    { table: "aircraft", target, mode: "table", format: "delta", ...of(head), commit: 139, behind: 0, error: "" },
    { table: "aircraft_changes", target: `${target}_changes`, mode: "changes", format: "parquet", ...of(earlier), commit: 137, behind: 2, error: "" },
    { table: "destinations", target: "lake.flights.destinations", mode: "table", format: "iceberg", ...of(undefined), commit: 0, behind: 0, error: "lake.flights.destinations: no Iceberg catalog 'lake' is configured" },
  ];
}

function broken(): PipelineRow {
  return {
    name: "gate_turnarounds",
    description: "",
    schedule: null,
    backend: null,
    strategy: null,
    parallelism: null,
    max_parallelism: null,
    states: [],
    tables: [],
    head: null,
    pending: null,
    quarantined: 0,
    failures_in_a_row: 0,
    cancelled: false,
    generation: 0,
    error: "gate_turnarounds.yaml: states.turnaround.fields.minutes: no column 'air_tme' in source.columns",
    may: { read: true, trigger: true },
  };
}

export function detailOf(one: CheckpointRow): CheckpointDetail {
  const recipe = RECIPES.find(({ name }) => name === one.pipeline);
  if (!recipe || one.entries === null || one.state === "DELETED") {
    const gone = one.state === "DELETED" ? `${one.directory}/_metadata does not exist` : null;
    return { ...one, states: null, states_total: null, max_parallelism: 128, subtasks: null, files: null, files_total: null, lineage: lineageOf(one), quality: [], operator_state: null, side_data: null, problem: gone };
  }
  const random = dice(one.checkpoint_id * 7 + 1);
  const entries = one.entries;
  const spread = () => Array.from({ length: 128 }, () => Math.max(0, Math.round((entries / 128) * (0.25 + random() * 1.5) - (random() < 0.06 ? 99 : 0))));
  const width = Math.ceil(128 / one.parallelism);
  return {
    ...one,
    states: recipe.states.map((state, at) => {
      const groups = spread();
      return {
        operator: "6d1e8b1c1f5b0f3d7a30c7cf3a9f6a4e",
        ...state,
        entries: groups.reduce((sum, value) => sum + value, 0),
        digest_hex: `9f3a${(one.checkpoint_id * 7919 + at).toString(16).padStart(8, "0")}c41d77e0`,
        entries_by_key_group: groups,
      };
    }),
    states_total: recipe.states.length,
    max_parallelism: 128,
    subtasks: Array.from({ length: one.parallelism }, (_, at) => ({
      subtask: at,
      key_groups: [at * width, Math.min(127, (at + 1) * width - 1)],
      restored_from: one.base === null ? null : at % 2 ? "storage" : "local copy",
      bytes: Math.round((one.size_bytes ?? 0) / one.parallelism),
    })),
    files: filesOf(one, random),
    files_total: shares(one) ? 34 : 2 * one.parallelism,
    lineage: lineageOf(one),
    quality: qualityOf(one),
    operator_state: [{ name: "statelib.source-position", mode: "SPLIT_DISTRIBUTE", elements: 1 }],
    side_data: one.pipeline === "route_delays" ? sideData() : [],
    problem: null,
  };
}

const shares = (one: CheckpointRow) => one.strategy === "incremental" || one.strategy === "changelog";

function filesOf(one: CheckpointRow, random: () => number): CheckpointFile[] {
  return Array.from({ length: shares(one) ? 34 : 2 * one.parallelism }, (_, at) => {
    const shared = shares(one) && at > 3;
    const by = shared ? Math.max(1, one.checkpoint_id - Math.floor(random() * 6)) : one.checkpoint_id;
    const first = (at % one.parallelism) * (128 / one.parallelism);
    const others = shared ? [1, 2, 3, 4, 5, 6].map((back) => one.checkpoint_id - back).filter((id) => id >= by && id > 0) : [];
    return {
      path: shared ? `s3://state-prod/checkpoints/${one.pipeline}/shared/a${by}f09c-${at % one.parallelism}-${at}` : `a${one.checkpoint_id}f09c-${at % one.parallelism}-${at}`,
      size_bytes: Math.round((shared ? 30 : 4) * KIB * (0.4 + random())),
      crc32c: Math.floor(random() * 2 ** 32).toString(16).padStart(8, "0"),
      key_groups: [first, first + 128 / one.parallelism - 1],
      scope: shared ? "shared" : "exclusive",
      created_by: by,
      shared_with: others,
      shared_with_total: others.length,
    };
  });
}

/** The side data of a function, and the deltas of two days, per state. */
function sideData(): NonNullable<CheckpointDetail["side_data"]> {
  const deltas = [53, 54].flatMap((at) =>
    ["delays", "worst_arr_delay"].map((state) => ({ name: `statelib.delta.${dayOf(at).start_ms}:${dayOf(at).end_ms}.${state}`, pieces: 2, size_bytes: 10_240 })),
  );
  return [{ name: "delay_model", pieces: 2, size_bytes: 61_440 }, ...deltas];
}

function lineageOf(one: CheckpointRow) {
  const history = HISTORIES.get(one.pipeline) ?? [];
  const found: CheckpointRow[] = [];
  for (let next: CheckpointRow | undefined = one; next; next = history.find((other) => other.checkpoint_id === next?.base)) found.push(next);
  return found.map(({ checkpoint_id, kind, state, interval, mends, completed_at_ms }) => ({ checkpoint_id, kind, state, interval, mends, completed_at_ms }));
}

function qualityOf(one: CheckpointRow): CheckpointDetail["quality"] {
  const passed = (name: string, group: string, checked: number, sentence: string) => ({ name, group, severity: "FAIL" as const, passed: true, checked, failed: 0, sentences: [sentence] });
  const structure = [
    passed("key-groups-covered-once", "structure", 128, "Every key group from 0 to 127 is covered by exactly one handle."),
    passed("files-present", "structure", 34, "Every file has the size and the CRC-32C and XXH3 of the manifest."),
    passed("counts-and-digests", "structure", 384, "Entries and digests of every key group are those of the manifest."),
    passed("events-applied", "structure", 1, `Of ${one.events?.read ?? 0} events read, ${one.events?.applied ?? 0} were applied and 6 had no key.`),
    passed("no-interval-lost", "structure", 1, "The interval follows that of the base."),
    passed("keys-drift", "drift", 1, "Keys are 1.4 % more than in the median of the previous seven checkpoints; 20 % are allowed."),
    passed("restore-rehearsal", "rehearsal", 4, "Every range was restored and read; counts and digests are equal."),
  ];
  const held = { name: "null-rate-drift", group: "drift", severity: "QUARANTINE" as const, passed: false, checked: 7, failed: 1, sentences: ["Null rate of delays.arr_delay: expected at most 7.4 %, found 41.2 %.", "Median of the previous seven checkpoints: 2.4 %."] };
  const warned = { name: "bytes-drift", group: "drift", severity: "WARN" as const, passed: false, checked: 1, failed: 1, sentences: ["Bytes per key: 412 expected (±15 %), found 488."] };
  return [...structure, ...(one.state === "QUARANTINED" ? [held] : []), ...(one.gate?.warned ? [warned] : [])];
}

export function comparisonOf(left: CheckpointRow, right: CheckpointRow): ComparisonDetail {
  const states = RECIPES.find(({ name }) => name === left.pipeline)?.states ?? [];
  const random = dice(left.checkpoint_id * 1000 + right.checkpoint_id);
  return {
    left,
    right,
    states: states.map(({ name }, at) => {
      const changed = Array.from({ length: 128 }, (_, group) => group).filter(() => at !== 2 && random() < 0.6);
      return { name, left_entries: at === 2 ? null : left.entries, right_entries: right.entries, key_groups_changed: changed.length, changed };
    }),
    files: { common_bytes: 812_331, common: 22, only_left: 5, only_left_bytes: 190_220, only_right: 12, only_right_bytes: 301_889 },
    command: `statelib checkpoints diff ${left.pipeline}/${left.checkpoint_id} ${right.pipeline}/${right.checkpoint_id}`,
    problem: null,
  };
}

export function storageOf(name: string): StorageHistory {
  const history = (HISTORIES.get(name) ?? []).filter((one) => one.size_bytes !== null).slice(-60);
  const random = dice(history.length);
  const samples = history.map((one, at) => {
    const size = one.size_bytes ?? 0;
    const live = Math.round(size * (1.5 + random() * 0.2));
    const garbage = Math.round(size * 0.09 * (at % 7) * random());
    const savepoint = at > history.length - 6 ? size : 0;
    return { at_ms: one.completed_at_ms ?? NOW, files: 35 + at, live_bytes: live, shared_bytes: Math.round(live * 0.7), garbage_bytes: garbage, savepoint_bytes: savepoint, amplification: (live + garbage) / live };
  });
  const { at_ms: _, ...last } = samples.at(-1) ?? { at_ms: NOW, files: 0, live_bytes: 0, shared_bytes: 0, garbage_bytes: 0, savepoint_bytes: 0, amplification: null };
  return { now: { name, ...last }, samples, now_ms: NOW };
}
