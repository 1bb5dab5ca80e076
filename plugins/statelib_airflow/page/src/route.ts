// The page's places, as the fragment of its address: every one can be linked to.

export type Route =
  | { at: "overview"; query: Query }
  | { at: "history"; pipeline: string; query: Query }
  | { at: "checkpoint"; pipeline: string; id: number; query: Query }
  | { at: "named"; pipeline: string; name: Named; query: Query }
  | { at: "compare"; pipeline: string; left: number | null; right: number | null; query: Query }
  | { at: "storage"; pipeline: string | null; query: Query }
  | { at: "run"; dag: string; run: string; query: Query }
  | { at: "nowhere"; text: string; query: Query };

/** What a checkpoint can be called instead of its id: the one on which the next run builds, or the newest complete one. */
export type Named = "head" | "latest";

export type Query = Record<string, string>;

const part = encodeURIComponent;

export const to = {
  overview: () => "#/",
  history: (pipeline: string, query: Query = {}) => `#/p/${part(pipeline)}${search(query)}`,
  checkpoint: (pipeline: string, id: number) => `#/p/${part(pipeline)}/c/${id}`,
  named: (pipeline: string, name: Named) => `#/p/${part(pipeline)}/c/${name}`,
  compare: (pipeline: string, left: number | null, right: number | null) =>
    `#/p/${part(pipeline)}/compare${search({ left: text(left), right: text(right) })}`,
  storage: (pipeline?: string) => (pipeline === undefined ? "#/storage" : `#/p/${part(pipeline)}/storage`),
};

const text = (id: number | null) => (id === null ? "" : String(id));

/** `?a=1&b=2` of what is not empty, in a fixed order, so that equal places have equal addresses. */
export function search(query: Query): string {
  const kept = Object.entries(query).filter(([, value]) => value !== "");
  kept.sort(([one], [other]) => (one < other ? -1 : 1));
  return kept.length ? `?${kept.map(([name, value]) => `${part(name)}=${part(value)}`).join("&")}` : "";
}

export function parse(hash: string): Route {
  const [path = "", asked = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  const query: Query = Object.fromEntries(new URLSearchParams(asked));
  const parts = path.split("/").map(decoded).filter((piece, at, all) => piece !== "" || at < all.length - 1);
  const [first, second, third, fourth] = parts;
  if (first === undefined || first === "") return { at: "overview", query };
  if (first === "storage" && parts.length === 1) return { at: "storage", pipeline: null, query };
  if (first === "dag" && second) return ofDag(second, query);
  if (first === "run" && second && third && pipelineOf(second) === null) return { at: "overview", query };
  if (first === "run" && second && third) return { at: "run", dag: second, run: parts.slice(2).join("/"), query };
  if ((first === "p" || first === "pipelines") && second) return ofPipeline(second, third, fourth, parts.length, query);
  return { at: "nowhere", text: hash, query };
}

function ofPipeline(pipeline: string, third: string | undefined, fourth: string | undefined, parts: number, query: Query): Route {
  if (parts === 2) return { at: "history", pipeline, query };
  if (parts === 3 && third === "storage") return { at: "storage", pipeline, query };
  if (parts === 3 && third === "compare") {
    return { at: "compare", pipeline, left: id(query.left), right: id(query.right), query };
  }
  if (parts === 4 && third === "c" && (fourth === "head" || fourth === "latest")) {
    return { at: "named", pipeline, name: fourth, query };
  }
  const number = id(fourth);
  if (parts === 4 && third === "c" && number !== null) return { at: "checkpoint", pipeline, id: number, query };
  return { at: "nowhere", text: `#/p/${pipeline}/${third ?? ""}`, query };
}

/** A pipeline's DAGs are `<pipeline>.checkpoint`, `.savepoint`, `.restore`, `.mend` and `.dispose`. That of a group shows the overview, as any other DAG does. */
function ofDag(dag: string, query: Query): Route {
  const pipeline = pipelineOf(dag);
  return pipeline === null ? { at: "overview", query } : { at: "history", pipeline, query };
}

export function pipelineOf(dag: string): string | null {
  return /^(.+)\.(?:checkpoint|savepoint|restore|mend|dispose)$/.exec(dag)?.[1] ?? null;
}

const id = (digits: string | undefined) => (digits && /^[1-9]\d{0,15}$/.test(digits) ? Number(digits) : null);

function decoded(piece: string): string {
  try {
    return decodeURIComponent(piece);
  } catch {
    return piece;
  }
}
