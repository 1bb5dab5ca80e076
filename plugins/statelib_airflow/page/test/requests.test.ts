import { describe, expect, it } from "vitest";
import { pathOf, refused } from "../src/requests";

describe("a request", () => {
  it("has the parameters of its route in the path and the others in the query", () => {
    expect(pathOf("pipelines", {})).toBe("pipelines");
    expect(pathOf("pipelines/{name}/compare", { right: 5, name: "a/b", left: 1 })).toBe("pipelines/a%2Fb/compare?left=1&right=5");
    expect(pathOf("runs/{dag_id}/{run_id}", { dag_id: "a.b", run_id: "x__2013-01-05T00:00:00+00:00" })).toBe(
      "runs/a.b/x__2013-01-05T00%3A00%3A00%2B00%3A00",
    );
  });
});

describe("a refusal", () => {
  it("is what the API says, or what can be said without it", () => {
    const { status, kind, message, hint } = refused(404, { kind: "no-checkpoint", message: "There is none.", hint: "list" });
    expect([status, kind, message, hint]).toEqual([404, "no-checkpoint", "There is none.", "list"]);
    expect([null, { detail: "x" }].map((body) => refused(502, body).kind)).toEqual(["bad-answer", "bad-answer"]);
    expect([401, 403].map((code) => refused(code, null).kind)).toEqual(["not-signed-in", "no-right"]);
  });
});
