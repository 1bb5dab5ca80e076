// Storage over time: what lies there stacked by what it is for, and how much more it is than the state itself.
import { useState } from "react";
import type { StoragePoint } from "../api";
import { bytes, day, factor, plural, round, utc } from "../format";
import { cursor, Figure, useWidth } from "./figure";
import { ticks } from "./scale";
import { KINDS, partsOf, totalOf } from "./storage";

const LEFT = 62;
const RIGHT = 12;
const TOP = 14;
const PANEL = 150;
const SMALL = 56;
const GAP = 30;
const BOTTOM = 20;
const HEIGHT = TOP + PANEL + GAP + SMALL + BOTTOM;

export function StorageAreas({ title, samples }: { title: string; samples: StoragePoint[] }) {
  return (
    <Figure
      title={title}
      note={plural(samples.length, "sample")}
      legend={[...KINDS.map(({ key, name }): [string, string] => [key, name]), ["amplification", "amplification"]]}
      numbers={{
        head: ["At", ...KINDS.map(({ name }) => name), "Amplification"],
        rows: samples.map((one) => [utc(one.at_ms), ...KINDS.map(({ key }) => bytes(partsOf(one)[key])), factor(one.amplification)]),
      }}
    >
      <Chart samples={samples} />
    </Figure>
  );
}

function Chart({ samples }: { samples: StoragePoint[] }) {
  const [attach, width] = useWidth(640);
  const [chosen, setChosen] = useState<number | null>(null);
  const first = samples[0];
  const last = samples.at(-1);
  if (!first || !last) return null;
  const at = Math.min(chosen ?? samples.length - 1, samples.length - 1);
  const under = samples[at] ?? last;
  const span = Math.max(last.at_ms - first.at_ms, 1);
  const short = (ms: number) => (span < 2 * 86_400_000 ? utc(ms).slice(0, span < 600_000 ? 19 : 16) : day(ms));
  const x = (ms: number) => LEFT + ((ms - first.at_ms) / span) * (width - LEFT - RIGHT);
  const hit = (event: React.PointerEvent) => {
    const aim = event.clientX - event.currentTarget.getBoundingClientRect().left;
    const away = samples.map((one) => Math.abs(x(one.at_ms) - aim));
    setChosen(away.indexOf(Math.min(...away)));
  };
  return (
    <div ref={attach} className="areas">
      <div
        className="walk"
        {...cursor({ label: "Storage over time", count: samples.length, at, value: spoken(under), onMove: setChosen })}
        onPointerMove={hit}
        onPointerDown={hit}
        onPointerLeave={(event) => event.pointerType === "mouse" && setChosen(null)}
      >
        <svg width={width} height={HEIGHT} aria-hidden="true">
          <Stack samples={samples} x={x} width={width} />
          <Amplification samples={samples} x={x} width={width} />
          {chosen !== null && <line className="cursor" x1={x(under.at_ms)} x2={x(under.at_ms)} y1={TOP} y2={HEIGHT - BOTTOM} />}
          <text className="tick" x={LEFT} y={HEIGHT - 4}>
            {short(first.at_ms)}
          </text>
          <text className="tick" x={width - RIGHT} y={HEIGHT - 4} textAnchor="end">
            {short(last.at_ms)}
          </text>
        </svg>
      </div>
      <p className="readout">
        <span>{utc(under.at_ms)}</span>
        {KINDS.map(({ key, name }) => (
          <span key={key}>
            <i className={`swatch ${key}`} aria-hidden="true" /> {name} {bytes(partsOf(under)[key])}
          </span>
        ))}
        <span>amplification {factor(under.amplification)}</span>
      </p>
    </div>
  );
}

function spoken(one: StoragePoint): string {
  const parts = KINDS.map(({ key, name }) => `${name} ${bytes(partsOf(one)[key])}`);
  return [utc(one.at_ms), ...parts, `amplification ${factor(one.amplification)}`].join(", ");
}

/** What was sampled stands until the next sample. */
export function steps(points: [number, number][]): [number, number][] {
  return points.flatMap(([x, y], at): [number, number][] => {
    const before = points[at - 1];
    return before ? [[x, before[1]], [x, y]] : [[x, y]];
  });
}

interface PanelProps {
  samples: StoragePoint[];
  x: (ms: number) => number;
  width: number;
}

function Stack({ samples, x, width }: PanelProps) {
  const marks = ticks(Math.max(...samples.map(totalOf), 1), 4, 1024);
  const most = marks.at(-1) ?? 1;
  const y = (value: number) => TOP + PANEL - (value / most) * PANEL;
  const floor = samples.map(() => 0);
  const areas = KINDS.map(({ key }) => {
    const below = [...floor];
    samples.forEach((one, at) => {
      floor[at] = (floor[at] ?? 0) + partsOf(one)[key];
    });
    const edge = (heights: number[]) => steps(samples.map((one, at) => [x(one.at_ms), y(heights[at] ?? 0)]));
    const up = edge(floor);
    const down = edge(below).reverse();
    return <polygon key={key} className={key} points={[...up, ...down].map(String).join(" ")} />;
  });
  return (
    <g>
      <Grid marks={marks} y={y} width={width} show={bytes} />
      {areas}
    </g>
  );
}

function Amplification({ samples, x, width }: PanelProps) {
  const top = TOP + PANEL + GAP;
  const marks = ticks(Math.max(...samples.map((one) => one.amplification ?? 0), 1), 2);
  const most = marks.at(-1) ?? 1;
  const y = (value: number) => top + SMALL - (value / most) * SMALL;
  const known = samples.flatMap((one): [number, number][] => (one.amplification === null ? [] : [[x(one.at_ms), y(one.amplification)]]));
  return (
    <g>
      <text className="axis-name" x={LEFT} y={top - 9}>
        amplification
      </text>
      <Grid marks={marks} y={y} width={width} show={(value) => `${value}×`} />
      <polyline className="amplification" points={steps(known).map(String).join(" ")} />
    </g>
  );
}

function Grid({ marks, y, width, show }: { marks: number[]; y: (value: number) => number; width: number; show: (value: number) => string }) {
  return (
    <>
      {marks.map((mark) => (
        <g key={mark}>
          <line className="grid" x1={LEFT} x2={width - RIGHT} y1={y(mark)} y2={y(mark)} />
          <text className="tick" x={LEFT - 8} y={y(mark) + 3.5} textAnchor="end">
            {mark === 0 ? "0" : round(show(mark))}
          </text>
        </g>
      ))}
    </>
  );
}
