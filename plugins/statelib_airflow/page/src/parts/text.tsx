// Times, sizes and identities as they are shown everywhere.
import type { ReactNode } from "react";
import { useNow } from "../clock";
import { ago, bytes, exactBytes, grouped, NONE, plural, utc } from "../format";
import { to } from "../route";

export function Time({ ms, absolute = true }: { ms: number | null; absolute?: boolean }) {
  const now = useNow();
  if (ms === null) return <span className="none">{NONE}</span>;
  return (
    <time className="time" dateTime={new Date(ms).toISOString()} title={utc(ms)}>
      {absolute && <span>{utc(ms).replace(" UTC", "\u00a0UTC")} </span>}
      <span className="age">{ago(ms, now)}</span>
    </time>
  );
}

export function Size({ value }: { value: number | null | undefined }) {
  if (value == null) return <span className="none">{NONE}</span>;
  return (
    <span className="number" title={exactBytes(value)}>
      {bytes(value)}
    </span>
  );
}

export function Count({ value }: { value: number | null | undefined }) {
  return value == null ? <span className="none">{NONE}</span> : <span className="number">{grouped(value)}</span>;
}

export function Id({ pipeline, id }: { pipeline: string; id: number }) {
  return (
    <a className="id" href={to.checkpoint(pipeline, id)}>
      {id}
    </a>
  );
}

/** How many of them are listed, where not all are. */
export function Shown({ shown, total, what, more }: { shown: number; total: number | null | undefined; what: string; more?: string }) {
  const all = total ?? shown;
  return (
    <span className="sub">
      {all > shown ? `the first ${grouped(shown)} of ${plural(all, what)}` : plural(all, what)}
      {more && `, ${more}`}
    </span>
  );
}

export function Facts({ children, label }: { children: ReactNode; label: string }) {
  return (
    <dl className="facts" aria-label={label}>
      {children}
    </dl>
  );
}

export function Fact({ name, children, wide }: { name: string; children: ReactNode; wide?: boolean }) {
  return (
    <div className={wide ? "fact wide" : "fact"}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Section(props: { title: string; id: string; aside?: ReactNode; children: ReactNode }) {
  return (
    <section aria-labelledby={props.id} className="section">
      <div className="section-head">
        <h2 id={props.id}>{props.title}</h2>
        {props.aside}
      </div>
      {props.children}
    </section>
  );
}
