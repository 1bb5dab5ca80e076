// Words with a shape and a colour; the shape and the word say it without the colour.
import type { CheckpointRow, CheckpointState, GateResult, PipelineRow, Severity } from "../api";
import { grouped, plural } from "../format";

export type Tone = "good" | "warn" | "bad" | "held" | "busy" | "quiet";
export type Shape = "tick" | "cross" | "bang" | "held" | "ring" | "dash";

export interface Look {
  tone: Tone;
  shape: Shape;
  word: string;
}

const PATHS: Record<Shape, string> = {
  tick: "M3.2 8.4 6.6 11.8 12.8 4.8",
  cross: "M4.2 4.2 11.8 11.8M11.8 4.2 4.2 11.8",
  bang: "M8 3.4V9M8 12.2v.1",
  held: "M5.6 4v8M10.4 4v8",
  ring: "M8 3.2a4.8 4.8 0 1 1-4.8 4.8",
  dash: "M4 8h8",
};

export function Icon({ shape }: { shape: Shape }) {
  return (
    <svg className="icon" data-shape={shape} viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path d={PATHS[shape]} />
    </svg>
  );
}

export function Badge({ tone, shape, children }: { tone: Tone; shape: Shape; children: React.ReactNode }) {
  return (
    <span className="badge" data-tone={tone}>
      <Icon shape={shape} />
      <span>{children}</span>
    </span>
  );
}

export const STATES: Record<CheckpointState, Look> = {
  PENDING: { tone: "busy", shape: "ring", word: "Pending" },
  COMPLETED: { tone: "good", shape: "tick", word: "Completed" },
  ABORTED: { tone: "bad", shape: "cross", word: "Aborted" },
  QUARANTINED: { tone: "held", shape: "held", word: "Quarantined" },
  DELETING: { tone: "quiet", shape: "ring", word: "Deleting" },
  DELETED: { tone: "quiet", shape: "dash", word: "Deleted" },
};

/** The look of a stored state, also of one that only a later statelib has. */
export function lookOf(state: string): Look {
  const looks: Record<string, Look> = STATES;
  return looks[state] ?? { tone: "quiet", shape: "dash", word: state };
}

export function StateBadge({ state }: { state: string }) {
  const { tone, shape, word } = lookOf(state);
  return (
    <Badge tone={tone} shape={shape}>
      {word}
    </Badge>
  );
}

export function gateOf(gate: GateResult): Look {
  if (!gate.passed) return { tone: "bad", shape: "cross", word: `${grouped(gate.failed)} of ${grouped(gate.checked)} failed` };
  if (gate.warned > 0) return { tone: "warn", shape: "bang", word: plural(gate.warned, "warning") };
  return { tone: "good", shape: "tick", word: `${grouped(gate.checked)} passed` };
}

export function GateBadge({ gate }: { gate: GateResult | null | undefined }) {
  if (!gate) return <span className="none">not judged</span>;
  const { tone, shape, word } = gateOf(gate);
  return (
    <Badge tone={tone} shape={shape}>
      {word}
    </Badge>
  );
}

export const SEVERITIES: Record<Severity, Look> = {
  FAIL: { tone: "bad", shape: "cross", word: "Fails" },
  QUARANTINE: { tone: "held", shape: "held", word: "Quarantines" },
  WARN: { tone: "warn", shape: "bang", word: "Warns" },
};

/** What a pipeline is up to, the worst first. `rank` sorts. */
export function healthOf(pipeline: PipelineRow): Look & { rank: number } {
  if (pipeline.error !== null) return { tone: "bad", shape: "cross", word: "Does not load", rank: 0 };
  if (pipeline.cancelled) return { tone: "quiet", shape: "dash", word: "Cancelled", rank: 5 };
  const failures = pipeline.failures_in_a_row;
  if (failures > 0) return { tone: "bad", shape: "cross", word: `Failed${failures > 1 ? ` ${grouped(failures)}×` : ""}`, rank: 1 };
  if (pipeline.head === null) return { tone: "quiet", shape: "dash", word: "No state yet", rank: 4 };
  if (pipeline.head.gate && pipeline.head.gate.warned > 0) return { tone: "warn", shape: "bang", word: "Warned", rank: 2 };
  return { tone: "good", shape: "tick", word: "Healthy", rank: 3 };
}

export function HealthBadge({ pipeline }: { pipeline: PipelineRow }) {
  const { tone, shape, word } = healthOf(pipeline);
  return (
    <Badge tone={tone} shape={shape}>
      {word}
    </Badge>
  );
}

export function Tags({ checkpoint }: { checkpoint: Pick<CheckpointRow, "head" | "kind"> }) {
  return (
    <>
      {checkpoint.head && <span className="tag head">head</span>}
      {checkpoint.kind === "SAVEPOINT" && <span className="tag">savepoint</span>}
    </>
  );
}
