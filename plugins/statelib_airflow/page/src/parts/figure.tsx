// What all charts share: a caption, a legend, the same numbers as a table, and a cursor that mouse and keys move.
import { type KeyboardEvent, type ReactNode, useCallback, useRef, useState } from "react";

export interface Numbers {
  head: string[];
  rows: (string | number)[][];
}

export function Figure(props: { title: string; note?: ReactNode; legend?: [className: string, name: string][]; numbers: Numbers; children: ReactNode }) {
  const [asTable, setAsTable] = useState(false);
  return (
    <figure className="figure" aria-label={props.title}>
      <figcaption>
        <span className="title">{props.title}</span>
        {props.note && <span className="note">{props.note}</span>}
        {props.legend && !asTable && (
          <span className="legend">
            {props.legend.map(([className, name]) => (
              <span key={className}>
                <i className={`swatch ${className}`} aria-hidden="true" />
                {name}
              </span>
            ))}
          </span>
        )}
        <button type="button" className="button small" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {asTable ? "Chart" : "Table"}
        </button>
      </figcaption>
      {asTable ? <NumbersTable caption={props.title} numbers={props.numbers} /> : props.children}
    </figure>
  );
}

function NumbersTable({ caption, numbers }: { caption: string; numbers: Numbers }) {
  return (
    <div className="scroll" role="region" aria-label={`${caption}, as a table`} tabIndex={0}>
      <table className="plain">
        <caption className="hidden">{caption}</caption>
        <thead>
          <tr>
            {numbers.head.map((name, at) => (
              <th key={name} scope="col" className={at ? "num" : ""}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {numbers.rows.map(([name, ...cells]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {cells.map((cell, at) => (
                <td key={at} className="num">
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The width that an element has, in CSS pixels. */
export function useWidth(initial: number): [(element: Element | null) => void, number] {
  const [width, setWidth] = useState(initial);
  const observer = useRef<ResizeObserver | null>(null);
  const attach = useCallback((element: Element | null) => {
    observer.current?.disconnect();
    observer.current = null;
    if (!element || typeof ResizeObserver === "undefined") return;
    observer.current = new ResizeObserver(([entry]) => {
      if (entry && entry.contentRect.width > 0) setWidth(Math.floor(entry.contentRect.width));
    });
    observer.current.observe(element);
  }, []);
  return [attach, width];
}

/** Moves `at` within 0..count-1; `row` is how far up and down go. Returns whether the key was one of ours. */
export function moved(key: string, at: number, count: number, row: number): number | null {
  const steps: Record<string, number> = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -row,
    ArrowDown: row,
    PageUp: -10,
    PageDown: 10,
    Home: -count,
    End: count,
  };
  const step = steps[key];
  return step === undefined ? null : Math.min(count - 1, Math.max(0, at + step));
}

interface CursorProps {
  label: string;
  count: number;
  at: number;
  row?: number;
  /** What is under the cursor, for those who listen. */
  value: string;
  onMove: (at: number) => void;
  onEnter?: (() => void) | undefined;
}

/** The attributes of a chart that one can walk through with the arrow keys. */
export function cursor({ label, count, at, row = 1, value, onMove, onEnter }: CursorProps) {
  return {
    role: "slider",
    tabIndex: 0,
    "aria-label": label,
    "aria-valuemin": 0,
    "aria-valuemax": Math.max(count - 1, 0),
    "aria-valuenow": at,
    "aria-valuetext": value,
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key === "Enter" && onEnter) return onEnter();
      const next = moved(event.key, at, count, row);
      if (next === null) return;
      event.preventDefault();
      onMove(next);
    },
  };
}
