// The pages over made-up answers: what is said, what is offered, what is refused.
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { detailOf, HISTORIES, NOW, pipelines, tablesOf } from "../mock/data.ts";
import { App } from "../src/app";
import { newClient } from "../src/queries";

configure({ asyncUtilTimeout: 20_000 });

let asked: string[] = [];
let answers: (path: string) => [number, unknown];

const history = (name: string) => [...(HISTORIES.get(name) ?? [])].reverse();

function usual(path: string): [number, unknown] {
  if (path === "pipelines") return [200, { pipelines: pipelines(), now_ms: NOW }];
  const published = /^pipelines\/(\w+)\/tables$/.exec(path);
  if (published) return [200, { tables: tablesOf(published[1] ?? ""), now_ms: NOW }];
  const found = /^pipelines\/(\w+)\/checkpoints(?:\/(\d+))?/.exec(path);
  const rows = history(found?.[1] ?? "");
  const one = rows.find((row) => row.checkpoint_id === Number(found?.[2]));
  if (one) return [200, detailOf(one)];
  if (found?.[2]) return [404, { kind: "no-checkpoint", message: "There is none.", hint: "statelib checkpoints list" }];
  if (found) return [200, { total: rows.length, checkpoints: rows.slice(0, 10), now_ms: NOW }];
  return [404, { kind: "no-route", message: path, hint: "" }];
}

/** Keys and entries of a checkpoint, which differ; a page that takes one for the other shows another number. */
const COUNTED = { keys: 2039, entries: 6587, keys_changed: 680 };

/** The texts of a table's column, without its head. */
function column(table: HTMLElement, head: string): (string | null)[] {
  const [heads, ...rows] = within(table).getAllByRole("row").map((row) => [...row.children].map((cell) => cell.textContent));
  const at = heads?.indexOf(head) ?? -1;
  return rows.map((row) => row[at] ?? null);
}

beforeEach(() => {
  asked = [];
  answers = usual;
  window.scrollTo = () => {};
  vi.stubGlobal("fetch", async (url: string) => {
    const path = url.split("/api/")[1] ?? "";
    asked.push(path);
    const [status, body] = answers(path);
    return new Response(JSON.stringify(body), { status });
  });
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function show(hash: string): void {
  window.history.replaceState(null, "", hash);
  render(
    <QueryClientProvider client={newClient()}>
      <App />
    </QueryClientProvider>,
  );
}

describe("overview", () => {
  it("puts what needs somebody first", async () => {
    show("#/");
    const table = await screen.findByRole("table", { name: "Pipelines" });
    const names = within(table).getAllByRole("rowheader").map((cell) => cell.querySelector("a")?.textContent);
    expect(names).toEqual(["gate_turnarounds", "route_delays", "aircraft_activity", "carrier_streaks"]);
    expect(within(table).getByText(/no column 'air_tme'/)).toBeTruthy();
  });

  it("offers triggers only to those who may", async () => {
    show("#/");
    const row = async (name: string) => within((await screen.findByRole("link", { name })).closest("tr") as HTMLElement);
    const savepoint = (await row("aircraft_activity")).getByRole("link", { name: "Savepoint…" });
    expect(savepoint.getAttribute("target")).toBe("_top");
    expect(new URL((savepoint as HTMLAnchorElement).href).pathname).toBe("/dags/aircraft_activity.savepoint");
    expect((await row("carrier_streaks")).getByRole("link", { name: "Savepoint…" }).getAttribute("aria-disabled")).toBe("true");
  });

  it("filters, and keeps the filter in the address", async () => {
    show("#/");
    await userEvent.type(await screen.findByRole("searchbox"), "streak");
    expect(screen.getAllByRole("rowheader")).toHaveLength(1);
    expect(window.location.hash).toBe("#/?q=streak");
  });

  it("counts keys, not entries", async () => {
    const counted = pipelines().flatMap((one) => (one.head ? [{ ...one, head: { ...one.head, ...COUNTED } }] : []));
    answers = (path) => (path === "pipelines" ? [200, { pipelines: counted.slice(0, 2), now_ms: NOW }] : usual(path));
    show("#/");
    expect(column(await screen.findByRole("table", { name: "Pipelines" }), "Keys")).toEqual(["2\u202f039", "2\u202f039"]);
    const tiles = within(screen.getByRole("list", { name: "All pipelines" })).getAllByRole("listitem");
    expect(tiles.map((tile) => tile.textContent).find((text) => text?.startsWith("keys"))).toContain("keys4\u202f078");
  });
});

describe("history", () => {
  it("asks the API to sort and filter", async () => {
    show("#/p/aircraft_activity");
    await userEvent.click(await screen.findByRole("button", { name: "Duration" }));
    await userEvent.selectOptions(screen.getByLabelText("Status"), "ABORTED");
    const list = "pipelines/aircraft_activity/checkpoints?";  // The page also asks for the pipelines, every few seconds.
    const last = () => asked.findLast((path) => path.startsWith(list));
    await waitFor(() => expect(last()).toBe(`${list}limit=25&offset=0&order=desc&sort=duration_ms&state=ABORTED`));
    expect(screen.getByRole("columnheader", { name: "Duration" }).getAttribute("aria-sort")).toBe("descending");
  });

  it("compares two, no more", async () => {
    show("#/p/aircraft_activity");
    for (const id of [143, 140]) await userEvent.click(await screen.findByRole("checkbox", { name: `Choose ${id} for comparing` }));
    expect(screen.getByRole("link", { name: "Compare" }).getAttribute("href")).toBe("#/p/aircraft_activity/compare?left=140&right=143");
    expect((screen.getByRole("checkbox", { name: "Choose 139 for comparing" }) as HTMLInputElement).disabled).toBe(true);
  });

  it("counts keys and changed keys, not entries", async () => {
    const rows = history("aircraft_activity").slice(0, 1).map((row) => ({ ...row, ...COUNTED }));
    answers = (path) => (path.includes("/checkpoints?") ? [200, { total: 1, checkpoints: rows, now_ms: NOW }] : usual(path));
    show("#/p/aircraft_activity");
    const table = await screen.findByRole("table", { name: "Checkpoints of aircraft_activity" });
    expect(["Keys", "Changed"].map((head) => column(table, head))).toEqual([["2\u202f039"], ["680"]]);
  });

  it("names the day that a checkpoint mends, in its row and on its page", async () => {
    show("#/p/route_delays");
    const row = within((await screen.findByRole("link", { name: "55" })).closest("tr") as HTMLElement);
    expect(row.getByText("mends 2013-02-14")).toBeTruthy();
    await userEvent.click(row.getByRole("link", { name: "55" }));
    expect(within(await screen.findByLabelText("Facts")).getByText("mends 2013-02-14")).toBeTruthy();
  });

  it("restores only to what is complete", async () => {
    show("#/p/route_delays");
    const restore = await screen.findByRole("link", { name: "Restore… to 55" });
    expect(restore.title).toBe("Opens route_delays.restore: press Trigger there and enter checkpoint 55");
    for (const id of [58, 57, 49]) expect(screen.queryByRole("link", { name: `Restore… to ${id}` })).toBeNull();
  });

  it("shows how far each published table is behind", async () => {
    show("#/p/aircraft_activity");
    const table = await screen.findByRole("table", { name: "Published tables of aircraft_activity" });
    const [, whole, changes, broken] = within(table).getAllByRole("row").map((row) => row.textContent);
    expect(whole).toContain("Up to date139");
    expect(changes).toContain("2 checkpoints137");
    expect(broken).toContain("no Iceberg catalog 'lake' is configured");
  });

  it("shows no tables where none are published, and asks for none", async () => {
    show("#/p/route_delays");
    await screen.findByRole("table", { name: "Checkpoints of route_delays" });
    expect(screen.queryByText("Published tables")).toBeNull();
    expect(asked.filter((path) => path.endsWith("/tables"))).toEqual([]);
  });

  it("walks its chart by keys, and has its numbers as a table", async () => {
    show("#/p/aircraft_activity");
    const chart = await screen.findByRole("slider");
    const before = chart.getAttribute("aria-valuetext");
    fireEvent.keyDown(chart, { key: "ArrowLeft" });
    expect(chart.getAttribute("aria-valuetext")).not.toBe(before);
    await userEvent.click(within(screen.getByRole("figure")).getByRole("button", { name: "Table" }));
    expect(within(screen.getByRole("figure")).getByRole("table", { name: "Timeline" })).toBeTruthy();
  });
});

describe("one checkpoint", () => {
  it("says why it is held back, and offers no restore", async () => {
    show("#/p/route_delays/c/57");
    expect(await screen.findByText(/nothing builds on it/)).toBeTruthy();
    expect(screen.getByText(/expected at most 7.4 %, found 41.2 %/)).toBeTruthy();
    expect(screen.queryByRole("link", { name: /Restore…/ })).toBeNull();
  });

  it("lets a savepoint be disposed of by its DAG", async () => {
    show("#/p/aircraft_activity/c/138");
    const dispose = await screen.findByRole("link", { name: "Dispose…" });
    expect(dispose.title).toBe("Opens aircraft_activity.dispose: press Trigger there and enter savepoint 138");
    expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("Savepoint 138");
  });

  it("is found by the names head and latest", async () => {
    show("#/p/aircraft_activity/c/head");
    const head = history("aircraft_activity").find((one) => one.head)?.checkpoint_id;
    const link = await screen.findByRole("link", { name: "Link to the head" });
    expect(link.getAttribute("href")).toBe("#/p/aircraft_activity/c/head");
    expect(screen.getByRole("heading", { level: 1 }).textContent).toBe(`Checkpoint ${head}`);
    cleanup();
    show("#/p/aircraft_activity/c/latest");
    const newest = history("aircraft_activity")[0]?.checkpoint_id;
    expect((await screen.findByRole("heading", { level: 1 })).textContent).toContain(`${newest}`);
    expect(asked).toContainEqual("pipelines/aircraft_activity/checkpoints?limit=1&state=COMPLETED");
  });

  it("says that there is no head", async () => {
    show("#/p/gate_turnarounds/c/head");
    expect(await screen.findByText("gate_turnarounds has no head.")).toBeTruthy();
  });

  const answered = (changed: object) => (path: string): [number, unknown] =>
    path.endsWith("/143") ? [200, { ...detailOf(history("aircraft_activity")[0]!), ...changed }] : usual(path);

  it("counts keys apart from entries, and changed keys as a share of keys", async () => {
    answers = answered(COUNTED);
    show("#/p/aircraft_activity/c/143");
    const facts = within(await screen.findByLabelText("Facts"));
    const shown = ["Keys", "Keys changed", "Entries"].map((name) => facts.getByText(name).nextElementSibling?.textContent);
    expect(shown).toEqual(["2\u202f039", "680 33\u202f%", "6\u202f587"]);
  });

  it("shows words that only a later statelib stores", async () => {
    answers = answered({ state: "ARCHIVED", kind: "MIRROR" });
    show("#/p/aircraft_activity/c/143");
    expect(await screen.findByText("ARCHIVED")).toBeTruthy();
  });

  it("shows a subtask that has no keyed state", async () => {
    answers = answered({ subtasks: [0, 1].map((subtask) => ({ subtask, key_groups: null, restored_from: null, bytes: 0 })) });
    show("#/p/aircraft_activity/c/143");
    expect(within(await screen.findByRole("table", { name: "Subtasks" })).getAllByText("none")).toHaveLength(2);
  });

  it("lists side data with its size", async () => {
    show("#/p/route_delays/c/55");
    const name = await screen.findByText("delay_model");
    expect(name.closest("li")?.textContent).toMatch(/^side data delay_model, 2 pieces, 60\.0\sKiB$/);
  });

  it("shows the deltas of intervals as one", async () => {
    show("#/p/route_delays/c/55");
    const line = await screen.findByText(/^deltas of/);
    expect(line.textContent).toMatch(/^deltas of 2 intervals that can be mended, 2013-02-23 … 2013-02-24, 40\.0\sKiB$/);
    expect(screen.queryByText(/statelib\.delta/)).toBeNull();
  });

  it("shows what is known of one whose files are gone", async () => {
    show("#/p/aircraft_activity/c/40");
    expect(await screen.findByText(/_metadata does not exist/)).toBeTruthy();
    expect(within(screen.getByLabelText("Facts")).getByText("2013-02-09")).toBeTruthy();
  });
});

describe("trouble", () => {
  it("is told with its hint, and can be tried again", async () => {
    show("#/p/aircraft_activity/c/999");
    expect(await screen.findByText("statelib checkpoints list")).toBeTruthy();
    answers = () => [200, detailOf(history("aircraft_activity")[0]!)];
    await userEvent.click(screen.getByRole("button", { name: "Retry" }));
    expect(await screen.findByLabelText("Facts")).toBeTruthy();
  });

  it("leads to the login when nobody is signed in", async () => {
    answers = () => [401, { detail: "Not authenticated" }];
    show("#/");
    const login = await screen.findByRole("link", { name: "Sign in" });
    expect(login.getAttribute("target")).toBe("_top");
  });

  it("has a page for addresses that lead nowhere", () => {
    show("#/p/x/nothing");
    expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("No such page");
  });
});
