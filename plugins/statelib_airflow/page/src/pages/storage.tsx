import type { StorageRow } from "../api";
import { bytes, factor, grouped, percent, plural } from "../format";
import { StorageAreas } from "../parts/areas";
import { StorageBar } from "../parts/bars";
import { Empty, Loaded, Skeleton } from "../parts/loaded";
import { allSamples, KINDS, partsOf, type Sizes, summed, totalOf } from "../parts/storage";
import { type Column, Table } from "../parts/table";
import { Size } from "../parts/text";
import { usePipeline, useStorage, useStorageHistories, useStorageHistory } from "../queries";
import { to } from "../route";
import { PipelineHead, Trail } from "./head";

export function StoragePage() {
  const answer = useStorage();
  return (
    <>
      <Trail steps={[["Pipelines", to.overview()]]} />
      <div className="page-head">
        <h1 tabIndex={-1}>Storage</h1>
      </div>
      <Loaded query={answer} what="storage" rows={6}>
        {({ pipelines }) =>
          pipelines.length === 0 ? (
            <Empty title="Nothing is stored yet">The first checkpoint of a pipeline will be.</Empty>
          ) : (
            <>
              <Makeup sizes={summed(pipelines)} />
              <Table caption="Storage by pipeline" columns={columnsOf(pipelines)} rows={pipelines} rowKey={(one) => one.name} first={{ by: "total", down: true }} />
              <OverTime names={pipelines.map((one) => one.name)} />
            </>
          )
        }
      </Loaded>
    </>
  );
}

function OverTime({ names }: { names: string[] }) {
  const answers = useStorageHistories(names);
  if (answers.some((answer) => answer.isPending)) return <Skeleton what="storage over time" rows={4} />;
  const samples = allSamples(answers.flatMap((answer) => (answer.data ? [answer.data.samples] : [])));
  const missing = answers.filter((answer) => answer.isError).length;
  return (
    <>
      {missing > 0 && (
        <div className="notice warn" role="status">
          {plural(missing, "pipeline")} could not be asked and {missing === 1 ? "is" : "are"} left out.
        </div>
      )}
      {samples.length > 1 && <StorageAreas title="All pipelines over time" samples={samples} />}
    </>
  );
}

export function StorageOfPage({ pipeline: name }: { pipeline: string }) {
  const { pipeline } = usePipeline(name);
  const answer = useStorageHistory(name);
  return (
    <>
      <PipelineHead name={name} pipeline={pipeline} at="storage" />
      <Loaded query={answer} what="storage" rows={6}>
        {({ now, samples }) => (
          <>
            <Makeup sizes={now} />
            {samples.length > 1 ? <StorageAreas title="Over time" samples={samples} /> : <Empty title="No history yet">It is sampled with every cleanup.</Empty>}
          </>
        )}
      </Loaded>
    </>
  );
}

function Makeup({ sizes }: { sizes: Sizes }) {
  const parts = partsOf(sizes);
  const total = totalOf(sizes);
  return (
    <div className="took">
      <p>
        <b>{bytes(total)}</b> <span className="sub">in {plural(sizes.files, "file")}, amplification {factor(sizes.amplification)}</span>
      </p>
      <StorageBar sizes={sizes} />
      <ul className="legend">
        {KINDS.map(({ key, name, meaning }) => (
          <li key={key} title={meaning}>
            <i className={`swatch ${key}`} aria-hidden="true" /> {name} <b>{bytes(parts[key])}</b> {total > 0 && <small>{percent(parts[key] / total)}</small>}
          </li>
        ))}
      </ul>
    </div>
  );
}

function columnsOf(rows: StorageRow[]): Column<StorageRow>[] {
  const most = Math.max(...rows.map(totalOf), 1);
  return [
    {
      id: "name",
      head: "Pipeline",
      names: true,
      by: (one) => one.name,
      cell: (one) => (
        <a className="title" href={to.storage(one.name)}>
          {one.name}
        </a>
      ),
    },
    { id: "bar", head: "Share", bare: true, cell: (one) => <StorageBar sizes={one} most={most} /> },
    { id: "total", head: "Stored", number: true, by: totalOf, cell: (one) => <Size value={totalOf(one)} /> },
    { id: "live", head: "Live", number: true, by: (one) => one.live_bytes, cell: (one) => <Size value={one.live_bytes} /> },
    { id: "shared", head: "of it shared", number: true, by: (one) => one.shared_bytes, cell: (one) => <Size value={one.shared_bytes} /> },
    { id: "savepoints", head: "Savepoints", number: true, by: (one) => one.savepoint_bytes, cell: (one) => <Size value={one.savepoint_bytes} /> },
    { id: "garbage", head: "Garbage", number: true, by: (one) => one.garbage_bytes, cell: (one) => <Size value={one.garbage_bytes} /> },
    { id: "files", head: "Files", number: true, by: (one) => one.files, cell: (one) => grouped(one.files) },
    { id: "amplification", head: "Amplification", number: true, by: (one) => one.amplification, cell: (one) => factor(one.amplification) },
  ];
}
