"""The page's back end in a real Airflow: the rights, the answers and the errors of its routes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from statelib_airflow.api.routes import router

from statelib.flows.publication.steps import publish_tables
from statelib.flows.wiring import Deployment
from tests.integration.state_page import QUARANTINED, REPORTED, ROLES, RUN, Answer, Server, page_world, state_page

SETTLED = {"path": "index.html", "dag_id": "sales.checkpoint", "run_id": "nobody's", "checkpoint_id": "1"}
NEEDED = {"/api/pipelines/{name}/compare": "?left=1&right=2"}
REPORT = f"/statelib/api/pipelines/sales/checkpoints/{REPORTED}/report/"


@dataclass(frozen=True)
class World:
    server: Server
    deployment: Deployment
    root: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("page")
    deployment = page_world(root / "world")
    assets = root / "dist" / "assets"
    assets.mkdir(parents=True)
    (assets / "page-abc.js").write_text("void 0")
    (assets / "page-abc.css").write_text("b {}")
    (assets / "stolen.js").symlink_to(deployment.catalog_url.removeprefix("sqlite:///"))
    (root / "dist" / "index.html").write_text("<title>State</title>")
    with state_page(root, deployment) as server:
        yield World(server, deployment, root)


@pytest.fixture
def server(world: World) -> Server:
    return world.server


def path_of(route: str, pipeline: str) -> str:
    """Return a path of the route with existing parameters."""
    parts = {**SETTLED, "name": pipeline, "dag_id": f"{pipeline}.checkpoint"}
    if "report" in route:
        parts |= {"checkpoint_id": str(REPORTED)}
    if "/assets/" in route or "/report/" in route:
        parts |= {"path": "page-abc.js" if "/assets/" in route else ""}
    filled = re.sub(r"\{(\w+)(:path)?\}", lambda match: quote(parts[match[1]]), route)
    return f"/statelib{filled}{NEEDED.get(route, '')}"


def test_every_route_checks_the_user_and_the_rights(server: Server) -> None:
    """The table of rights is made from all routes of the app, so that it includes a new one automatically."""
    assert len(server.routes) >= 11
    readers = {"vera", "eddie", "olga", "ada"}
    seen = {}
    for route, methods in server.routes:
        assert methods == ["GET"], "nothing on this page changes anything"
        path = path_of(route, "sales")
        of_pipeline = "{name}" in route or "{dag_id}" in route
        for user in (None, *ROLES):
            answer = server.call(path, user)
            may = {"tom": not of_pipeline, "gus": "{dag_id}" not in route}
            allowed = user in readers or may.get(str(user), False)
            expected = 401 if user is None else 200 if allowed else 403
            seen[route, user] = (answer.status, expected)
            assert answer.status != 200 or answer.headers["content-security-policy"]
    assert {key: result for key, result in seen.items() if result[0] != result[1]} == {}


def test_every_response_has_the_shape_that_its_route_declares(server: Server) -> None:
    """It has each declared key and no other, with values of the declared types."""
    for route in router.routes:
        assert isinstance(route, APIRoute)
        shape: TypeAdapter[object] = TypeAdapter(route.response_model)
        answer = server.call(path_of(route.path, "sales"), "vera")
        assert shape.dump_python(shape.validate_json(answer.body), mode="json") == answer.json, route.path


def test_no_method_changes_anything(server: Server) -> None:
    for route, _ in server.routes:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert server.call(path_of(route, "sales"), "ada", method).status == 405


def test_a_user_of_one_pipeline_sees_only_that_one(server: Server) -> None:
    assert [p["name"] for p in server.get("pipelines", "tom")["pipelines"]] == ["tours"]
    assert [p["name"] for p in server.get("storage", "tom")["pipelines"]] == ["tours"]
    assert server.get("pipelines/tours/checkpoints", "tom")["total"] == 1
    answer = server.call("/statelib/api/pipelines/no-such/checkpoints", "tom")
    assert answer.status == 403, "what is not there and what is not allowed look the same"
    assert server.call("/statelib/api/pipelines/no-such/checkpoints", "vera").json["kind"] == "no-pipeline"


def test_the_savepoint_dag_of_a_pipeline_in_a_group_is_enough_to_see_it(server: Server) -> None:
    assert [p["name"] for p in server.get("pipelines", "gus")["pipelines"]] == ["sales"]
    answer = server.call(f"/statelib/api/runs/sales.checkpoint/{quote(RUN)}", "gus")
    assert (answer.status, answer.json["message"]) == (403, "you may not read the DAG sales.checkpoint")


def test_the_answer_states_who_may_trigger_a_dag(server: Server) -> None:
    may = {user: server.get("pipelines", user)["pipelines"][-1]["may"]["trigger"] for user in ("vera", "eddie", "ada")}
    assert may == {"vera": False, "eddie": True, "ada": True}


def test_only_valid_sessions_of_airflow_are_accepted(server: Server) -> None:
    """A session is the cookie of the browser or a bearer token; broken and empty ones are refused."""
    me = "/statelib/api/me"
    assert server.call(me, "vera").json == {"name": "vera"}
    assert server.call(me, headers={"Authorization": f"Bearer {server.tokens['eddie']}"}).json == {"name": "eddie"}
    for headers in ({"Cookie": "_token=x.y.z"}, {"Authorization": "Bearer x"}, {"Cookie": "session=1"}):
        answer = server.call(me, headers=headers)
        assert (answer.status, answer.json["kind"]) == (401, "not-signed-in")


def test_airflow_shows_the_page_in_its_menus_and_tabs(server: Server) -> None:
    plugins = server.call("/api/v2/plugins", "ada").json["plugins"]
    (plugin,) = [each for each in plugins if each["name"] == "statelib"]
    views = {view["destination"]: (view["href"], view["url_route"]) for view in plugin["external_views"]}
    assert views == {
        "nav": ("/statelib/", "state"),
        "dag": ("/statelib/#/dag/{DAG_ID}", "state-dag"),
        "dag_run": ("/statelib/#/run/{DAG_ID}/{RUN_ID}", "state-run"),
    }
    assert server.call("/api/v2/plugins/importErrors", "ada").json["total_entries"] == 0


def test_the_overview_has_every_pipeline_and_its_errors(server: Server) -> None:
    broken, sales, tours = server.get("pipelines")["pipelines"]
    assert "backend: expected 'heap' or 'rocksdb'" in broken["error"]
    assert (broken["head"], broken["backend"], broken["states"]) == (None, None, [])
    assert (sales["head"]["checkpoint_id"], sales["pending"]["checkpoint_id"], sales["quarantined"]) == (5, 6, 1)
    assert (sales["head"]["head"], sales["pending"]["head"], sales["generation"]) == (True, False, 1)
    assert {s["name"]: s["type"] for s in sales["states"]}["per_item"] == "map<string, long>"
    assert (tours["pending"], tours["strategy"], tours["error"]) == (None, "full", None)


def test_a_published_table_shows_how_far_it_is_behind(world: World) -> None:
    file = Path(world.deployment.pipelines_directory) / "tours.yaml"
    text = file.read_text()
    best, sea = "best: {target: '{data}/best', mode: table}", "sea: {target: sea.a.b, format: iceberg, mode: table}"
    file.write_text(f"{text}publish:\n  {best}\n  {sea}\n")
    try:
        assert world.server.get("pipelines")["pipelines"][-1]["tables"] == ["best", "sea"]
        best, sea = world.server.get("pipelines/tours/tables")["tables"]
        assert (best["behind"], best["commit"], best["checkpoint_id"], best["error"]) == (1, 0, None, "")
        assert "no Iceberg catalog 'sea' is configured" in sea["error"]
        publish_tables(world.deployment, world.deployment.pipeline("tours"), ("best",))
        best, _ = world.server.get("pipelines/tours/tables")["tables"]
        assert (best["behind"], best["commit"], best["checkpoint_id"], best["format"]) == (0, 1, 1, "parquet")
        assert best["interval"] is not None
    finally:
        file.write_text(text)
    assert world.server.get("pipelines/tours/tables")["tables"] == []


def page(server: Server, query: str) -> list[int]:
    return [c["checkpoint_id"] for c in server.get(f"pipelines/sales/checkpoints?{query}")["checkpoints"]]


def test_the_history_is_sorted_filtered_and_paged(server: Server) -> None:
    assert server.get("pipelines/sales/checkpoints")["total"] == 7
    assert page(server, "limit=2&offset=1") == [6, 5]
    assert page(server, "sort=created_at_ms&order=asc&limit=3") == [1, 2, 3]
    assert page(server, "state=QUARANTINED") == [QUARANTINED]
    assert page(server, "state=QUARANTINED,PENDING&kind=CHECKPOINT") == [6, QUARANTINED]
    assert page(server, "kind=SAVEPOINT") == [7, 4]
    assert page(server, f"q={quote('100%')}") == [7], "a per cent sign is one"
    assert page(server, "q=reason%20to") == [3]
    assert page(server, "q=5") == [5]
    for bad in ("sort=note", "limit=501", "offset=-1", "order=up", "state=a';--", f"q={'x' * 201}"):
        answer = server.call(f"/statelib/api/pipelines/sales/checkpoints?{quote(bad, safe='=&')}", "vera")
        assert (answer.status, answer.json["kind"]) == (422, "bad-request")


def test_one_checkpoint_has_its_states_files_quality_and_lineage(server: Server) -> None:
    answer_read = server.get(f"pipelines/sales/checkpoints/{REPORTED}")
    assert answer_read["problem"] is None
    assert {s["name"]: (s["entries"], len(s["entries_by_key_group"])) for s in answer_read["states"]} == {
        "total": (3, 128), "per_item": (6, 128), "items": (3, 128)
    }  # fmt: skip
    assert [s["key_groups"] for s in answer_read["subtasks"]] == [[0, 63], [64, 127]]
    assert [c["checkpoint_id"] for c in answer_read["lineage"]] == [7, 5, 1]
    assert (answer_read["gate"]["passed"], answer_read["gate"]["warned"], answer_read["gate"]["checked"]) == (
        True,
        1,
        2,
    )
    assert [q["severity"] for q in answer_read["quality"]] == ["FAIL", "WARN"]
    assert answer_read["quality"][1]["sentences"] == ["twice as many keys"]
    assert answer_read["run"] == {"dag_id": "sales.savepoint", "run_id": RUN, "href": run_href()}
    assert {f["scope"] for f in answer_read["files"]} == {"exclusive"}
    assert server.get(f"runs/sales.savepoint/{quote(RUN)}") == {"pipeline": "sales", "checkpoint_id": 7}
    assert server.get("runs/sales.checkpoint/nobody's")["checkpoint_id"] is None
    answer = server.call("/statelib/api/pipelines/sales/checkpoints/99", "vera")
    assert (answer.status, answer.json["kind"]) == (404, "no-checkpoint")


def run_href() -> str:
    return f"/dags/sales.savepoint/runs/{quote(RUN, safe='')}"


def test_two_checkpoints_can_be_compared(server: Server) -> None:
    answer = server.get("pipelines/sales/compare?left=1&right=5")
    total = answer["states"][-1]
    assert (total["name"], total["left_entries"], total["right_entries"]) == ("total", 3, 3)
    assert total["key_groups_changed"] == len(total["changed"]) == 3
    assert answer["command"] == "statelib checkpoints diff sales/1 sales/5"
    assert answer["files"]["common"] == 0
    same = server.get("pipelines/sales/compare?left=5&right=7")
    assert {s["key_groups_changed"] for s in same["states"]} == {0}, "the savepoint holds what the head holds"


def test_the_size_of_the_storage_is_shown_now_and_over_time(server: Server) -> None:
    result = server.get("pipelines/sales/storage")
    assert result["now"]["savepoint_bytes"] == result["samples"][-1]["savepoint_bytes"] > 0
    assert result["now"] in server.get("storage")["pipelines"]
    assert [s["at_ms"] for s in result["samples"]] == sorted(s["at_ms"] for s in result["samples"])


def test_the_page_is_served_with_its_security_headers(server: Server, world: World) -> None:
    index = server.call("/statelib/", "vera")
    assert (index.status, index.body) == (200, b"<title>State</title>")
    assert directives(index)["script-src"] == "'self'"
    assert directives(index)["frame-ancestors"] == "'self'"
    assert index.headers["cache-control"] == "no-cache"
    script = server.call("/statelib/assets/page-abc.js", "vera")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in script.headers["cache-control"]
    assert server.call("/statelib/assets/page-abc.css", "vera").headers["content-type"].startswith("text/css")
    for answer in (index, script, server.call("/statelib/api/me", "vera"), server.call("/statelib/api/me")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
    for path in ("nope.js", "stolen.js", "..%2findex.html", "%2e%2e/%2e%2e/passwords.json", "x"):
        assert server.call(f"/statelib/assets/{path}", "ada").status in (404, 422, 500)
    (world.root / "dist" / "index.html").rename(world.root / "index.html")
    missing = server.call("/statelib/", "vera")
    (world.root / "index.html").rename(world.root / "dist" / "index.html")
    assert missing.status == 503
    assert b"build.sh" in missing.body


def directives(answer: Answer) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in answer.headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


def test_a_report_is_served_without_scripts_and_no_other_file_is(server: Server) -> None:
    front = server.call(REPORT, "vera")
    assert (front.status, front.body) == (200, b"<h1>complete</h1>")
    assert directives(front)["default-src"] == "'none'"
    assert "script-src" not in directives(front)
    assert server.call(f"{REPORT}validations/a.html", "vera").body == b"<p>a</p>"
    hostile = ("../secret.html", "%2e%2e/secret.html", "..%2fsecret.html", "link.html", "//x.html", "%00.html")
    for path in (*hostile, "run.js", "validations", "no.html"):
        answer = server.call(f"{REPORT}{path}", "ada")
        assert answer.status in (404, 422, 500), path
        assert answer.body != b"secret"
    none = server.call(REPORT.replace(f"/{REPORTED}/", "/1/"), "vera")
    assert (none.status, none.json["kind"]) == (404, "no-report")


@pytest.fixture
def without_catalog(server: Server, world: World) -> Iterator[Path]:
    """Remove the catalog of a server that has read it before."""
    server.get("pipelines")
    file = Path(world.deployment.catalog_url.removeprefix("sqlite:///"))
    aside = file.with_suffix(".aside")
    file.rename(aside)
    yield file
    file.unlink(missing_ok=True)
    aside.rename(file)


def test_a_missing_catalog_is_reported_and_not_created(server: Server, without_catalog: Path) -> None:
    answer = server.call("/statelib/api/pipelines", "vera")
    assert (answer.status, answer.json["kind"]) == (503, "no-catalog")
    assert "statelib catalog migrate" in answer.json["hint"]
    assert not without_catalog.exists()
    without_catalog.write_bytes(b"")
    broken = server.call("/statelib/api/pipelines", "vera")
    assert (broken.status, broken.json["kind"]) == (503, "catalog-not-migrated"), "an empty file has no tables either"


def test_unreadable_parts_are_reported_as_problems_and_the_rest_is_shown(server: Server, world: World) -> None:
    metadata = Path(world.deployment.storage_root) / "sales" / "chk-1" / "_metadata"
    data = metadata.read_bytes()
    try:
        metadata.write_bytes(data[:100])
        damaged: Any = server.get("pipelines/sales/checkpoints/1")
        metadata.unlink()
        gone: Any = server.get("pipelines/sales/checkpoints/1")
        compared: Any = server.get("pipelines/sales/compare?left=1&right=5")
    finally:
        metadata.write_bytes(data)
    for each in (damaged, gone):
        assert (each["states"], each["files"], each["checkpoint_id"]) == (None, None, 1)
        assert "chk-1" in each["problem"]
    assert compared["states"] is None
    assert "chk-1" in compared["problem"]
