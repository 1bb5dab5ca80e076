// Thin bars within a line of text: the parts of a whole. What they show stands beside them as text.
import type { CheckpointRow } from "../api";
import { PARTS, split } from "./scale";
import { KINDS, partsOf, type Sizes } from "./storage";

export function Parts({ parts, whole }: { parts: [className: string, value: number][]; whole?: number }) {
  const sum = whole ?? parts.reduce((total, [, value]) => total + value, 0);
  if (!(sum > 0)) return null;
  return (
    <span className="parts" aria-hidden="true">
      {parts.map(([className, value]) => value > 0 && <i key={className} className={className} style={{ width: `${(value / sum) * 100}%` }} />)}
    </span>
  );
}

export function DurationBar({ checkpoint, longest }: { checkpoint: CheckpointRow; longest?: number }) {
  const parts = split(checkpoint);
  return <Parts parts={PARTS.map((part) => [part, parts[part]])} {...(longest !== undefined && { whole: longest })} />;
}

export function StorageBar({ sizes, most }: { sizes: Sizes; most?: number }) {
  const parts = partsOf(sizes);
  return <Parts parts={KINDS.map(({ key }) => [key, parts[key]])} {...(most !== undefined && { whole: most })} />;
}
