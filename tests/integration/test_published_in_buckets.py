"""Tables in the buckets of object storages: readers, two publishers at once, a killed publisher, lost answers, files of
somebody else, storages in trouble."""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import polars as pl
import pyarrow as pa
import pytest
from obstore.store import from_url

from statelib.errors import InvalidRequestError, RetryableError, UnsupportedError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode
from statelib.storage import registry
from statelib.storage.retries import Retries, wait_never
from statelib.testing.crash_points import Place, ends_at, kill, recorded
from tests.faults.crash_child import run as run_in_a_child
from tests.integration.shop import SALES, sales
from tests.support.emitting import COUNTS, events_of, expected_alerts, found_alerts
from tests.support.extent import rounds
from tests.support.fault_proxy import Fault
from tests.support.published import by_identity, delta_rows, errors_together, folded, keys_in, rows_in_bucket
from tests.support.s3_endpoint import S3Endpoint
from tests.support.worlds import CHECKOUT, checkpoint_of, day, new_deployment

PUBLISH = {
    "parquet": """\
publish:
  feed: {target: "ROOT/feed", mode: changes, state: total}
  now: {target: "ROOT/now", mode: table, state: total, retain: 1}
""",
    "delta": """\
publish:
  feed: {target: "ROOT/feed", format: delta, mode: changes, state: total}
  now: {target: "ROOT/now", format: delta, mode: table, state: total}
""",
}
BLOCKS = re.findall(r"^```python\n(.*?)^```", (CHECKOUT / "docs" / "publish.md").read_text(), re.DOTALL | re.MULTILINE)
Rows = dict[tuple[Any, ...], dict[str, Any]]


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def change_file(deployment: Deployment, root: str, form: str = "parquet") -> None:
    (Path(deployment.pipelines_directory) / "sales.yaml").write_text(SALES + PUBLISH[form].replace("ROOT", root))


def run(deployment: Deployment, number: int) -> None:
    checkpoint_of(deployment, "sales", number, sales(number * 3))


def publish(deployment: Deployment) -> None:
    publish_tables(deployment, deployment.pipeline("sales"))


def published(deployment: Deployment, environment: Mapping[str, str], place: Place) -> None:
    """Publish in a process that is killed at ``place``."""
    os.environ |= environment
    with ends_at(place, kill):
        publish(deployment)


def behind(deployment: Deployment) -> list[tuple[int, int, str]]:
    return [(s.commit, s.behind, s.error) for s in standings(deployment, deployment.pipeline("sales"))]


def tables(root: str, form: str = "parquet") -> list[Rows]:
    """Return the rows of the folded feed and of the table, as a reader sees them."""
    if form == "parquet":
        feed, now = rows_in_bucket(f"{root}/feed"), rows_in_bucket(f"{root}/now", slice(-1, None))
    else:
        feed, now = delta_rows(f"{root}/feed"), delta_rows(f"{root}/now")
    return [folded(feed, ["shop"]), by_identity(now, ["shop"])]


def state(deployment: Deployment, number: int) -> Rows:
    opened = deployment.open(deployment.catalog().get(PipelineName("sales"), number))
    return {(row["key"],): {"shop": row["key"], **row["value"]} for row in opened.to_arrow("total").to_pylist()}


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("bucket", "parquet"),
        ("bucket", "delta"),
        ("google_bucket", "parquet"),
        ("google_bucket", "delta"),
        ("container", "parquet"),
    ],
)
def test_a_table_in_a_bucket_is_the_state(
    deployment: Deployment, form: str, kind: str, request: pytest.FixtureRequest
) -> None:
    """Delta in Azure is left out: deltalake cannot add a third version to a table in Azurite."""
    scheme = {"bucket": "s3", "google_bucket": "gs", "container": "az"}[kind]
    root = f"{scheme}://{request.getfixturevalue(kind)}/lake"
    change_file(deployment, root, form)
    for number in (1, 2, 3):
        run(deployment, number)
        publish(deployment)
        assert tables(root, form) == [state(deployment, number)] * 2
    assert behind(deployment) == [(3, 0, "")] * 2
    if form == "parquet":
        assert len(keys_in(f"{root}/now")) == 3, "a probe, a file and a manifest"


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_emitted_rows_in_a_bucket_are_taken_back_and_added_again(
    deployment: Deployment, bucket: str, form: str
) -> None:
    feed = f"{{target: 's3://{bucket}/alerts', format: {form}, mode: changes, output: alerts}}"
    text = COUNTS.replace("BACKEND", "heap").replace("STRATEGY", "canonical") + f"publish: {{feed: {feed}}}\n"
    (Path(deployment.pipelines_directory) / "counts.yaml").write_text(text)
    pipeline = deployment.pipeline("counts")
    rows = {1: [(1, 10)], 2: [(2, 11), (3, 12)], 3: [(4, 13)]}
    for number, of_day in rows.items():
        checkpoint_of(deployment, "counts", number, events_of(of_day, day(number).start_ms))
        publish_tables(deployment, pipeline)
    for snapshot, days in ((1, [1]), (3, [1, 2, 3]), (2, [1, 2])):
        plan = plan_restore(deployment, pipeline, str(snapshot), None, ClaimMode.NO_CLAIM)
        apply_restore(deployment, pipeline, plan, "test")
        publish_tables(deployment, pipeline)
        target = f"s3://{bucket}/alerts"
        table = rows_in_bucket(target) if form == "parquet" else delta_rows(target)
        alive = list(folded(table, ["checkpoint_id", "row_number"]).values())
        expected = expected_alerts([row for number in days for row in rows[number]])
        assert found_alerts(pa.Table.from_pylist(alive, table.schema)) == expected


def test_a_feed_is_compared_with_itself_if_the_base_is_gone(deployment: Deployment, bucket: str) -> None:
    root = f"s3://{bucket}/lake"
    change_file(deployment, root)
    run(deployment, 1)
    publish(deployment)
    file = Path(deployment.pipelines_directory) / "sales.yaml"
    file.write_text(file.read_text().replace("inline_threshold_bytes: 1", "retain: {count: 1}"))
    for number in (2, 3):
        run(deployment, number)
    retire(deployment)
    collect_garbage(deployment)
    publish(deployment)
    assert tables(root) == [state(deployment, 3)] * 2
    assert [row["change"] for row in rows_in_bucket(f"{root}/feed", slice(-1, None)).to_pylist()] == ["update"] * 3


def test_readers_begin_with_the_manifests_as_in_the_document(
    deployment: Deployment, s3: S3Endpoint, bucket: str
) -> None:
    change_file(deployment, f"s3://{bucket}")
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    s3.put_object(bucket, f"feed/_files/3-{'0' * 32}/00000.parquet", b"of a publisher that has not committed")
    (code,) = [block for block in BLOCKS if "from_uri" in block]
    place = f"s3://{bucket}/feed?scheme=http&endpoint_override={s3.direct_url.removeprefix('http://')}"
    names: dict[str, Any] = {}
    exec(code.replace("s3://lake/tables/orders_changes", place), names)
    assert folded(names["rows"], ["shop"]) == state(deployment, 2)
    options = {"aws_endpoint_url": s3.direct_url, "aws_allow_http": "true"}
    by_polars = pl.read_parquet([f"s3://{bucket}/feed/{path}" for path in names["files"]], storage_options=options)
    assert by_polars.sort("commit").group_by("shop").last()["sold"].to_list() == [4, 4, 4]


@pytest.mark.parametrize("form", PUBLISH)
def test_publishers_at_once_make_one_commit_per_number(deployment: Deployment, bucket: str, form: str) -> None:
    root = f"s3://{bucket}/lake"
    change_file(deployment, root, form)
    run(deployment, 1)
    publish(deployment)
    for number in (2, 3, 4):
        run(deployment, number)
    assert errors_together(3, partial(publish, deployment)) == []
    feed = (rows_in_bucket if form == "parquet" else delta_rows)(f"{root}/feed")
    assert {(row["commit"], row["checkpoint_id"]) for row in feed.to_pylist()} == {(n, n) for n in (1, 2, 3, 4)}
    assert len(feed) == 12, "no row twice"
    assert tables(root, form) == [state(deployment, 4)] * 2
    if form == "parquet":
        publish(deployment)
        assert len(keys_in(f"{root}/feed")) == 9, "a probe, and a file and a manifest per commit"
        assert len(keys_in(f"{root}/now")) == 3


def test_a_killed_publisher(deployment: Deployment, s3: S3Endpoint, bucket: str) -> None:
    root = f"s3://{bucket}"
    change_file(deployment, f"{root}/saved")
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    for number in (3, 4):
        run(deployment, number)
    states = [state(deployment, number) for number in (2, 3, 4)]
    store = from_url(root, client_options={"allow_http": True})
    saved = keys_in(f"{root}/saved")

    def restored(name: str) -> str:
        for key in saved:
            obstore.copy(store, f"saved/{key}", f"{name}/{key}")
        change_file(deployment, f"{root}/{name}")
        return f"{root}/{name}"

    restored("traced")
    with recorded() as reached:
        publish(deployment)
    places = [place for place in reached if place.point.startswith("object")]
    assert {place.point for place in places} == {
        "object: before put", "object: put", "object: before create", "object: created",
        "objects: before delete", "objects: deleted",
    }  # fmt: skip
    for number, place in enumerate(places[:: rounds(2, 1)]):
        copy = restored(f"try-{number}")
        assert run_in_a_child(published, deployment, s3.environment, place) == -9, place
        for rows in tables(copy):
            assert rows in states, place
        assert deployment.catalog().head(PipelineName("sales")).head == 4
        publish(deployment)
        assert tables(copy) == [states[2]] * 2, place
        assert behind(deployment) == [(4, 0, "")] * 2
        assert len(keys_in(f"{copy}/feed")) == 9, place
        assert len(keys_in(f"{copy}/now")) == 3, place


@pytest.mark.parametrize("form", PUBLISH)
@pytest.mark.parametrize("kind", ["lost", "reset"])
def test_an_answer_that_is_lost_makes_no_second_commit(
    deployment: Deployment, s3: S3Endpoint, bucket: str, form: str, kind: str
) -> None:
    root = f"s3://{bucket}/lake"
    change_file(deployment, root, form)
    run(deployment, 1)
    publish(deployment)
    run(deployment, 2)
    s3.break_next(Fault(kind, "PUT", "_manifest.json" if form == "parquet" else "_delta_log/0"))
    try:
        publish(deployment)
    except RetryableError:
        publish(deployment)
    feed = (rows_in_bucket if form == "parquet" else delta_rows)(f"{root}/feed")
    assert len(feed) == 6, "no row twice"
    assert tables(root, form) == [state(deployment, 2)] * 2


def test_files_of_somebody_else_are_refused(deployment: Deployment, s3: S3Endpoint, bucket: str) -> None:
    change_file(deployment, f"s3://{bucket}")
    run(deployment, 1)
    publish(deployment)
    s3.put_object(bucket, "feed/part-0.parquet", b"not ours")
    s3.put_object(bucket, "now/_SUCCESS", b"")
    run(deployment, 2)
    with pytest.raises(InvalidRequestError, match=r"part-0\.parquet was not published by statelib") as refusal:
        publish(deployment)
    assert refusal.value.kind == "foreign-target"
    assert behind(deployment)[1] == (2, 0, ""), "the other table is published"


def test_a_storage_without_conditional_puts_is_refused(deployment: Deployment, s3: S3Endpoint, bucket: str) -> None:
    change_file(deployment, f"s3://{bucket}")
    run(deployment, 1)
    s3.break_next(Fault("unconditional", "PUT", "", 1000))
    with pytest.raises(UnsupportedError, match="ignores If-None-Match"):
        publish_tables(deployment, deployment.pipeline("sales"), ("feed",))


@pytest.mark.parametrize("form", PUBLISH)
def test_an_error_does_not_name_the_endpoint(
    deployment: Deployment, s3: S3Endpoint, bucket: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RETRIES", Retries((), wait_never, 2.0))
    change_file(deployment, f"s3://{bucket}/lake", form)
    run(deployment, 1)
    s3.break_next(Fault("status", "GET", "", 1000))
    with pytest.raises(RetryableError, match="table feed is not published") as refusal:
        publish_tables(deployment, deployment.pipeline("sales"), ("feed",))
    assert "127.0.0.1" not in refusal.value.message + refusal.value.hint
    assert "127.0.0.1" not in repr(refusal.value.__cause__)
    s3.break_next()
    monkeypatch.setenv("STATELIB_ALLOW_HTTP", "false")
    with pytest.raises(InvalidRequestError) as refusal:
        publish_tables(deployment, deployment.pipeline("sales"), ("feed",))
    assert refusal.value.kind == "insecure-endpoint"
