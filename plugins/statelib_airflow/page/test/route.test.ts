import { describe, expect, it } from "vitest";
import { parse, to } from "../src/route";

describe("places", () => {
  it.each([
    [to.overview(), { at: "overview" }],
    ["", { at: "overview" }],
    [to.history("route_delays", { state: "ABORTED", q: "a b" }), { at: "history", pipeline: "route_delays", query: { state: "ABORTED", q: "a b" } }],
    [to.checkpoint("route_delays", 41), { at: "checkpoint", pipeline: "route_delays", id: 41 }],
    [to.named("route_delays", "head"), { at: "named", pipeline: "route_delays", name: "head" }],
    [to.named("a/b", "latest"), { at: "named", pipeline: "a/b", name: "latest" }],
    [to.compare("route_delays", 7, 9), { at: "compare", pipeline: "route_delays", left: 7, right: 9 }],
    [to.compare("route_delays", 7, null), { at: "compare", left: 7, right: null }],
    [to.storage(), { at: "storage", pipeline: null }],
    [to.storage("route_delays"), { at: "storage", pipeline: "route_delays" }],
    [to.history("a/b?c#d"), { at: "history", pipeline: "a/b?c#d" }],
  ])("%s leads back to itself", (hash, route) => {
    expect(parse(hash)).toMatchObject(route);
  });

  it("finds the pipeline of a DAG", () => {
    expect(parse("#/dag/route_delays.checkpoint")).toMatchObject({ at: "history", pipeline: "route_delays" });
    expect(parse("#/dag/a.restore.dispose")).toMatchObject({ at: "history", pipeline: "a.restore" });
    expect(parse("#/dag/a.mend")).toMatchObject({ at: "history", pipeline: "a" });
    expect(parse("#/run/a.mend/manual__1")).toMatchObject({ at: "run", dag: "a.mend", run: "manual__1" });
    expect(parse("#/dag/state_cleanup")).toMatchObject({ at: "overview" });
  });

  it("shows all pipelines for a group, whose runs take a checkpoint of each", () => {
    expect(parse("#/dag/shop.group")).toMatchObject({ at: "overview" });
    expect(parse("#/run/shop.group/scheduled__2013-01-08")).toMatchObject({ at: "overview" });
  });

  it("keeps a run's id as it is, encoded or not", () => {
    const run = "scheduled__2013-01-08T00:00:00+00:00";
    for (const said of [run, encodeURIComponent(run)]) {
      expect(parse(`#/run/route_delays.checkpoint/${said}`)).toMatchObject({ at: "run", dag: "route_delays.checkpoint", run });
    }
  });

  it.each(["#/p/x/c/0", "#/p/x/c/-1", "#/p/x/c/1e3", "#/p/x/y", "#/elsewhere", "#/p/x/c/1/2"])("%s is nowhere", (hash) => {
    expect(parse(hash).at).toBe("nowhere");
  });

  it("survives what is not an address", () => {
    expect(parse("#/p/%E0%A4%A")).toMatchObject({ at: "history", pipeline: "%E0%A4%A" });
  });
});
