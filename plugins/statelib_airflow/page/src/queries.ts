// What the pages ask for, and how often: soon again while something is pending, seldom otherwise.
import { keepPreviousData, QueryClient, skipToken, useQueries, useQuery } from "@tanstack/react-query";
import type { CheckpointRow, Responses } from "./api";
import { heard } from "./clock";
import { ApiError, getJson, type Parameters } from "./requests";
import type { Query } from "./route";

export const PENDING_EVERY_MS = 3_000;
export const IDLE_EVERY_MS = 30_000;
export const PAGE_ROWS = 25;
export const CHART_ROWS = 60;

/** What the server refused will be refused again; what failed on the way may pass. */
const again = (failures: number, error: Error) =>
  failures < 2 && !(error instanceof ApiError && error.status >= 400 && error.status < 500);

export const newClient = () =>
  new QueryClient({
    defaultOptions: { queries: { retry: again, staleTime: 1_000, refetchInterval: IDLE_EVERY_MS } },
  });

/** The response of a route that has the server's clock. */
async function timed<Route extends "pipelines" | "pipelines/{name}/checkpoints" | "pipelines/{name}/tables" | "storage">(
  route: Route,
  parameters: Parameters,
  signal: AbortSignal,
): Promise<Responses[Route]> {
  const answer = await getJson(route, parameters, signal);
  heard(answer.now_ms);
  return answer;
}

const every = (pending: boolean) => (pending ? PENDING_EVERY_MS : IDLE_EVERY_MS);

const pipelines = {
  queryKey: ["pipelines"],
  queryFn: ({ signal }: { signal: AbortSignal }) => timed("pipelines", {}, signal),
};

export const usePipelines = () =>
  useQuery({
    ...pipelines,
    refetchInterval: (query) => every(query.state.data?.pipelines.some((one) => one.pending !== null) ?? false),
  });

export function usePipeline(name: string) {
  const query = usePipelines();
  return { query, pipeline: query.data?.pipelines.find((one) => one.name === name) ?? null };
}

const unsettled = (rows: CheckpointRow[] | undefined) =>
  rows?.some((row) => row.state === "PENDING" || row.state === "DELETING") ?? false;

/** Checkpoints of a pipeline: `asked` is what the API takes, besides limit. */
export function useCheckpoints(pipeline: string, asked: Query, limit: number) {
  const parameters = { ...asked, name: pipeline, limit };
  return useQuery({
    queryKey: ["checkpoints", parameters],
    queryFn: ({ signal }) => timed("pipelines/{name}/checkpoints", parameters, signal),
    refetchInterval: (query) => every(unsettled(query.state.data?.checkpoints)),
    placeholderData: keepPreviousData,
  });
}

export const useCheckpoint = (pipeline: string, id: number) =>
  useQuery({
    queryKey: ["checkpoint", pipeline, id],
    queryFn: ({ signal }) => getJson("pipelines/{name}/checkpoints/{checkpoint_id}", { name: pipeline, checkpoint_id: id }, signal),
    refetchInterval: (query) => every(unsettled(query.state.data ? [query.state.data] : [])),
  });

export const useComparison = (pipeline: string, left: number | null, right: number | null) =>
  useQuery({
    queryKey: ["compare", pipeline, left, right],
    queryFn:
      left === null || right === null
        ? skipToken
        : ({ signal }) => getJson("pipelines/{name}/compare", { name: pipeline, left, right }, signal),
    refetchInterval: false,
  });

export const useTables = (pipeline: string) =>
  useQuery({
    queryKey: ["tables", pipeline],
    queryFn: ({ signal }) => timed("pipelines/{name}/tables", { name: pipeline }, signal),
  });

export const useStorage = () =>
  useQuery({
    queryKey: ["storage"],
    queryFn: ({ signal }) => timed("storage", {}, signal),
  });

export const useStorageHistories = (names: string[]) =>
  useQueries({
    queries: names.map((name) => ({
      queryKey: ["storage", name],
      queryFn: ({ signal }: { signal: AbortSignal }) => getJson("pipelines/{name}/storage", { name }, signal),
      staleTime: IDLE_EVERY_MS,
    })),
  });

export const useStorageHistory = (name: string) =>
  useQuery({
    queryKey: ["storage", name],
    queryFn: ({ signal }) => getJson("pipelines/{name}/storage", { name }, signal),
  });

export const useRun = (dag: string, run: string) =>
  useQuery({
    queryKey: ["run", dag, run],
    queryFn: ({ signal }) => getJson("runs/{dag_id}/{run_id}", { dag_id: dag, run_id: run }, signal),
    refetchInterval: (query) => (query.state.error ? PENDING_EVERY_MS * 2 : IDLE_EVERY_MS),
  });
