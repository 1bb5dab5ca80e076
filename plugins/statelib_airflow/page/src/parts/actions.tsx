// What changes state: links to Airflow's DAGs, whose trigger forms ask for the rest. The page itself changes nothing.
import type { CheckpointRow, PipelineRow } from "../api";
import { airflowUrl } from "../requests";

/** Airflow has no address for the form itself: its button "Trigger" on this page opens it. */
export function dagPage(dag: string): string {
  return airflowUrl(`dags/${encodeURIComponent(dag)}`);
}

interface TriggerProps {
  dag: string;
  /** What to enter into the form, if anything must be. */
  entry?: string;
  may: boolean;
  small?: boolean;
  danger?: boolean;
  label?: string;
  children: string;
}

function Trigger({ dag, entry, may, small, danger, label, children }: TriggerProps) {
  const look = ["button", small && "small", danger && "danger"].filter(Boolean).join(" ");
  if (!may) {
    return (
      <span className={look} role="link" aria-disabled="true" title={`You may not trigger ${dag}`}>
        {children}
      </span>
    );
  }
  return (
    <a className={look} target="_top" href={dagPage(dag)} aria-label={label} title={`Opens ${dag}: press Trigger there${entry ? ` and enter ${entry}` : ""}`}>
      {children}
    </a>
  );
}

export function SavepointButton({ pipeline }: { pipeline: PipelineRow }) {
  return (
    <Trigger dag={`${pipeline.name}.savepoint`} may={pipeline.may.trigger}>
      Savepoint…
    </Trigger>
  );
}

export function RestoreButton({ pipeline, id, small }: { pipeline: PipelineRow; id?: number; small?: boolean }) {
  return (
    <Trigger
      dag={`${pipeline.name}.restore`}
      may={pipeline.may.trigger}
      small={small ?? false}
      {...(id === undefined ? {} : { entry: `checkpoint ${id}`, label: `Restore… to ${id}` })}
    >
      Restore…
    </Trigger>
  );
}

/** Only what stands completely can be gone back to. */
export const restorable = (checkpoint: CheckpointRow) => checkpoint.state === "COMPLETED";
export const disposable = (checkpoint: CheckpointRow) => checkpoint.kind === "SAVEPOINT" && checkpoint.state === "COMPLETED";

/** The form's own box confirms; without it the run only says what would be deleted. */
export function DisposeButton({ pipeline, id }: { pipeline: PipelineRow; id: number }) {
  return (
    <Trigger dag={`${pipeline.name}.dispose`} entry={`savepoint ${id}`} may={pipeline.may.trigger} danger>
      Dispose…
    </Trigger>
  );
}
