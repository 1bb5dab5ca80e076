// Entries of a state by key group, and where subtasks begin.
import { useState } from "react";
import type { SubtaskFacts } from "../api";
import { factor, grouped, percent } from "../format";
import { cursor, Figure, useWidth } from "./figure";
import { binned, spread } from "./scale";

const MOST_CELLS = 512;
const MOST_COLUMNS = 32;
const PAD = 1;

export function HeatMap({ title, entries, subtasks }: { title: string; entries: number[]; subtasks: SubtaskFacts[] }) {
  const { size, sums } = binned(entries, MOST_CELLS);
  const { least, median, most, empty, skew } = spread(entries);
  const facts: [string, string][] = [
    ["least", grouped(least)],
    ["median", grouped(median)],
    ["most", grouped(most)],
    ["empty", `${grouped(empty)} of ${grouped(entries.length)}`],
    ["fullest against mean", factor(skew)],
  ];
  return (
    <Figure
      title={title}
      note={size > 1 ? `${grouped(size)} key groups a cell` : `${grouped(entries.length)} key groups`}
      numbers={{
        head: [size > 1 ? "Key groups" : "Key group", "Subtask", "Entries"],
        rows: sums.map((sum, at) => [nameOf(at, size, entries.length), ownerOf(at * size, subtasks) ?? "–", grouped(sum)]),
      }}
    >
      <div className="heat-and-spread">
        <Cells sums={sums} size={size} total={entries.length} subtasks={subtasks} title={title} />
        <dl className="spread" aria-label="Entries a key group">
          {facts.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      </div>
    </Figure>
  );
}

const nameOf = (cell: number, size: number, total: number) =>
  size === 1 ? String(cell) : `${cell * size}–${Math.min((cell + 1) * size, total) - 1}`;

export function ownerOf(keyGroup: number, subtasks: SubtaskFacts[]): number | null {
  return subtasks.find(({ key_groups: groups }) => groups && groups[0] <= keyGroup && keyGroup <= groups[1])?.subtask ?? null;
}

/** Columns that are a power of two, so that key groups line up whatever the width. */
export function columnsFor(width: number, cells: number): number {
  const fit = Math.min(MOST_COLUMNS, Math.max(8, Math.floor(width / 17)));
  return Math.min(cells, 2 ** Math.floor(Math.log2(fit)));
}

function Cells(props: { sums: number[]; size: number; total: number; subtasks: SubtaskFacts[]; title: string }) {
  const { sums, size, total, subtasks } = props;
  const [attach, width] = useWidth(640);
  const [at, setAt] = useState(0);
  const [looking, setLooking] = useState(false);
  const columns = columnsFor(width, sums.length);
  const side = Math.min(24, width / columns);
  const most = Math.max(...sums, 1);
  const all = sums.reduce((sum, value) => sum + value, 0);
  const value = sums[at] ?? 0;
  const owner = ownerOf(at * size, subtasks);
  const said = `key group${size > 1 ? "s" : ""} ${nameOf(at, size, total)}: ${grouped(value)} entries${owner === null ? "" : `, subtask ${owner}`}`;
  const height = Math.ceil(sums.length / columns) * side;
  const hit = (event: React.PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    const cell = Math.floor((event.clientY - box.top) / side) * columns + Math.floor((event.clientX - box.left) / side);
    setLooking(true);
    setAt(Math.min(sums.length - 1, Math.max(0, cell)));
  };
  return (
    <div ref={attach} className="heat">
      <div
        className="walk fit"
        {...cursor({ label: props.title, count: sums.length, at, row: columns, value: said, onMove: setAt })}
        onFocus={() => setLooking(true)}
        onPointerMove={hit}
        onPointerDown={hit}
      >
        <svg width={columns * side} height={height} aria-hidden="true">
          {sums.map((sum, cell) => (
            <Cell key={cell} x={(cell % columns) * side} y={Math.floor(cell / columns) * side} side={side} share={sum / most} />
          ))}
          {subtasks.slice(1).map(({ subtask, key_groups: groups }) => {
            if (!groups) return null;
            const cell = Math.floor(groups[0] / size);
            const x = (cell % columns) * side;
            const y = Math.floor(cell / columns) * side;
            return <path key={subtask} className="border" d={`M${x + 0.5} ${y}v${side}`} />;
          })}
          {looking && <rect className="cursor" x={(at % columns) * side} y={Math.floor(at / columns) * side} width={side} height={side} rx={3} />}
        </svg>
      </div>
      <p className="readout">
        <span className="ramp" aria-hidden="true">
          0 <i /> {grouped(most)}
        </span>
        {looking && (
          <span>
            {said} <small>{all > 0 && percent(value / all)}</small>
          </span>
        )}
      </p>
    </div>
  );
}

function Cell({ x, y, side, share }: { x: number; y: number; side: number; share: number }) {
  const level = share === 0 ? 0 : Math.max(8, Math.round(share * 100));
  const style = share === 0 ? undefined : { fill: `color-mix(in oklab, var(--heat-most) ${level}%, var(--heat-least))` };
  return <rect className={share === 0 ? "cell none" : "cell"} x={x + PAD} y={y + PAD} width={side - 2 * PAD} height={side - 2 * PAD} rx={2.5} {...(style && { style })} />;
}
