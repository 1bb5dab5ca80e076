import { useEffect, useState } from "react";
import type { CheckpointRow, PipelineRow } from "../api";
import { useNow } from "../clock";
import { duration, NONE, span, words } from "../format";
import { become } from "../location";
import { RestoreButton, restorable, SavepointButton } from "../parts/actions";
import { GateBadge, StateBadge, STATES, Tags } from "../parts/badge";
import { DurationBar } from "../parts/bars";
import { Empty, Loaded, Skeleton } from "../parts/loaded";
import { split } from "../parts/scale";
import { type Column, Pager, type Sort, Table } from "../parts/table";
import { Count, Id, Section, Size, Time } from "../parts/text";
import { Timeline } from "../parts/timeline";
import { CHART_ROWS, PAGE_ROWS, useCheckpoints, usePipeline } from "../queries";
import { type Query, to } from "../route";
import { PipelineHead } from "./head";
import { PublishedTables } from "./tables";

export function HistoryPage({ pipeline: name, query }: { pipeline: string; query: Query }) {
  const { pipeline } = usePipeline(name);
  return (
    <>
      <PipelineHead
        name={name}
        pipeline={pipeline}
        at="history"
        actions={
          pipeline && (
            <>
              <SavepointButton pipeline={pipeline} />
              <RestoreButton pipeline={pipeline} />
            </>
          )
        }
      />
      <RecentChart name={name} />
      {pipeline !== null && pipeline.tables.length > 0 && <PublishedTables pipeline={name} />}
      <Section title="Checkpoints" id="checkpoints">
        <Rows name={name} pipeline={pipeline} query={query} />
      </Section>
    </>
  );
}

function RecentChart({ name }: { name: string }) {
  const recent = useCheckpoints(name, { sort: "checkpoint_id", order: "desc" }, CHART_ROWS);
  if (recent.error && !recent.data) return null; // the table below tells what is wrong
  if (!recent.data) return <Skeleton what="the timeline" rows={4} />;
  return recent.data.checkpoints.length ? <Timeline pipeline={name} checkpoints={recent.data.checkpoints} /> : null;
}

function Rows({ name, pipeline, query }: { name: string; pipeline: PipelineRow | null; query: Query }) {
  const { sort = "checkpoint_id", order = "desc", offset = "0", state = "", kind = "", q = "" } = query;
  const asked = Object.fromEntries(Object.entries({ sort, order, offset, state, kind, q }).filter(([, value]) => value !== ""));
  const answer = useCheckpoints(name, asked, PAGE_ROWS);
  const [chosen, setChosen] = useState<number[]>([]);
  const change = (changed: Query) => become(to.history(name, { ...query, offset: "", ...changed }));
  const narrowed = state !== "" || kind !== "" || q !== "";
  return (
    <>
      <Filters query={query} change={change} />
      <Loaded query={answer} what="checkpoints" rows={8}>
        {({ total, checkpoints }) =>
          checkpoints.length === 0 ? (
            <Nothing narrowed={narrowed || total > 0} clear={() => become(to.history(name))} />
          ) : (
            <>
              <Table
                caption={`Checkpoints of ${name}`}
                columns={columnsOf(name, pipeline, checkpoints, chosen, setChosen)}
                rows={checkpoints}
                rowKey={(one) => one.checkpoint_id}
                sort={{ by: sort, down: order === "desc" }}
                onSort={(next: Sort) => change({ sort: next.by, order: next.down ? "desc" : "asc" })}
                tone={(one) => (one.head ? "head" : chosen.includes(one.checkpoint_id) ? "chosen" : undefined)}
              />
              {total > PAGE_ROWS && (
                <Pager label={`Checkpoints of ${name}`} from={Number(offset)} rows={PAGE_ROWS} total={total} onChange={(from) => change({ offset: from ? String(from) : "" })} />
              )}
            </>
          )
        }
      </Loaded>
      <Chosen name={name} chosen={chosen} clear={() => setChosen([])} />
    </>
  );
}

function Nothing({ narrowed, clear }: { narrowed: boolean; clear: () => void }) {
  if (!narrowed) return <Empty title="No checkpoint yet">The first run of the pipeline’s DAG takes one.</Empty>;
  return (
    <Empty title="No checkpoint matches">
      <button type="button" className="button small" onClick={clear}>
        Show all
      </button>
    </Empty>
  );
}

function Filters({ query, change }: { query: Query; change: (changed: Query) => void }) {
  const [text, setText] = useState(query.q ?? "");
  useEffect(() => {
    if (text === (query.q ?? "")) return;
    const soon = setTimeout(() => change({ q: text }), 250);
    return () => clearTimeout(soon);
  }); // until typing pauses
  return (
    <search className="filters">
      <label className="field grow">
        <span>Note, reason or id</span>
        <input type="search" value={text} onChange={(event) => setText(event.target.value)} />
      </label>
      <label className="field">
        <span>Status</span>
        <select value={query.state ?? ""} onChange={(event) => change({ state: event.target.value })}>
          <option value="">any</option>
          {Object.entries(STATES).map(([value, { word }]) => (
            <option key={value} value={value}>
              {word}
            </option>
          ))}
        </select>
      </label>
      <label className="field">
        <span>Kind</span>
        <select value={query.kind ?? ""} onChange={(event) => change({ kind: event.target.value })}>
          <option value="">any</option>
          <option value="CHECKPOINT">Checkpoint</option>
          <option value="SAVEPOINT">Savepoint</option>
        </select>
      </label>
    </search>
  );
}

function Chosen({ name, chosen, clear }: { name: string; chosen: number[]; clear: () => void }) {
  const [one, other] = chosen.toSorted((a, b) => a - b);
  return (
    <div className="chosen" role="status" data-shown={one !== undefined}>
      {one !== undefined && (
        <>
          <span>
            {other === undefined ? (
              <>
                <b className="id">{one}</b> chosen; choose another one to compare
              </>
            ) : (
              <>
                <b className="id">{one}</b> and <b className="id">{other}</b> chosen
              </>
            )}
          </span>
          <span className="actions">
            <button type="button" className="button small" onClick={clear}>
              Clear
            </button>
            {other !== undefined && (
              <a className="button small strong" href={to.compare(name, one, other)}>
                Compare
              </a>
            )}
          </span>
        </>
      )}
    </div>
  );
}

function columnsOf(
  name: string,
  pipeline: PipelineRow | null,
  rows: CheckpointRow[],
  chosen: number[],
  choose: (ids: number[]) => void,
): Column<CheckpointRow>[] {
  const longest = Math.max(...rows.map((one) => split(one).total), 1);
  const toggle = (id: number) => choose(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  return [
    {
      id: "choose",
      head: "Choose for comparing",
      bare: true,
      cell: ({ checkpoint_id: id }) => (
        <label className="pick">
          <input type="checkbox" checked={chosen.includes(id)} disabled={chosen.length === 2 && !chosen.includes(id)} onChange={() => toggle(id)} />
          <span className="pick-name">Choose {id} for comparing</span>
        </label>
      ),
    },
    {
      id: "checkpoint_id",
      head: "Id",
      names: true,
      sortable: true,
      cell: (one) => (
        <span className="with-tags">
          <Id pipeline={name} id={one.checkpoint_id} />
          <Tags checkpoint={one} />
        </span>
      ),
    },
    { id: "state", head: "Status", cell: (one) => <Status one={one} base={putBack(one, rows)} /> },
    { id: "interval", head: "Interval", cell: (one) => <Span one={one} /> },
    { id: "created_at_ms", head: "Begun", sortable: true, cell: (one) => <Begun one={one} /> },
    { id: "duration_ms", head: "Duration", sortable: true, number: true, cell: (one) => <Lasted one={one} longest={longest} /> },
    { id: "size_bytes", head: "Full", sortable: true, number: true, cell: (one) => <Size value={one.size_bytes} /> },
    { id: "uploaded_bytes", head: "Uploaded", sortable: true, number: true, cell: (one) => <Size value={one.uploaded_bytes} /> },
    { id: "keys", head: "Keys", sortable: true, number: true, cell: (one) => <Count value={one.keys} /> },
    { id: "keys_changed", head: "Changed", sortable: true, number: true, cell: (one) => <Count value={one.keys_changed} /> },
    { id: "gate", head: "Gate", cell: (one) => <GateBadge gate={one.gate} /> },
    {
      id: "restore",
      head: "Restore",
      bare: true,
      cell: (one) => pipeline && restorable(one) && !one.head && <RestoreButton pipeline={pipeline} id={one.checkpoint_id} small />,
    },
  ];
}

/** Where a restore had put the state back to when this one was taken, if the row of that is here too. */
export function putBack(one: CheckpointRow, rows: CheckpointRow[]): number | null {
  const base = rows.find(({ checkpoint_id }) => checkpoint_id === one.base);
  return base !== undefined && base.generation < one.generation ? base.checkpoint_id : null;
}

function Status({ one, base }: { one: CheckpointRow; base: number | null }) {
  const why = one.note || one.reason || (one.failure ? words(one.failure) : "");
  return (
    <span className="stack">
      <StateBadge state={one.state} />
      {base !== null && <span className="sub">after a restore to {base}</span>}
      {why && (
        <span className="sub clip" title={why}>
          {why}
        </span>
      )}
    </span>
  );
}

const Span = ({ one }: { one: CheckpointRow }) => <span className={one.interval || one.mends ? "nowrap" : "none"}>{span(one)}</span>;

/** When it was begun, and by which run of which DAG. */
function Begun({ one }: { one: CheckpointRow }) {
  return (
    <span className="stack">
      <Time ms={one.created_at_ms} absolute={false} />
      {one.run && (
        <a className="sub clip" target="_top" href={one.run.href} title={one.run.run_id}>
          {one.run.run_id.split("__")[0]} run
        </a>
      )}
    </span>
  );
}

function Lasted({ one, longest }: { one: CheckpointRow; longest: number }) {
  const now = useNow();
  if (one.state === "PENDING") return <span className="busy-line">{duration(Math.max(0, now - one.created_at_ms))} so far</span>;
  if (one.duration_ms === null) return <span className="none">{NONE}</span>;
  const parts = split(one);
  const said = `sync ${duration(one.sync_ms)}, async ${duration(one.async_ms)}, of which upload ${duration(one.upload_ms)}`;
  return (
    <span className="lasted" title={said}>
      {duration(parts.total)}
      <span className="hidden">, {said}</span>
      <DurationBar checkpoint={one} longest={longest} />
    </span>
  );
}
