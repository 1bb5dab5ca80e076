// The published tables of a pipeline: the newest commit of each, and how far it is behind.
import type { TableStanding } from "../api";
import { grouped, NONE, plural, span } from "../format";
import { Badge } from "../parts/badge";
import { Loaded } from "../parts/loaded";
import { type Column, Table } from "../parts/table";
import { Id, Section } from "../parts/text";
import { useTables } from "../queries";

export function PublishedTables({ pipeline }: { pipeline: string }) {
  const answer = useTables(pipeline);
  return (
    <Section title="Published tables" id="tables">
      <Loaded query={answer} what="published tables" rows={2}>
        {({ tables }) => (
          <Table caption={`Published tables of ${pipeline}`} columns={columnsOf(pipeline)} rows={tables} rowKey={(one) => one.table} />
        )}
      </Loaded>
    </Section>
  );
}

function columnsOf(pipeline: string): Column<TableStanding>[] {
  return [
    {
      id: "table",
      head: "Table",
      names: true,
      cell: (one) => (
        <span className="stack">
          <span>{one.table}</span>
          <span className="sub clip" title={one.target}>
            {one.target}
          </span>
        </span>
      ),
    },
    { id: "form", head: "Form", cell: (one) => `${one.mode === "changes" ? "changes" : "table"} in ${one.format}` },
    { id: "behind", head: "Behind", cell: (one) => <Behind one={one} /> },
    { id: "commit", head: "Last commit", number: true, cell: (one) => (one.commit ? grouped(one.commit) : <span className="none">{NONE}</span>) },
    {
      id: "checkpoint",
      head: "Of checkpoint",
      number: true,
      cell: (one) => (one.checkpoint_id === null ? <span className="none">{NONE}</span> : <Id pipeline={pipeline} id={one.checkpoint_id} />),
    },
    { id: "interval", head: "Interval", cell: (one) => <span className={one.interval || one.mends ? "nowrap" : "none"}>{span(one)}</span> },
  ];
}

function Behind({ one }: { one: TableStanding }) {
  if (one.error) {
    return (
      <span className="stack">
        <Badge tone="bad" shape="cross">
          Cannot be read
        </Badge>
        <span className="sub">{one.error}</span>
      </span>
    );
  }
  if (one.behind > 0) {
    return (
      <Badge tone="warn" shape="bang">
        {plural(one.behind, "checkpoint")}
      </Badge>
    );
  }
  return one.commit ? (
    <Badge tone="good" shape="tick">
      Up to date
    </Badge>
  ) : (
    <Badge tone="quiet" shape="dash">
      No state yet
    </Badge>
  );
}
