// The API with made-up answers, for `vite --mode mock` and `vite preview --mode mock`. It is no part of what is shipped.
// `?fault=500` or `?slow=1` behind the page's address (before the fragment) shows errors and skeletons.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Connect, Plugin } from "vite";
import type { CheckpointRow } from "../src/api";
import { comparisonOf, detailOf, HISTORIES, NOW, pipelines, storageOf, tablesOf } from "./data.ts";

class Missing extends Error {}

export function mock(): Plugin {
  const use = ({ middlewares }: { middlewares: Connect.Server }) => void middlewares.use("/api", answer);
  return { name: "mock-api", configureServer: use, configurePreviewServer: use };
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  const asked = new URL(request.url ?? "/", "http://localhost");
  const from = new URL(request.headers.referer ?? "http://localhost").searchParams;
  const send = (status: number, body: unknown) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  };
  const reply = () => {
    if (from.get("fault")) return send(Number(from.get("fault")), { kind: "catalog-down", message: "The catalog does not answer: connection to 127.0.0.1:5432 refused.", hint: "Start PostgreSQL, or see STATELIB_CATALOG; then retry." });
    if (from.get("empty")) return send(200, { pipelines: [], checkpoints: [], total: 0, now_ms: NOW });
    try {
      send(200, found(asked.pathname.split("/").filter(Boolean).map(decodeURIComponent), asked.searchParams));
    } catch (error) {
      if (!(error instanceof Missing)) throw error;
      send(404, { kind: "no-checkpoint", message: error.message, hint: "statelib checkpoints list" });
    }
  };
  setTimeout(reply, from.get("slow") ? 60_000 : 0);
}

function one(name: string, id: string | undefined): CheckpointRow {
  const checkpoint = HISTORIES.get(name)?.find((other) => other.checkpoint_id === Number(id));
  if (!checkpoint) throw new Missing(`${name} has no checkpoint ${id}.`);
  return checkpoint;
}

function found(path: string[], query: URLSearchParams): unknown {
  const [first, name = "", what, id] = path;
  if (first === "me") return { name: "admin" };
  if (first === "storage") return { pipelines: [...HISTORIES.keys()].map((key) => storageOf(key).now), now_ms: NOW };
  if (first === "runs") return { pipeline: "aircraft_activity", checkpoint_id: 143 };
  if (path.length === 1) return { pipelines: pipelines(), now_ms: NOW };
  if (what === "storage") return storageOf(name);
  if (what === "tables") return { tables: tablesOf(name), now_ms: NOW };
  if (what === "compare") return comparisonOf(one(name, query.get("left") ?? ""), one(name, query.get("right") ?? ""));
  return id ? detailOf(one(name, id)) : pageOf(HISTORIES.get(name) ?? [], query);
}

function pageOf(history: CheckpointRow[], query: URLSearchParams) {
  const by = (query.get("sort") ?? "checkpoint_id") as "checkpoint_id";
  const sign = query.get("order") === "asc" ? 1 : -1;
  const [state, kind, q] = [query.get("state"), query.get("kind"), query.get("q")];
  const rows = history
    .filter((row) => (!state || state.split(",").includes(row.state)) && (!kind || row.kind === kind))
    .filter((row) => !q || `${row.checkpoint_id} ${row.note ?? ""} ${row.reason ?? ""}`.includes(q))
    .toSorted((a, b) => sign * ((a[by] ?? -1) - (b[by] ?? -1)));
  const offset = Number(query.get("offset") ?? 0);
  return { total: rows.length, checkpoints: rows.slice(offset, offset + Number(query.get("limit") ?? 50)), now_ms: NOW };
}
