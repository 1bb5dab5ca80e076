"""Whole days on S3, each under another script of faults: it succeeds, or fails with an error worth a retry and succeeds
then; what was complete is never touched, and cleaned up nothing else is left."""

import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy.engine.default import DefaultDialect

from statelib.errors import RetryableError, StatelibError, UnsupportedError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage import registry
from statelib.storage.objects.kind import ObjectKind
from statelib.storage.retries import Retries, wait_never
from tests.integration.garbage import days, needed, stored, tally
from tests.support.fault_proxy import Fault, Kind
from tests.support.figures import record
from tests.support.s3_endpoint import S3Endpoint

NAME = PipelineName("tally")
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")
ALWAYS = 10**6


def all_methods(kind: Kind, times: int = ALWAYS, status: int = 503) -> list[Fault]:
    return [Fault(kind, method, "", times, status) for method in METHODS]


WELL: dict[str, list[Fault]] = {
    "a short storm": all_methods("status", 1),
    "SlowDown on writing": [Fault("status", "PUT", "", 2)],
    "SlowDown on reading": [Fault("status", "GET", "", 2)],
    "too many requests": [Fault("status", "PUT", "-0-", 2, 429)],
    "500 on looking": [Fault("status", "HEAD", "", 2, 500)],
    "data reset": [Fault("reset", "PUT", "-0-", 2)],
    "reading reset": [Fault("reset", "GET", "_metadata", 2)],
    "reply of data lost": [Fault("lost", "PUT", "-0-")],
    "reply of _metadata lost": [Fault("lost", "PUT", "_metadata")],
    "and of reading it back": [Fault("lost", "PUT", "_metadata"), Fault("lost", "GET", "_metadata", 2)],
    "_metadata lost twice": [Fault("lost", "PUT", "_metadata", 2)],
    "reply of the location lost": [Fault("lost", "PUT", ".location")],
    "409": [Fault("status", "PUT", "_metadata", 2, 409)],
    "_metadata cut": [Fault("truncate", "GET", "_metadata")],
    "data cut": [Fault("truncate", "GET", "-0-")],
    "a listing cut": [Fault("truncate", "GET", "list-type")],
    "a listing without the fresh object": [Fault("stale", "GET", "list-type", 3)],
    "deleting, reply lost": [Fault("lost", "POST", "delete"), Fault("lost", "DELETE")],
    "deleting, reset": [Fault("reset", "POST", "delete"), Fault("reset", "DELETE")],
    "slow": [Fault("slow", "PUT"), Fault("slow", "GET")],
}
FAILS: dict[str, tuple[list[Fault], type[StatelibError]]] = {
    "a long storm": (all_methods("status"), RetryableError),
    "the endpoint is gone": (all_methods("reset"), RetryableError),
    "no write is answered": ([Fault("lost", "PUT", "", ALWAYS)], RetryableError),
    "_metadata is never answered": (
        [Fault("lost", "PUT", "_metadata", ALWAYS), Fault("status", "GET", "_metadata", ALWAYS)],
        RetryableError,
    ),
    "data is always cut": ([Fault("truncate", "GET", "-0-", ALWAYS)], RetryableError),
    "half an object as if it were all": ([Fault("shorten", "GET", "-0-", ALWAYS)], RetryableError),
    "If-None-Match is ignored": ([Fault("unconditional", "PUT", "", ALWAYS)], UnsupportedError),
}


@pytest.fixture
def deployment(s3: S3Endpoint, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    quick = Retries((0.0, 0.0, 0.0), wait_never)
    monkeypatch.setattr(registry, "RETRIES", quick)
    monkeypatch.setitem(registry.PLACES._kinds, "s3", ObjectKind(lambda: quick))
    return tally(tmp_path, storage_root=f"s3://{bucket}/state")


def clean(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False)


def whole(deployment: Deployment, days_done: int) -> None:
    done = deployment.catalog().list(NAME, {CheckpointState.COMPLETED})
    assert needed(deployment) <= stored(deployment)
    for each in done:
        assert verify_at(each.directory, own=True).problems == ()
    head = deployment.catalog().head(NAME).head
    rows = resolve(deployment, f"tally/{head}").to_arrow("total", scratch=deployment.work_directory).to_pylist()
    assert {row["value"] for row in rows} == {days_done * (days_done + 1) // 2}


def test_days_succeed_despite_these_storage_faults(deployment: Deployment, s3: S3Endpoint) -> None:
    days(deployment, 1, 2)
    for number, faults in enumerate(WELL.values(), 3):
        s3.break_next(*faults)
        days(deployment, number, number)
        clean(deployment)
        s3.break_next()
        clean(deployment)
        assert stored(deployment) == needed(deployment)
        whole(deployment, number)
    record("G1", "scripts of S3 faults", len(WELL))


def test_days_that_fail_change_nothing_and_succeed_later(deployment: Deployment, s3: S3Endpoint) -> None:
    days(deployment, 1, 2)
    seen: Counter[str] = Counter()
    for number, (script, (faults, error)) in enumerate(FAILS.items(), 3):
        before = needed(deployment)
        s3.break_next(*faults)
        with pytest.raises(error) as failure:
            days(deployment, number, number)
        seen[f"{script}: {failure.value.kind}"] += 1
        s3.break_next()
        assert before <= stored(deployment)
        whole(deployment, number - 1)
        days(deployment, number, number)
        clean(deployment)
        assert stored(deployment) == needed(deployment)
        whole(deployment, number)
    print(dict(seen))
    record("G1", "scripts of S3 faults", len(FAILS))


def test_a_checkpoint_succeeds_although_both_replies_are_lost(
    deployment: Deployment, s3: S3Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``_metadata`` and COMMIT both succeed, but the replies of storage and catalog are lost."""
    days(deployment, 1, 1)
    real, left = DefaultDialect.do_commit, [1]

    def lossy(dialect: DefaultDialect, connection: object) -> None:
        real(dialect, connection)
        with sqlite3.connect(tmp_path / "catalog.db") as beside:
            (head,) = beside.execute("SELECT head FROM lease").fetchone()
        beside.close()
        if left[0] and head == 2:
            left[0] = 0
            raise dialect.loaded_dbapi.OperationalError("the reply was lost")

    monkeypatch.setattr(DefaultDialect, "do_commit", lossy)
    s3.break_next(Fault("lost", "PUT", "_metadata"))
    days(deployment, 2, 2)
    assert left == [0]
    assert [r.state for r in deployment.catalog().list(NAME)] == [CheckpointState.COMPLETED] * 2
    whole(deployment, 2)
