// What stands above every page of one pipeline.
import type { ReactNode } from "react";
import type { PipelineRow } from "../api";
import { count, grouped } from "../format";
import { HealthBadge } from "../parts/badge";
import { to } from "../route";

export function PipelineHead(props: { name: string; pipeline: PipelineRow | null; at: "history" | "storage"; actions?: ReactNode }) {
  const { name, pipeline, at, actions } = props;
  return (
    <>
      <Trail steps={[["Pipelines", to.overview()]]} />
      <div className="page-head">
        <div className="names">
          <h1 tabIndex={-1}>{name}</h1>
          {pipeline && <HealthBadge pipeline={pipeline} />}
        </div>
        {actions && <div className="actions">{actions}</div>}
      </div>
      {pipeline?.description && <p className="lead">{pipeline.description}</p>}
      {pipeline && pipeline.error === null && <Makeup pipeline={pipeline} />}
      <nav className="tabs" aria-label={name}>
        <a href={to.history(name)} aria-current={at === "history" ? "page" : undefined}>
          History
        </a>
        <a href={to.storage(name)} aria-current={at === "storage" ? "page" : undefined}>
          Storage
        </a>
      </nav>
      {pipeline?.error && (
        <div className="notice bad" role="alert">
          Its file does not load: {pipeline.error}
        </div>
      )}
    </>
  );
}

function Makeup({ pipeline }: { pipeline: PipelineRow }) {
  const pieces: [string, ReactNode][] = [
    ["schedule", pipeline.schedule ? <code>{pipeline.schedule}</code> : "by hand"],
    ["backend", pipeline.backend],
    ["strategy", pipeline.strategy],
    ["parallelism", `${count(pipeline.parallelism)} of ${count(pipeline.max_parallelism)}`],
    ["generation", grouped(pipeline.generation)],
    ["states", pipeline.states.map((state) => <code key={state.name} title={`${state.kind} · ${state.type}`}>{state.name}</code>)],
  ];
  return (
    <dl className="makeup" aria-label="Pipeline">
      {pieces.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Trail({ steps }: { steps: [name: string, href: string][] }) {
  return (
    <nav className="trail" aria-label="Way here">
      <ol>
        {steps.map(([name, href]) => (
          <li key={href}>
            <a href={href}>{name}</a>
          </li>
        ))}
      </ol>
    </nav>
  );
}
