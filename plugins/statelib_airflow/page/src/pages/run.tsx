import { useEffect } from "react";
import { become } from "../location";
import { Loaded } from "../parts/loaded";
import { useRun } from "../queries";
import { to } from "../route";
import { Trail } from "./head";

/** A DAG run's tab: its checkpoint. */
export function RunPage({ dag, run }: { dag: string; run: string }) {
  const answer = useRun(dag, run);
  const found = answer.data;
  useEffect(() => {
    if (found) become(found.checkpoint_id === null ? to.history(found.pipeline) : to.checkpoint(found.pipeline, found.checkpoint_id));
  }, [found]);
  return (
    <>
      <Trail steps={[["Pipelines", to.overview()]]} />
      <h1 tabIndex={-1}>State of a run</h1>
      <p className="lead mono">
        {dag} · {run}
      </p>
      <Loaded query={answer} what="the run's checkpoint" rows={2}>
        {() => null}
      </Loaded>
    </>
  );
}
