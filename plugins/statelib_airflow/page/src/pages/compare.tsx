import { type FormEvent, useState } from "react";
import type { CheckpointRow, ComparisonDetail } from "../api";
import { bytes, duration, grouped, NONE, percent, plural, signed, span } from "../format";
import { go } from "../location";
import { GateBadge, StateBadge, Tags } from "../parts/badge";
import { Parts } from "../parts/bars";
import { Empty, Loaded } from "../parts/loaded";
import { ranges } from "../parts/scale";
import { type Column, Table } from "../parts/table";
import { Count, Id, Section, Time } from "../parts/text";
import { useComparison, usePipeline } from "../queries";
import { to } from "../route";
import { Trail } from "./head";

export function ComparePage({ pipeline, left, right }: { pipeline: string; left: number | null; right: number | null }) {
  const answer = useComparison(pipeline, left, right);
  return (
    <>
      <Trail
        steps={[
          ["Pipelines", to.overview()],
          [pipeline, to.history(pipeline)],
        ]}
      />
      <div className="page-head">
        <h1 tabIndex={-1}>Compare</h1>
        <Which key={`${left}/${right}`} pipeline={pipeline} left={left} right={right} />
      </div>
      {left === null || right === null ? (
        <Empty title="Which two?">Give two ids, or choose two rows of the history.</Empty>
      ) : (
        <Loaded query={answer} what="the comparison" rows={8}>
          {(comparison) => <Differences pipeline={pipeline} comparison={comparison} />}
        </Loaded>
      )}
    </>
  );
}

function Which({ pipeline, left, right }: { pipeline: string; left: number | null; right: number | null }) {
  const { pipeline: known } = usePipeline(pipeline);
  const [one, setOne] = useState(left === null ? "" : String(left));
  const [other, setOther] = useState(right === null ? String(known?.head?.checkpoint_id ?? "") : String(right));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (one && other) go(to.compare(pipeline, Number(one), Number(other)));
  };
  return (
    <form className="filters" onSubmit={submit}>
      <label className="field id-field">
        <span>Left</span>
        <input inputMode="numeric" pattern="[1-9][0-9]*" required value={one} onChange={(event) => setOne(event.target.value.trim())} />
      </label>
      <label className="field id-field">
        <span>Right</span>
        <input inputMode="numeric" pattern="[1-9][0-9]*" required value={other} onChange={(event) => setOther(event.target.value.trim())} />
      </label>
      <button type="submit" className="button">
        Compare
      </button>
      {left !== null && right !== null && (
        <a className="button" href={to.compare(pipeline, right, left)}>
          Swap
        </a>
      )}
    </form>
  );
}

interface Line {
  name: string;
  left: React.ReactNode;
  right: React.ReactNode;
  change: string;
}

const difference = (left: number | null, right: number | null, show: (value: number) => string) =>
  left === null || right === null ? "" : signed(right - left, show);

function linesOf({ left, right }: ComparisonDetail): Line[] {
  const pair = (name: string, of: (one: CheckpointRow) => React.ReactNode, change = ""): Line => ({ name, left: of(left), right: of(right), change });
  const amount = (name: string, of: (one: CheckpointRow) => number | null, show: (value: number) => string): Line =>
    pair(name, (one) => { const value = of(one); return value === null ? NONE : show(value); }, difference(of(left), of(right), show));
  return [
    pair("Status", (one) => <StateBadge state={one.state} />),
    pair("Interval", span),
    pair("Completed", (one) => <Time ms={one.completed_at_ms} />, difference(left.completed_at_ms, right.completed_at_ms, duration)),
    amount("Keys", (one) => one.keys, grouped),
    amount("Entries", (one) => one.entries, grouped),
    amount("Full size", (one) => one.size_bytes, bytes),
    amount("Uploaded", (one) => one.uploaded_bytes, bytes),
    amount("Duration", (one) => one.duration_ms, duration),
    amount("Parallelism", (one) => one.parallelism, grouped),
    pair("Strategy", (one) => one.strategy, left.strategy === right.strategy ? "" : "changed"),
    amount("Generation", (one) => one.generation, grouped),
    pair("Gate", (one) => <GateBadge gate={one.gate} />),
  ];
}

function Differences({ pipeline, comparison }: { pipeline: string; comparison: ComparisonDetail }) {
  const { left, right, files, command } = comparison;
  const title = (one: CheckpointRow) => (
    <span className="with-tags">
      <Id pipeline={pipeline} id={one.checkpoint_id} />
      <Tags checkpoint={one} />
    </span>
  );
  return (
    <>
      <div className="scroll" role="region" aria-label="Facts of both" tabIndex={0}>
        <table className="plain versus">
          <caption className="hidden">Facts of both</caption>
          <thead>
            <tr>
              <th scope="col">
                <span className="hidden">Fact</span>
              </th>
              <th scope="col">{title(left)}</th>
              <th scope="col">{title(right)}</th>
              <th scope="col">Change</th>
            </tr>
          </thead>
          <tbody>
            {linesOf(comparison).map((line) => (
              <tr key={line.name}>
                <th scope="row">{line.name}</th>
                <td>{line.left}</td>
                <td>{line.right}</td>
                <td className="change">{line.change}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {comparison.problem && (
        <div className="notice warn" role="status">
          States and files are not compared: {comparison.problem}
        </div>
      )}
      {comparison.states && (
        <Section title="States" id="states">
          <Table caption="States of both" columns={STATE_COLUMNS} rows={comparison.states} rowKey={(one) => one.name} />
        </Section>
      )}
      {files && (
        <Section title="Files" id="files">
          <SharedFiles files={files} left={left.checkpoint_id} right={right.checkpoint_id} />
        </Section>
      )}
      <Section title="Entry by entry" id="command">
        <Command text={command} />
      </Section>
    </>
  );
}

type StateDifference = NonNullable<ComparisonDetail["states"]>[number];

const STATE_COLUMNS: Column<StateDifference>[] = [
  { id: "name", head: "State", names: true, by: (one) => one.name, cell: (one) => <code>{one.name}</code> },
  { id: "left", head: "Left", number: true, by: (one) => one.left_entries, cell: (one) => <Count value={one.left_entries} /> },
  { id: "right", head: "Right", number: true, by: (one) => one.right_entries, cell: (one) => <Count value={one.right_entries} /> },
  {
    id: "change",
    head: "Change",
    number: true,
    by: (one) => (one.right_entries ?? 0) - (one.left_entries ?? 0),
    cell: (one) => (one.left_entries === null ? "added" : one.right_entries === null ? "gone" : signed(one.right_entries - one.left_entries)),
  },
  { id: "groups", head: "Key groups changed", number: true, by: (one) => one.key_groups_changed, cell: (one) => <Count value={one.key_groups_changed} /> },
  {
    id: "changed",
    head: "Which",
    cell: (one) => {
      if (one.changed === null) return <span className="none">other key groups</span>;
      const text = ranges(one.changed);
      return text ? <span className="mono sub groups" title={text}>{text}</span> : <span className="none">equal</span>;
    },
  },
];

function SharedFiles({ files, left, right }: { files: NonNullable<ComparisonDetail["files"]>; left: number; right: number }) {
  const total = files.only_left_bytes + files.common_bytes + files.only_right_bytes;
  const rows: [string, string, number, number][] = [
    ["only-left", `only ${left}`, files.only_left, files.only_left_bytes],
    ["common", "both", files.common, files.common_bytes],
    ["only-right", `only ${right}`, files.only_right, files.only_right_bytes],
  ];
  return (
    <div className="took">
      <Parts parts={rows.map(([key, , , size]) => [key, size])} />
      <ul className="legend">
        {rows.map(([key, name, number, size]) => (
          <li key={key}>
            <i className={`swatch ${key}`} aria-hidden="true" /> {name}: <b>{bytes(size)}</b> in {plural(number, "file")}
            {total > 0 && <small> {percent(size / total)}</small>}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(text).then(() => setCopied(true));
  };
  return (
    <div className="command">
      <code>{text}</code>
      {"clipboard" in navigator && (
        <button type="button" className="button small" onClick={copy}>
          <span aria-live="polite">{copied ? "Copied" : "Copy"}</span>
        </button>
      )}
    </div>
  );
}
