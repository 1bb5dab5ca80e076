// The last checkpoints side by side: how each ended, how long it took, how many bytes it is and how many it uploaded.
import { useState } from "react";
import type { CheckpointRow } from "../api";
import { bytes, count, day, duration, NONE, plural, round, span } from "../format";
import { go } from "../location";
import { to } from "../route";
import { lookOf } from "./badge";
import { cursor, Figure, type Numbers, useWidth } from "./figure";
import { every, PART_NAMES, PARTS, split, ticks } from "./scale";

const NARROWEST = 7;
const LEFT = 62;
const RIGHT = 8;
const STRIP = 16;
const PANEL = 92;
const GAP = 26;
const BOTTOM = 18;
const HEIGHT = STRIP + 2 * PANEL + 2 * GAP + BOTTOM;

export function Timeline({ pipeline, checkpoints }: { pipeline: string; checkpoints: CheckpointRow[] }) {
  const shown = checkpoints.toSorted((one, other) => one.checkpoint_id - other.checkpoint_id);
  return (
    <Figure
      title="Timeline"
      note={`up to ${plural(shown.length, "checkpoint")}, the newest on the right`}
      legend={[
        ["rest", PART_NAMES.rest],
        ["sync", PART_NAMES.sync],
        ["async", PART_NAMES.async],
        ["upload", PART_NAMES.upload],
        ["full", "full size"],
        ["incremental", "uploaded"],
      ]}
      numbers={numbersOf(shown)}
    >
      <Chart pipeline={pipeline} shown={shown} />
    </Figure>
  );
}

function numbersOf(shown: CheckpointRow[]): Numbers {
  return {
    head: ["Checkpoint", "Status", "Interval", "Run and gate", "Sync", "Async", "Upload", "Full size", "Uploaded", "Keys", "Entries"],
    rows: shown.map((one) => {
      const parts = split(one);
      const known = one.duration_ms !== null;
      return [
        one.checkpoint_id,
        lookOf(one.state).word,
        span(one),
        known ? duration(parts.rest) : NONE,
        duration(one.sync_ms),
        duration(one.async_ms),
        duration(one.upload_ms),
        bytes(one.size_bytes),
        bytes(one.uploaded_bytes),
        count(one.keys),
        count(one.entries),
      ];
    }),
  };
}

function Chart({ pipeline, shown: all }: { pipeline: string; shown: CheckpointRow[] }) {
  const [attach, width] = useWidth(640);
  const shown = all.slice(-Math.max(8, Math.floor((width - LEFT - RIGHT) / NARROWEST)));
  const [chosen, setChosen] = useState<number | null>(null);
  const at = Math.min(chosen ?? shown.length - 1, shown.length - 1);
  const under = shown[at];
  if (!under) return null;
  const slot = (width - LEFT - RIGHT) / Math.max(shown.length, 12);
  const hit = (event: React.PointerEvent) => {
    const x = event.clientX - event.currentTarget.getBoundingClientRect().left - LEFT;
    return Math.min(shown.length - 1, Math.max(0, Math.floor(x / slot)));
  };
  const open = () => go(to.checkpoint(pipeline, under.checkpoint_id));
  return (
    <div ref={attach} className="timeline">
      <div
        className="walk"
        {...cursor({
          label: "Checkpoints, oldest first; Enter opens one",
          count: shown.length,
          at,
          value: spoken(under),
          onMove: setChosen,
          onEnter: open,
        })}
        onPointerMove={(event) => event.pointerType === "mouse" && setChosen(hit(event))}
        onPointerDown={(event) => setChosen(hit(event))}
        onPointerLeave={(event) => event.pointerType === "mouse" && setChosen(null)}
        onClick={(event) => event.detail > 0 && matchMedia("(hover: hover)").matches && open()}
      >
        <svg width={width} height={HEIGHT} aria-hidden="true">
          {chosen !== null && <rect className="column" x={LEFT + at * slot} y={0} width={slot} height={HEIGHT - BOTTOM} />}
          <Strip shown={shown} slot={slot} />
          <Durations shown={shown} slot={slot} width={width} top={STRIP + GAP} />
          <Sizes shown={shown} slot={slot} width={width} top={STRIP + PANEL + 2 * GAP} />
          <Labels shown={shown} slot={slot} width={width} />
        </svg>
      </div>
      <Readout pipeline={pipeline} checkpoint={under} />
    </div>
  );
}

function spoken(one: CheckpointRow): string {
  const parts = [
    `checkpoint ${one.checkpoint_id}`,
    lookOf(one.state).word,
    one.interval || one.mends ? span(one) : "",
    duration(one.duration_ms),
    `${bytes(one.size_bytes)}, uploaded ${bytes(one.uploaded_bytes)}`,
  ];
  return parts.filter(Boolean).join(", ");
}

function Strip({ shown, slot }: { shown: CheckpointRow[]; slot: number }) {
  return (
    <g>
      <text className="axis-name" x={LEFT - 10} y={STRIP - 4} textAnchor="end">
        status
      </text>
      {shown.map((one, at) => {
        const x = LEFT + (at + 0.5) * slot;
        const y = STRIP / 2;
        const r = Math.min(4.5, slot * 0.42);
        return <path key={one.checkpoint_id} className="mark" data-tone={lookOf(one.state).tone} d={markOf(one, x, y, r)} />;
      })}
    </g>
  );
}

/** A square is a savepoint, a cross was aborted, two bars are held in quarantine; circles are checkpoints. */
function markOf(one: CheckpointRow, x: number, y: number, r: number): string {
  if (one.state === "ABORTED") return `M${x - r} ${y - r}L${x + r} ${y + r}M${x + r} ${y - r}L${x - r} ${y + r}`;
  if (one.state === "QUARANTINED") return `M${x - r / 2} ${y - r}v${2 * r}M${x + r / 2} ${y - r}v${2 * r}`;
  if (one.kind === "SAVEPOINT") return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
}

interface PanelProps {
  shown: CheckpointRow[];
  slot: number;
  width: number;
  top: number;
}

function Axis({ marks, most, top, width, show, name }: { marks: number[]; most: number; top: number; width: number; show: (value: number) => string; name: string }) {
  return (
    <g>
      <text className="axis-name" x={LEFT} y={top - 8}>
        {name}
      </text>
      {marks.map((mark) => {
        const y = top + PANEL - (mark / most) * PANEL;
        return (
          <g key={mark}>
            <line className="grid" x1={LEFT} x2={width - RIGHT} y1={y} y2={y} />
            <text className="tick" x={LEFT - 8} y={y + 3.5} textAnchor="end">
              {mark === 0 ? "0" : round(show(mark))}
            </text>
          </g>
        );
      })}
    </g>
  );
}

function Durations({ shown, slot, width, top }: PanelProps) {
  const marks = ticks(Math.max(...shown.map((one) => split(one).total), 1), 3);
  const most = marks.at(-1) ?? 1;
  const bar = Math.max(1, Math.min(slot * 0.68, 26));
  return (
    <g>
      <Axis marks={marks} most={most} top={top} width={width} show={duration} name="duration" />
      {shown.map((one, at) => {
        const parts = split(one);
        let y = top + PANEL;
        return PARTS.map((part) => {
          const height = (parts[part] / most) * PANEL;
          y -= height;
          return height > 0 && <rect key={`${at}${part}`} className={part} x={LEFT + (at + 0.5) * slot - bar / 2} y={y} width={bar} height={height} />;
        });
      })}
    </g>
  );
}

function Sizes({ shown, slot, width, top }: PanelProps) {
  const marks = ticks(Math.max(...shown.map((one) => Math.max(one.size_bytes ?? 0, one.uploaded_bytes ?? 0)), 1), 3, 1024);
  const most = marks.at(-1) ?? 1;
  const y = (value: number) => top + PANEL - (value / most) * PANEL;
  const x = (at: number) => LEFT + (at + 0.5) * slot;
  const bar = Math.max(1, Math.min(slot * 0.68, 26));
  const line = shown.flatMap((one, at) => (one.size_bytes === null ? [] : [`${x(at)},${y(one.size_bytes)}`]));
  return (
    <g>
      <Axis marks={marks} most={most} top={top} width={width} show={bytes} name="size" />
      {shown.map((one, at) =>
        one.uploaded_bytes ? (
          <rect key={one.checkpoint_id} className="incremental" x={x(at) - bar / 2} y={y(one.uploaded_bytes)} width={bar} height={(one.uploaded_bytes / most) * PANEL} />
        ) : null,
      )}
      <polyline className="full" points={line.join(" ")} />
      {shown.map((one, at) => one.size_bytes !== null && slot > 7 && <circle key={one.checkpoint_id} className="full" cx={x(at)} cy={y(one.size_bytes)} r={2} />)}
    </g>
  );
}

function Labels({ shown, slot, width }: { shown: CheckpointRow[]; slot: number; width: number }) {
  const step = every(shown.length, width - LEFT - RIGHT, 40);
  return (
    <g>
      {shown.map(
        (one, at) =>
          (shown.length - 1 - at) % step === 0 && (
            <text key={one.checkpoint_id} className="tick" x={LEFT + (at + 0.5) * slot} y={HEIGHT - 3} textAnchor="middle">
              {one.checkpoint_id}
            </text>
          ),
      )}
    </g>
  );
}

function Readout({ pipeline, checkpoint: one }: { pipeline: string; checkpoint: CheckpointRow }) {
  const parts = split(one);
  return (
    <p className="readout">
      <a className="id" href={to.checkpoint(pipeline, one.checkpoint_id)}>
        {one.checkpoint_id}
      </a>
      <span data-tone={lookOf(one.state).tone} className="tone">
        {lookOf(one.state).word}
      </span>
      <span>{one.interval || one.mends ? span(one) : day(one.created_at_ms)}</span>
      {one.duration_ms !== null && (
        <span>
          {duration(parts.total)}
          <small>
            {" "}
            = {PARTS.filter((part) => parts[part] > 0)
              .map((part) => `${PART_NAMES[part]} ${duration(parts[part])}`)
              .join(" + ")}
          </small>
        </span>
      )}
      {one.size_bytes !== null && (
        <span>
          {bytes(one.size_bytes)}
          <small>, uploaded {bytes(one.uploaded_bytes)}</small>
        </span>
      )}
    </p>
  );
}
