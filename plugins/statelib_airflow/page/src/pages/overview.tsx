import { useNow } from "../clock";
import type { PipelineRow } from "../api";
import { ago, bytes, grouped, NONE, plural, span } from "../format";
import { become } from "../location";
import { GateBadge, HealthBadge, healthOf, Icon } from "../parts/badge";
import { RestoreButton, SavepointButton } from "../parts/actions";
import { Empty, Loaded } from "../parts/loaded";
import { type Column, Table } from "../parts/table";
import { Count, Id, Size, Time } from "../parts/text";
import { usePipelines } from "../queries";
import { type Query, search, to } from "../route";

export function OverviewPage({ query }: { query: Query }) {
  const answer = usePipelines();
  const wanted = (query.q ?? "").toLowerCase();
  return (
    <>
      <div className="page-head">
        <h1 tabIndex={-1}>Pipelines</h1>
        <search className="filters">
          <label className="field">
            <span className="hidden">Filter by name or description</span>
            <input
              type="search"
              placeholder="Filter"
              value={query.q ?? ""}
              onChange={(event) => become(to.overview() + search({ q: event.target.value }))}
            />
          </label>
        </search>
      </div>
      <Loaded query={answer} what="pipelines" rows={5}>
        {({ pipelines }) => {
          const shown = pipelines.filter((one) => `${one.name} ${one.description}`.toLowerCase().includes(wanted));
          if (pipelines.length === 0) {
            return <Empty title="No pipeline to see">A pipeline is a file in dags/pipelines; those are shown whose DAG you may read.</Empty>;
          }
          return (
            <>
              <Summary pipelines={pipelines} />
              {shown.length === 0 ? (
                <Empty title="No pipeline matches">Nothing has “{query.q}” in its name or description.</Empty>
              ) : (
                <Table caption="Pipelines" columns={COLUMNS} rows={shown} rowKey={(one) => one.name} first={{ by: "health", down: false }} />
              )}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

function Summary({ pipelines }: { pipelines: PipelineRow[] }) {
  const now = useNow();
  const sum = (of: (one: PipelineRow) => number) => pipelines.reduce((total, one) => total + of(one), 0);
  const troubled = pipelines.filter((one) => healthOf(one).rank < 2);
  const heads = pipelines.flatMap((one) => one.head?.completed_at_ms ?? []);
  const held = sum((one) => one.quarantined);
  const uncounted = pipelines.some((one) => one.head !== null && one.head.keys === null);
  const pending = sum((one) => (one.pending ? 1 : 0));
  return (
    <ul className="tiles" aria-label="All pipelines">
      <Tile name="pipelines" value={grouped(pipelines.length)} note={troubled.length ? `${grouped(troubled.length)} ${troubled.length === 1 ? "needs" : "need"} you` : "all run"} tone={troubled.length ? "bad" : "good"} />
      <Tile name="pending" value={grouped(pending)} note={pending ? "being taken now" : "nothing under way"} tone={pending ? "busy" : ""} />
      <Tile name="in quarantine" value={grouped(held)} note={held ? "kept aside, not built on" : "none"} tone={held ? "held" : ""} />
      <Tile name="keys" value={`${uncounted ? "≥ " : ""}${grouped(sum((one) => one.head?.keys ?? 0))}`} note={`${bytes(sum((one) => one.head?.size_bytes ?? 0))} of state`} />
      <Tile name="newest head" value={heads.length ? ago(Math.max(...heads), now) : NONE} note={heads.length ? `oldest ${ago(Math.min(...heads), now)}` : ""} />
    </ul>
  );
}

function Tile({ name, value, note, tone = "" }: { name: string; value: string; note: string; tone?: string }) {
  return (
    <li className="tile">
      <span className="name">{name}</span>
      <span className="value">{value}</span>
      <span className="note" data-tone={tone}>
        {note}
      </span>
    </li>
  );
}

const COLUMNS: Column<PipelineRow>[] = [
  {
    id: "name",
    head: "Pipeline",
    names: true,
    by: (one) => one.name,
    cell: (one) => (
      <>
        <a className="title" href={to.history(one.name)}>
          {one.name}
        </a>
        {one.error !== null ? <p className="sub bad">{one.error}</p> : one.description && <p className="sub">{one.description}</p>}
      </>
    ),
  },
  {
    id: "health",
    head: "Health",
    by: (one) => healthOf(one).rank,
    cell: (one) => (
      <span className="stack">
        <HealthBadge pipeline={one} />
        {one.pending && (
          <a className="busy-line" href={to.checkpoint(one.name, one.pending.checkpoint_id)}>
            <Icon shape="ring" /> taking {one.pending.checkpoint_id}
          </a>
        )}
        {one.quarantined > 0 && (
          <a className="held-line" href={to.history(one.name, { state: "QUARANTINED" })}>
            {plural(one.quarantined, "in quarantine", "in quarantine")}
          </a>
        )}
      </span>
    ),
  },
  {
    id: "head",
    head: "Head",
    by: (one) => one.head?.checkpoint_id ?? null,
    cell: (one) =>
      one.head ? (
        <span className="stack">
          <Id pipeline={one.name} id={one.head.checkpoint_id} />
          <span className="sub nowrap">{span(one.head)}</span>
        </span>
      ) : (
        <span className="none">{NONE}</span>
      ),
  },
  { id: "age", head: "Age", number: true, by: (one) => (one.head?.completed_at_ms ? -one.head.completed_at_ms : null), cell: (one) => <Time ms={one.head?.completed_at_ms ?? null} absolute={false} /> },
  { id: "keys", head: "Keys", number: true, by: (one) => one.head?.keys ?? null, cell: (one) => <Count value={one.head?.keys} /> },
  { id: "bytes", head: "State", number: true, by: (one) => one.head?.size_bytes ?? null, cell: (one) => <Size value={one.head?.size_bytes} /> },
  { id: "gate", head: "Last gate", cell: (one) => <GateBadge gate={one.head?.gate} /> },
  { id: "schedule", head: "Schedule", by: (one) => one.schedule, wideOnly: true, cell: (one) => (one.schedule ? <code>{one.schedule}</code> : <span className="none">by hand</span>) },
  {
    id: "actions",
    head: "Actions",
    bare: true,
    cell: (one) => (
      <span className="actions">
        {one.error === null && <SavepointButton pipeline={one} />}
        {one.error === null && one.head && <RestoreButton pipeline={one} />}
      </span>
    ),
  },
];
