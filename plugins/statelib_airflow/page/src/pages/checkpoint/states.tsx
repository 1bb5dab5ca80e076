import { useState } from "react";
import type { CheckpointDetail, SideDataFacts, StateFacts, SubtaskFacts } from "../../api";
import { grouped, interval, plural } from "../../format";
import { HeatMap } from "../../parts/heat";
import { type Column, Table } from "../../parts/table";
import { Section, Shown, Size } from "../../parts/text";

const STATE_COLUMNS: Column<StateFacts>[] = [
  { id: "name", head: "State", names: true, by: (one) => one.name, cell: (one) => <code>{one.name}</code> },
  { id: "operator", head: "Operator", by: (one) => one.operator, cell: (one) => <span className="mono sub">{one.operator}</span> },
  { id: "kind", head: "Kind", by: (one) => one.kind, cell: (one) => one.kind },
  { id: "type", head: "Type", cell: (one) => <code className="type">{one.type}</code> },
  { id: "entries", head: "Entries", number: true, by: (one) => one.entries, cell: (one) => (one.entries === null ? <span className="none">not counted</span> : grouped(one.entries)) },
  {
    id: "digest",
    head: "Digest",
    cell: (one) => (one.digest_hex === null ? <span className="none">open</span> : <code title={one.digest_hex}>{one.digest_hex.slice(0, 12)}</code>),
  },
];

/** The names of the deltas of intervals, one per state. The specification of the formats has them. */
const DELTA = /^statelib\.delta\.(-?\d+):(-?\d+)\./;

/** The kept deltas as one: how many intervals, from where to where, and how many bytes. Null if there are none. */
function deltasOf(sideData: SideDataFacts[]) {
  const found = sideData.flatMap((one) => {
    const match = DELTA.exec(one.name);
    return match ? [{ start: Number(match[1]), end: Number(match[2]), size: one.size_bytes }] : [];
  });
  if (!found.length) return null;
  return {
    intervals: new Set(found.map((one) => one.start)).size,
    start_ms: Math.min(...found.map((one) => one.start)),
    end_ms: Math.max(...found.map((one) => one.end)),
    size_bytes: found.reduce((sum, one) => sum + one.size, 0),
  };
}

export function Operators(props: { detail: CheckpointDetail; states: StateFacts[]; subtasks: SubtaskFacts[] }) {
  const { detail, states, subtasks } = props;
  const operatorState = detail.operator_state ?? [];
  const deltas = deltasOf(detail.side_data ?? []);
  const sideData = (detail.side_data ?? []).filter((one) => !DELTA.test(one.name));
  const [at, setAt] = useState(0);
  const state = states[Math.min(at, states.length - 1)];
  const counted = states.some((one) => one.entries_by_key_group?.length);
  return (
    <Section title="Operators and states" id="states" aside={<Shown shown={states.length} total={detail.states_total} what="state" />}>
      <Table caption="Keyed states" columns={STATE_COLUMNS} rows={states} rowKey={(one) => `${one.operator}/${one.name}`} />
      {operatorState.length + (detail.side_data ?? []).length > 0 && (
        <ul className="plain-list">
          {operatorState.map((one) => (
            <li key={one.name}>
              operator state <code>{one.name}</code>, {one.mode.toLowerCase().replaceAll("_", " ")}, {grouped(one.elements)} {one.elements === 1 ? "element" : "elements"}
            </li>
          ))}
          {sideData.map((one) => (
            <li key={one.name}>
              side data <code>{one.name}</code>, {plural(one.pieces, "piece")}, <Size value={one.size_bytes} />
            </li>
          ))}
          {deltas && (
            <li>
              deltas of {plural(deltas.intervals, "interval")} that can be mended, {interval(deltas)}, <Size value={deltas.size_bytes} />
            </li>
          )}
        </ul>
      )}
      {state && counted && (
        <>
          {states.length > 1 && (
            <label className="field inline">
              <span>Key groups of</span>
              <select value={at} onChange={(event) => setAt(Number(event.target.value))}>
                {states.map((one, index) => (
                  <option key={`${one.operator}/${one.name}`} value={index}>
                    {one.name}
                  </option>
                ))}
              </select>
            </label>
          )}
          {state.entries_by_key_group?.length ? (
            <HeatMap key={state.name} title={`Entries of ${state.name} by key group`} entries={state.entries_by_key_group} subtasks={subtasks} />
          ) : (
            <p className="sub">Too many to show by key group.</p>
          )}
        </>
      )}
    </Section>
  );
}

const SUBTASK_COLUMNS: Column<SubtaskFacts>[] = [
  { id: "subtask", head: "Subtask", names: true, by: (one) => one.subtask, cell: (one) => <span className="mono">{one.subtask}</span> },
  {
    id: "key_groups",
    head: "Key groups",
    number: true,
    by: (one) => one.key_groups?.[0] ?? null,
    cell: ({ key_groups: groups }) =>
      groups ? (
        <>
          {groups[0]}–{groups[1]} <small>({grouped(groups[1] - groups[0] + 1)})</small>
        </>
      ) : (
        <span className="none">none</span>
      ),
  },
  { id: "bytes", head: "Bytes", number: true, by: (one) => one.bytes, cell: (one) => <Size value={one.bytes} /> },
  { id: "restored", head: "Restored from", by: (one) => one.restored_from, cell: (one) => one.restored_from ?? <span className="none">nothing</span> },
];

export function Subtasks({ subtasks }: { subtasks: SubtaskFacts[] }) {
  return (
    <Section title="Subtasks" id="subtasks">
      <Table caption="Subtasks" columns={SUBTASK_COLUMNS} rows={subtasks} rowKey={(one) => one.subtask} first={{ by: "subtask", down: false }} pageRows={16} />
    </Section>
  );
}
