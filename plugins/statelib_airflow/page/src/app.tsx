import { useIsFetching } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { mirrorAddress } from "./frame";
import { useHash, useRoute } from "./location";
import { CheckpointPage } from "./pages/checkpoint";
import { ComparePage } from "./pages/compare";
import { HistoryPage } from "./pages/history";
import { NamedPage } from "./pages/named";
import { OverviewPage } from "./pages/overview";
import { RunPage } from "./pages/run";
import { StoragePage, StorageOfPage } from "./pages/storage";
import { Problem } from "./parts/loaded";
import { type Route, to } from "./route";

export function App() {
  const route = useRoute();
  useArrival(route);
  return (
    <>
      <a className="skip" href="#main" onClick={skipToMain}>
        Skip to the content
      </a>
      <header className="top">
        <nav aria-label="State">
          <a href={to.overview()} className="brand" aria-current={route.at === "overview" ? "page" : undefined}>
            <Mark /> State
          </a>
          <a href={to.storage()} aria-current={route.at === "storage" && route.pipeline === null ? "page" : undefined}>
            Storage
          </a>
        </nav>
        <Activity />
      </header>
      <main id="main" tabIndex={-1}>
        <Place route={route} />
      </main>
    </>
  );
}

/** A fragment names a place here, so the skip link must not change it. */
function skipToMain(event: React.MouseEvent) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Place({ route }: { route: Route }) {
  switch (route.at) {
    case "overview":
      return <OverviewPage query={route.query} />;
    case "history":
      return <HistoryPage key={route.pipeline} pipeline={route.pipeline} query={route.query} />;
    case "checkpoint":
      return <CheckpointPage key={`${route.pipeline}/${route.id}`} pipeline={route.pipeline} id={route.id} />;
    case "named":
      return <NamedPage key={route.pipeline} pipeline={route.pipeline} name={route.name} />;
    case "compare":
      return <ComparePage key={route.pipeline} pipeline={route.pipeline} left={route.left} right={route.right} />;
    case "storage":
      return route.pipeline === null ? <StoragePage /> : <StorageOfPage key={route.pipeline} pipeline={route.pipeline} />;
    case "run":
      return <RunPage dag={route.dag} run={route.run} />;
    case "nowhere":
      return (
        <>
          <h1 tabIndex={-1}>No such page</h1>
          <Problem message={`There is nothing at ${route.text}.`} hint="Start from the overview of pipelines." />
        </>
      );
  }
}

/** Which page it is, apart from how it is sorted and filtered. */
const place = (hash: string) => hash.split("?")[0];

/** On arrival at another page: top of the page, focus on its heading, Airflow's address follows. */
function useArrival(route: Route) {
  const hash = useHash();
  const before = useRef(place(hash));
  useEffect(() => {
    mirrorAddress();
    if (before.current === place(hash)) return;
    before.current = place(hash);
    window.scrollTo(0, 0);
    document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
  }, [hash]);
  useEffect(() => {
    document.title = titleOf(route);
  });
}

export function titleOf(route: Route): string {
  const names: Record<Route["at"], () => string[]> = {
    overview: () => [],
    history: () => (route.at === "history" ? [route.pipeline] : []),
    checkpoint: () => (route.at === "checkpoint" ? [String(route.id), route.pipeline] : []),
    named: () => (route.at === "named" ? [route.name, route.pipeline] : []),
    compare: () => (route.at === "compare" ? ["Compare", route.pipeline] : []),
    storage: () => (route.at === "storage" && route.pipeline ? ["Storage", route.pipeline] : ["Storage"]),
    run: () => (route.at === "run" ? [route.run] : []),
    nowhere: () => ["No such page"],
  };
  return [...names[route.at](), "State"].join(" · ");
}

function Activity() {
  const fetching = useIsFetching() > 0;
  return (
    <span className="activity" data-on={fetching} aria-hidden="true" title={fetching ? "Asking Airflow" : "Up to date"} />
  );
}

function Mark() {
  return (
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" className="mark">
      <rect width="16" height="16" rx="4" />
      <path d="M4 5h8M4 8h8M4 11h5" />
    </svg>
  );
}
