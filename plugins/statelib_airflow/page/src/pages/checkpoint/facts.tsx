import type { CheckpointDetail } from "../../api";
import { bytes, count, duration, grouped, NONE, percent, span, utc, words } from "../../format";
import { GateBadge } from "../../parts/badge";
import { DurationBar } from "../../parts/bars";
import { PART_NAMES, PARTS, split } from "../../parts/scale";
import { Fact, Facts, Id, Size, Time } from "../../parts/text";

/** Why it did not become, or is not yet, what a run builds on. */
export function Outcome({ detail }: { detail: CheckpointDetail }) {
  const why = [detail.failure && words(detail.failure), detail.reason].filter(Boolean).join(": ");
  switch (detail.state) {
    case "ABORTED":
      return <div className="notice bad">Aborted{why && <> – {why}</>}. Nothing builds on it; gc removes what it left.</div>;
    case "QUARANTINED":
      return <Held detail={detail} />;
    case "PENDING":
      return (
        <div className="notice busy">
          Being taken. This page follows it.
          {detail.deadline_ms !== null && <> It has until {utc(detail.deadline_ms)}.</>}
        </div>
      );
    case "DELETING":
    case "DELETED":
      return <div className="notice quiet">Its files are {detail.state === "DELETED" ? "deleted" : "being deleted"}; what is known of it stays here.</div>;
    default:
      return null;
  }
}

export function AboutCheckpoint({ detail }: { detail: CheckpointDetail }) {
  const { events, run } = detail;
  return (
    <>
      <Lasted detail={detail} />
      <Facts label="Facts">
        <Fact name="Interval">{span(detail)}</Fact>
        <Fact name="Begun">
          <Time ms={detail.created_at_ms} />
        </Fact>
        <Fact name="Completed">
          <Time ms={detail.completed_at_ms} />
        </Fact>
        <Fact name="Keys">{detail.keys === null && detail.entries !== null ? "unknown" : count(detail.keys)}</Fact>
        <Fact name="Keys changed">
          {count(detail.keys_changed)}
          {detail.keys_changed !== null && !!detail.keys && <small> {percent(detail.keys_changed / detail.keys)}</small>}
        </Fact>
        <Fact name="Entries">{count(detail.entries)}</Fact>
        <Fact name="Full size">
          <Size value={detail.size_bytes} />
        </Fact>
        <Fact name="Uploaded">
          <Size value={detail.uploaded_bytes} />
          {detail.uploaded_bytes !== null && !!detail.size_bytes && <small> {percent(detail.uploaded_bytes / detail.size_bytes)}</small>}
        </Fact>
        <Fact name="Events">
          {events ? (
            <>
              {grouped(events.applied)} <small>of {grouped(events.read)} applied{events.null_key > 0 && `, ${grouped(events.null_key)} without a key`}</small>
            </>
          ) : (
            NONE
          )}
        </Fact>
        <Fact name="Gate">
          <GateBadge gate={detail.gate} />
        </Fact>
        <Fact name="Base">{detail.base === null ? "none: from nothing" : <Id pipeline={detail.pipeline} id={detail.base} />}</Fact>
        <Fact name="Strategy">{detail.strategy}</Fact>
        <Fact name="Parallelism">
          {grouped(detail.parallelism)}
          {detail.max_parallelism !== null && <small> of {grouped(detail.max_parallelism)}</small>}
        </Fact>
        <Fact name="Generation">{grouped(detail.generation)}</Fact>
        <Fact name="Belongs to">{detail.owner === "USER" ? "its user" : "the system"}</Fact>
        {run && (
          <Fact name="DAG run" wide>
            <a className="mono" target="_top" href={run.href}>
              {run.dag_id} · {run.run_id}
            </a>
          </Fact>
        )}
        {detail.note && (
          <Fact name="Note" wide>
            {detail.note}
          </Fact>
        )}
        {detail.directory && (
          <Fact name="Directory" wide>
            <code className="path">{detail.directory}</code>
          </Fact>
        )}
      </Facts>
    </>
  );
}

/** The first of the gate's reasons; all of them stand below, under Quality. */
function Held({ detail }: { detail: CheckpointDetail }) {
  const [first, ...more] = detail.reason.split("; ");
  return (
    <div className="notice held">
      In quarantine{first && <> – {first}</>}
      {more.length > 0 && <>, and {grouped(more.length)} more, below</>}. It is kept for inspection, and nothing builds on it. While no newer one stands,{" "}
      <code>
        statelib checkpoints release {detail.pipeline}/{detail.checkpoint_id} --note …
      </code>{" "}
      takes it as good.
    </div>
  );
}

function Lasted({ detail }: { detail: CheckpointDetail }) {
  if (detail.duration_ms === null) return null;
  const parts = split(detail);
  const asynchronous = detail.async_ms === null ? null : parts.async; // null: not measured
  const said = { rest: parts.rest, sync: detail.sync_ms, async: asynchronous, upload: detail.upload_ms };
  return (
    <div className="took">
      <p>
        <b>{duration(parts.total)}</b> <span className="sub">from begin to completion, {bytes(detail.uploaded_bytes)} uploaded</span>
      </p>
      <DurationBar checkpoint={detail} />
      <p className="legend">
        {PARTS.map((part) => (
          <span key={part}>
            <i className={`swatch ${part}`} aria-hidden="true" /> {PART_NAMES[part]} <b>{duration(said[part])}</b>
          </span>
        ))}
      </p>
    </div>
  );
}
