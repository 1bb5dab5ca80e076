import { useState } from "react";
import type { Ancestor, CheckpointRow } from "../../api";
import { grouped, span } from "../../format";
import { lookOf, StateBadge, Tags } from "../../parts/badge";
import { Id, Time } from "../../parts/text";

const FIRST = 8;

/** Itself, its base, the base of that, back to the one that began from nothing. */
export function Lineage({ pipeline, lineage, run }: { pipeline: string; lineage: Ancestor[]; run: CheckpointRow["run"] }) {
  const [all, setAll] = useState(lineage.length <= FIRST + 2);
  const shown = all ? lineage : lineage.slice(0, FIRST);
  return (
    <>
      <ol className="lineage">
        {shown.map((one, at) => (
          <li key={one.checkpoint_id} data-tone={lookOf(one.state).tone} aria-current={at === 0 ? "true" : undefined}>
            {at === 0 ? <span className="id">{one.checkpoint_id}</span> : <Id pipeline={pipeline} id={one.checkpoint_id} />}
            <Tags checkpoint={{ head: false, kind: one.kind }} />
            <span className={one.interval || one.mends ? "nowrap" : "none"}>{one.interval || one.mends ? span(one) : "no interval"}</span>
            {one.state !== "COMPLETED" && <StateBadge state={one.state} />}
            <Time ms={one.completed_at_ms} absolute={false} />
            {at === 0 && run && (
              <a target="_top" href={run.href}>
                DAG run
              </a>
            )}
          </li>
        ))}
      </ol>
      {!all && (
        <button type="button" className="button small" onClick={() => setAll(true)}>
          Show all {grouped(lineage.length)}
        </button>
      )}
    </>
  );
}
