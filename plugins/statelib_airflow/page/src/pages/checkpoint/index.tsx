import type { CheckpointDetail, PipelineRow } from "../../api";
import { DisposeButton, disposable, RestoreButton, restorable } from "../../parts/actions";
import { StateBadge, Tags } from "../../parts/badge";
import { Loaded } from "../../parts/loaded";
import { Section } from "../../parts/text";
import { useCheckpoint, usePipeline } from "../../queries";
import { to } from "../../route";
import { Trail } from "../head";
import { AboutCheckpoint, Outcome } from "./facts";
import { Files } from "./files";
import { Lineage } from "./lineage";
import { Quality } from "./quality";
import { Operators, Subtasks } from "./states";

export function CheckpointPage({ pipeline: name, id }: { pipeline: string; id: number }) {
  const { pipeline } = usePipeline(name);
  const answer = useCheckpoint(name, id);
  const detail = answer.data;
  const steps: [string, string][] = [
    ["Pipelines", to.overview()],
    [name, to.history(name)],
  ];
  return (
    <>
      <Trail steps={steps} />
      <div className="page-head">
        <div className="names">
          <h1 tabIndex={-1}>
            {detail?.kind === "SAVEPOINT" ? "Savepoint" : "Checkpoint"} <span className="id">{id}</span>
          </h1>
          {detail && <StateBadge state={detail.state} />}
          {detail && <Tags checkpoint={{ head: detail.head, kind: "CHECKPOINT" }} />}
        </div>
        {detail && <Actions pipeline={pipeline} detail={detail} />}
      </div>
      <Loaded query={answer} what={`checkpoint ${id}`} rows={10}>
        {(loaded) => <Detail detail={loaded} />}
      </Loaded>
    </>
  );
}

function Actions({ pipeline, detail }: { pipeline: PipelineRow | null; detail: CheckpointDetail }) {
  return (
    <div className="actions">
      {detail.head && (
        <a className="button" href={to.named(detail.pipeline, "head")} title="This address always shows the head, also after the next run">
          Link to the head
        </a>
      )}
      {detail.base !== null && (
        <a className="button" href={to.compare(detail.pipeline, detail.base, detail.checkpoint_id)}>
          Compare with base
        </a>
      )}
      {pipeline && restorable(detail) && <RestoreButton pipeline={pipeline} id={detail.checkpoint_id} />}
      {pipeline && disposable(detail) && <DisposeButton pipeline={pipeline} id={detail.checkpoint_id} />}
    </div>
  );
}

function Detail({ detail }: { detail: CheckpointDetail }) {
  const subtasks = detail.subtasks ?? [];
  return (
    <>
      <Outcome detail={detail} />
      <AboutCheckpoint detail={detail} />
      {detail.problem && (
        <div className="notice warn" role="status">
          Its <code>_metadata</code> cannot be read, so states and files are not shown: {detail.problem}
        </div>
      )}
      <Quality detail={detail} />
      {detail.states && <Operators detail={detail} states={detail.states} subtasks={subtasks} />}
      {detail.files && <Files detail={detail} files={detail.files} />}
      <div className="side-by-side">
        {detail.lineage.length > 0 && (
          <Section title="Lineage" id="lineage">
            <Lineage pipeline={detail.pipeline} lineage={detail.lineage} run={detail.run} />
          </Section>
        )}
        {detail.subtasks && detail.subtasks.length > 0 && <Subtasks subtasks={detail.subtasks} />}
      </div>
    </>
  );
}
