// The three states that data can be in besides being there: on its way, refused, nothing.
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { airflowUrl, ApiError } from "../requests";

export function Loaded<T>(props: {
  query: UseQueryResult<T>;
  what: string;
  rows?: number;
  children: (data: T) => ReactNode;
}) {
  const { query, what, rows = 6, children } = props;
  if (query.data !== undefined) {
    return (
      <>
        {query.error && <Outdated query={query} />}
        {children(query.data)}
      </>
    );
  }
  if (query.error) return <Refused error={query.error} retry={() => void query.refetch()} />;
  return <Skeleton what={what} rows={rows} />;
}

export function Skeleton({ what, rows }: { what: string; rows: number }) {
  return (
    <div className="skeleton" role="status" aria-busy="true">
      <span className="hidden">Loading {what}</span>
      {Array.from({ length: rows }, (_, at) => (
        <span key={at} className="bone" style={{ width: `${96 - ((at * 37) % 30)}%` }} />
      ))}
    </div>
  );
}

function Outdated({ query }: { query: UseQueryResult<unknown> }) {
  return (
    <div className="notice warn" role="status">
      <span>Not up to date: {query.error?.message}</span>
      <button type="button" className="button small" onClick={() => void query.refetch()}>
        Retry
      </button>
    </div>
  );
}

export function Refused({ error, retry }: { error: Error; retry?: () => void }) {
  const known = error instanceof ApiError;
  return (
    <Problem
      message={error.message}
      hint={known ? error.hint : "Reload the page; if it stays, this is a fault of the page."}
      kind={known ? error.kind : "page"}
    >
      {known && error.status === 401 && (
        <a className="button" target="_top" href={airflowUrl("auth/login/")}>
          Sign in
        </a>
      )}
      {retry && (
        <button type="button" className="button" onClick={retry}>
          Retry
        </button>
      )}
    </Problem>
  );
}

export function Problem(props: { message: string; hint?: string | undefined; kind?: string; children?: ReactNode }) {
  return (
    <div className="problem" role="alert">
      <p className="what">{props.message}</p>
      {props.hint && <p className="hint">{props.hint}</p>}
      <div className="actions">
        {props.children}
        {props.kind && <code className="kind">{props.kind}</code>}
      </div>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p className="what">{title}</p>
      {children && <p className="hint">{children}</p>}
    </div>
  );
}
