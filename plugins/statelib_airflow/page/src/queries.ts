// What the pages ask for, and how often: soon again while something is pending, seldom otherwise.
import { keepPreviousData, QueryClient, useQueries, useQuery } from "@tanstack/react-query";
import {
  ApiError,
  type Checkpoint,
  type CheckpointDetail,
  type Comparison,
  getJson,
  type Pipeline,
  type StorageHistory,
  type StorageRow,
} from "./api";
import { heard } from "./clock";
import type { Query } from "./route";

export const PENDING_EVERY_MS = 3_000;
export const IDLE_EVERY_MS = 30_000;
export const PAGE_ROWS = 25;
export const CHART_ROWS = 60;

const part = encodeURIComponent;
const of = (pipeline: string) => `pipelines/${part(pipeline)}`;

/** What the server refused will be refused again; what failed on the way may pass. */
const again = (failures: number, error: Error) =>
  failures < 2 && !(error instanceof ApiError && error.status >= 400 && error.status < 500);

export const newClient = () =>
  new QueryClient({
    defaultOptions: { queries: { retry: again, staleTime: 1_000, refetchInterval: IDLE_EVERY_MS } },
  });

async function timed<T extends { now_ms?: number }>(path: string, signal: AbortSignal): Promise<T> {
  const answer = await getJson<T>(path, signal);
  if (answer.now_ms !== undefined) heard(answer.now_ms);
  return answer;
}

const every = (pending: boolean) => (pending ? PENDING_EVERY_MS : IDLE_EVERY_MS);

export interface Pipelines {
  pipelines: Pipeline[];
  now_ms: number;
}

const pipelines = {
  queryKey: ["pipelines"],
  queryFn: ({ signal }: { signal: AbortSignal }) => timed<Pipelines>("pipelines", signal),
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

export interface Page {
  total: number;
  checkpoints: Checkpoint[];
  now_ms: number;
}

const unsettled = (rows: Checkpoint[] | undefined) =>
  rows?.some((row) => row.state === "PENDING" || row.state === "DELETING") ?? false;

/** Checkpoints of a pipeline: `asked` is what the API takes, besides limit. */
export function useCheckpoints(pipeline: string, asked: Query, limit: number) {
  const parameters = new URLSearchParams({ ...asked, limit: String(limit) });
  parameters.sort();
  return useQuery({
    queryKey: ["checkpoints", pipeline, parameters.toString()],
    queryFn: ({ signal }) => timed<Page>(`${of(pipeline)}/checkpoints?${parameters}`, signal),
    refetchInterval: (query) => every(unsettled(query.state.data?.checkpoints)),
    placeholderData: keepPreviousData,
  });
}

export const useCheckpoint = (pipeline: string, id: number) =>
  useQuery({
    queryKey: ["checkpoint", pipeline, id],
    queryFn: ({ signal }) => getJson<CheckpointDetail>(`${of(pipeline)}/checkpoints/${id}`, signal),
    refetchInterval: (query) => every(unsettled(query.state.data ? [query.state.data] : [])),
  });

export const useComparison = (pipeline: string, left: number | null, right: number | null) =>
  useQuery({
    queryKey: ["compare", pipeline, left, right],
    queryFn: ({ signal }) => getJson<Comparison>(`${of(pipeline)}/compare?left=${left}&right=${right}`, signal),
    enabled: left !== null && right !== null,
    refetchInterval: false,
  });

export const useStorage = () =>
  useQuery({
    queryKey: ["storage"],
    queryFn: ({ signal }) => timed<{ pipelines: StorageRow[]; now_ms: number }>("storage", signal),
  });

export const useStorageHistories = (names: string[]) =>
  useQueries({
    queries: names.map((name) => ({
      queryKey: ["storage", name],
      queryFn: ({ signal }: { signal: AbortSignal }) => getJson<StorageHistory>(`${of(name)}/storage`, signal),
      staleTime: IDLE_EVERY_MS,
    })),
  });

export const useStorageHistory = (name: string) =>
  useQuery({
    queryKey: ["storage", name],
    queryFn: ({ signal }) => getJson<StorageHistory>(`${of(name)}/storage`, signal),
  });

export const useRun = (dag: string, run: string) =>
  useQuery({
    queryKey: ["run", dag, run],
    queryFn: ({ signal }) =>
      getJson<{ pipeline: string; checkpoint_id: number | null }>(`runs/${part(dag)}/${part(run)}`, signal),
    refetchInterval: (query) => (query.state.error ? PENDING_EVERY_MS * 2 : IDLE_EVERY_MS),
  });
