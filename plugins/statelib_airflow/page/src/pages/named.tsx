// A checkpoint by what it is now, not by its id: a bookmark that always shows the head, or the newest one.
import { Loaded, Problem } from "../parts/loaded";
import { useCheckpoints, usePipelines } from "../queries";
import type { Named } from "../route";
import { CheckpointPage } from "./checkpoint";

export function NamedPage({ pipeline, name }: { pipeline: string; name: Named }) {
  return name === "head" ? <Head pipeline={pipeline} /> : <Latest pipeline={pipeline} />;
}

function Head({ pipeline }: { pipeline: string }) {
  return (
    <Loaded query={usePipelines()} what="the head">
      {({ pipelines }) => {
        const row = pipelines.find((one) => one.name === pipeline);
        return <Shown pipeline={pipeline} id={row?.head?.checkpoint_id} missing={`${pipeline} has no head.`} />;
      }}
    </Loaded>
  );
}

function Latest({ pipeline }: { pipeline: string }) {
  return (
    <Loaded query={useCheckpoints(pipeline, { state: "COMPLETED" }, 1)} what="the newest checkpoint">
      {({ checkpoints }) => (
        <Shown pipeline={pipeline} id={checkpoints[0]?.checkpoint_id} missing={`${pipeline} has no completed checkpoint.`} />
      )}
    </Loaded>
  );
}

function Shown({ pipeline, id, missing }: { pipeline: string; id: number | undefined; missing: string }) {
  if (id !== undefined) return <CheckpointPage key={id} pipeline={pipeline} id={id} />;
  return (
    <>
      <h1 tabIndex={-1}>No checkpoint</h1>
      <Problem message={missing} hint="The pipeline's history shows what was tried." />
    </>
  );
}
