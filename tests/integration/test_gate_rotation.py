# ruff: noqa: E501 (a table: one fault per line)
"""The gate reads what is new and a rotating part of what is known; each fault is detected when the document says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from statelib.errors import CorruptStateError
from statelib.flows.checkpoint.steps import abort, check, register
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.restore.quarantine import release
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.fork import fork
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import append_manifest
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.record import ClaimMode
from statelib.storage.uris import local_path
from tests.integration.gate_rotation import (
    FILES_AND_ENTRIES,
    NAME,
    SLOWER_ENTRIES,
    TURNS,
    facts_of,
    few,
    files,
    guests,
    new_world,
    read_files,
    run_day,
    taken,
)
from tests.support.figures import record
from tests.support.worlds import CHECKOUT, publish_here

FIRST = guests(0, 200)


def test_a_base_without_results_of_the_gate_is_not_proved(tmp_path: Path) -> None:
    """A checkpoint that was registered without the gate, for example of a rebuilt catalog."""
    deployment = new_world(tmp_path)
    register(deployment, deployment.pipeline(NAME), taken(deployment, 1, FIRST))
    assert run_day(deployment, 2, few(2)).partial is None
    assert run_day(deployment, 3, few(3)).partial is not None


def test_a_rebuilt_catalog_proves_what_it_has_read(tmp_path: Path) -> None:
    """The newest checkpoint is judged again as a whole; older ones are trusted, but not proved."""
    deployment = new_world(tmp_path)
    for number in (1, 2, 3):
        run_day(deployment, number, FIRST if number == 1 else few(number))
    again = replace(deployment, catalog_url=deployment.catalog_url.replace("catalog.db", "new.db"))
    apply_rebuild(again, plan_rebuild(again))
    gate = again.catalog().gate
    assert [gate.has_proved(NAME, CheckpointId(number)) for number in (1, 2, 3)] == [False, False, True]
    assert run_day(again, 4, few(4)).partial is not None


def test_a_gate_that_runs_again_reads_the_same(tmp_path: Path) -> None:
    deployment = new_world(tmp_path)
    run_day(deployment, 1, FIRST)
    second = taken(deployment, 2, few(2))
    first = facts_of(deployment, second)
    check(deployment, deployment.pipeline(NAME), second)
    assert read_files(facts_of(deployment, second)) == read_files(first)
    results = deployment.catalog().gate.results(NAME, second)
    assert any("earlier checkpoints have proved the others" in s for r in results for s in r.sentences)


def test_a_refused_checkpoint_proves_nothing(tmp_path: Path) -> None:
    deployment = new_world(tmp_path)
    run_day(deployment, 1, FIRST)
    refused = spoiled(deployment, Fault("file missing", missing, "every file is there", THIS_RUN), count(2))
    with pytest.raises(CorruptStateError):
        check(deployment, deployment.pipeline(NAME), refused)
    assert not deployment.catalog().gate.has_proved(NAME, refused)


def test_the_hint_depends_on_whether_the_base_needs_the_damaged_file_too(tmp_path: Path) -> None:
    deployment = new_world(tmp_path)
    run_day(deployment, 1, FIRST)
    before = deployment.open(deployment.catalog().get(NAME, CheckpointId(1))).identities()
    for is_known in (False, True):
        number = taken(deployment, 2, few(2))
        paths = deployment.open(deployment.catalog().get(NAME, number)).identities()
        Path(local_path(next(path for path in paths if (path in before) is is_known and "/" in path))).unlink()
        with pytest.raises(CorruptStateError) as caught:
            check(deployment, deployment.pipeline(NAME), number)
        assert (f"checkpoint {NAME}/1 needs that file, too: statelib verify -p {NAME}" in caught.value.hint) is is_known
        abort(deployment, NAME, number, "damaged")


# -- faults ----------------------------------------------------------------------------------

Change = Callable[[CheckpointMetadata, CheckpointManifest], tuple[CheckpointMetadata, CheckpointManifest]]
Spoil = Callable[[Deployment, CheckpointId], None]
THIS_RUN, ITS_TURN, RESTORE = "the run that refers to it", "its turn", "the next restore, or its turn"
COPIED = "every file that a restore copies has its checksum"


@dataclass(frozen=True)
class Fault:
    """A fault of a checkpoint that refers to known files. ``check``: the check that must fail; ``found``: when."""

    name: str
    spoil: Spoil
    check: str
    found: str


def known_file(deployment: Deployment, number: CheckpointId, *, in_turn: bool = False) -> Path:
    """Return a known file of the second subtask if none of its key groups have their turn. Raises LookupError if there
    is no such file: the names of files are random, and so are their turns."""
    facts, record = facts_of(deployment, number), deployment.catalog().get(NAME, number)
    assert facts.partial is not None
    earlier = deployment.open(deployment.catalog().get(NAME, record.base or number)).identities()
    paths = [
        finding.path
        for finding in facts.file_findings
        if finding.path in earlier
        and (finding.path not in facts.partial.skipped) is in_turn
        and not facts.partial.key_groups & set(finding.key_group_range)
    ]
    if not paths:
        raise LookupError("no such file in this run")
    return Path(local_path(paths[0]))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def missing(deployment: Deployment, number: CheckpointId) -> None:
    known_file(deployment, number).unlink()


def truncated(deployment: Deployment, number: CheckpointId) -> None:
    path = known_file(deployment, number)
    path.write_bytes(path.read_bytes()[:-1])


def flipped(deployment: Deployment, number: CheckpointId) -> None:
    flip(known_file(deployment, number))


def flipped_in_turn(deployment: Deployment, number: CheckpointId) -> None:
    flip(known_file(deployment, number, in_turn=True))


def flipped_new(deployment: Deployment, number: CheckpointId) -> None:
    record = deployment.catalog().get(NAME, number)
    before = deployment.open(deployment.catalog().get(NAME, record.base or number)).identities()
    flip(Path(local_path(next(p for p in deployment.open(record).identities() if p not in before and "/" in p))))


def forged(deployment: Deployment, number: CheckpointId, change: Change) -> None:
    record = deployment.catalog().get(NAME, number)
    opened = deployment.open(record)
    assert opened.manifest is not None
    metadata, manifest = change(opened.metadata, opened.manifest)
    file = Path(local_path(record.directory)) / "_metadata"
    file.unlink()
    file.write_bytes(append_manifest(encode_metadata(metadata), manifest))


def recounted(deployment: Deployment, number: CheckpointId, *, written: bool) -> None:
    """Change the digest of a key group whose turn it is not. ``written``: whether new files have entries of it. Raises
    LookupError if there is no such key group."""
    partial = facts_of(deployment, number).partial
    assert partial is not None
    candidates = partial.written if written else set(range(8)) - partial.written
    if not candidates - partial.key_groups:
        raise LookupError("no such key group in this run")
    group = min(candidates - partial.key_groups)

    def change(
        metadata: CheckpointMetadata, manifest: CheckpointManifest
    ) -> tuple[CheckpointMetadata, CheckpointManifest]:
        first, *rest = manifest.statistics
        digests = first.digests.copy()
        digests[group] += np.uint64(1)
        return metadata, replace(manifest, statistics=(replace(first, digests=digests), *rest))

    forged(deployment, number, change)


def without_a_table(deployment: Deployment, number: CheckpointId) -> None:
    def change(
        metadata: CheckpointMetadata, manifest: CheckpointManifest
    ) -> tuple[CheckpointMetadata, CheckpointManifest]:
        (operator,) = metadata.operators
        (subtask, state), *rest = operator.subtasks
        handle = state.keyed
        assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
        cut = replace(state, keyed=replace(handle, shared=handle.shared[1:]))
        return replace(metadata, operators=(replace(operator, subtasks=((subtask, cut), *rest)),)), manifest

    forged(deployment, number, change)


CONTENTS = "the content digests of every state and key group are"
FAULTS = (
    Fault("a known file is missing", missing, "every file is there", THIS_RUN),
    Fault("a known file is truncated", truncated, "every file has its size", THIS_RUN),
    Fault("a byte of a known file is flipped, in its turn", flipped_in_turn, "every file has its checksum", THIS_RUN),
    Fault("a byte of a known file is flipped, out of turn", flipped, COPIED, RESTORE),
    Fault("a byte of a new file is flipped", flipped_new, "every file has its checksum", THIS_RUN),
    Fault("a known table is left out", without_a_table, "every stored entry can be read", THIS_RUN),
    Fault("a digest is wrong, and nothing new was written", lambda d, n: recounted(d, n, written=False), f"{CONTENTS} as in the base where no new file has entries", THIS_RUN),
    Fault("a digest is wrong, and something new was written", lambda d, n: recounted(d, n, written=True), f"{CONTENTS} read back as recorded", ITS_TURN),
)  # fmt: skip


def next_run(deployment: Deployment, number: int) -> list[str]:
    """Run a further day, and return the checks that failed."""
    try:
        checkpoint_id = taken(deployment, number, guests(0, 2))
    except CorruptStateError as error:
        return [COPIED] if error.kind == "checksum-mismatch" else [error.kind]
    return failed_checks(deployment, checkpoint_id)


def failed_checks(deployment: Deployment, number: CheckpointId) -> list[str]:
    try:
        check(deployment, deployment.pipeline(NAME), number)
    except CorruptStateError:
        return [r.name for r in deployment.catalog().gate.results(NAME, number) if not r.passed]
    register(deployment, deployment.pipeline(NAME), number)
    return []


@pytest.mark.parametrize("read_back", [FILES_AND_ENTRIES, SLOWER_ENTRIES])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_of_a_referring_checkpoint_is_detected_in_time(fault: Fault, read_back: str, tmp_path: Path) -> None:
    deployment = new_world(tmp_path, read_back=read_back)
    run_day(deployment, 1, FIRST)
    days = iter(range(2, 20 * TURNS))
    failures = [failed_checks(deployment, spoiled(deployment, fault, days))]
    for number in range(TURNS - 1):
        failures += [] if failures[-1] else [next_run(deployment, 20 * TURNS + number)]
    assert failures[-1] == [fault.check]
    assert (len(failures) == 1) is (fault.found == THIS_RUN)
    record("G12", "faults of storage that were found in time", 1, unit="faults")


def spoiled(deployment: Deployment, fault: Fault, days: Iterator[int]) -> CheckpointId:
    """Take a checkpoint with the fault. Days on which it cannot be made pass the gate."""
    for number in days:
        checkpoint_id = taken(deployment, number, guests(0, 2))
        try:
            fault.spoil(deployment, checkpoint_id)
        except LookupError:
            assert failed_checks(deployment, checkpoint_id) == []
        else:
            return checkpoint_id
    raise AssertionError("the fault could not be made on any day")


def test_the_document_has_the_table_of_referring_checkpoints() -> None:
    rows = [f"| {f.name} | {f.check} | {f.found} |" for f in FAULTS]
    table = "\n".join(["| fault | check that catches it | found by |", "|---|---|---|", *rows])
    assert table in (CHECKOUT / "docs" / "gate.md").read_text()


# -- histories that are not one run after the other ------------------------------------------


def test_the_first_run_after_a_restore_builds_on_its_proof(tmp_path: Path) -> None:
    """The restored checkpoint was proved when it was registered, so that what it has is known."""
    deployment = new_world(tmp_path)
    for number in (1, 2, 3):
        run_day(deployment, number, FIRST if number == 1 else few(number))
    pipeline = deployment.pipeline(NAME)
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "2", None, ClaimMode.NO_CLAIM), "test")
    facts = run_day(deployment, 3, few(3))
    assert facts.partial is not None
    assert facts.partial.skipped
    assert facts.record.base == 2


def test_the_first_run_after_a_restore_by_path_is_read_whole(tmp_path: Path) -> None:
    elsewhere = new_world(tmp_path / "elsewhere")
    run_day(elsewhere, 1, FIRST)
    pipeline = elsewhere.pipeline(NAME)
    wanted = begin_savepoint(elsewhere, pipeline, format="native", target=None, note="", owner="test", key="1")
    publish_here(elsewhere, pipeline, wanted.checkpoint_id)
    directory = register(elsewhere, pipeline, wanted.checkpoint_id).directory
    deployment = new_world(tmp_path / "here")
    pipeline = deployment.pipeline(NAME)
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, directory, None, ClaimMode.NO_CLAIM), "test")
    facts = run_day(deployment, 2, few(2))
    assert read_files(facts) == files(facts)
    assert facts.partial is None
    assert run_day(deployment, 3, few(3)).partial is not None


def test_the_first_run_of_a_fork_is_read_whole(tmp_path: Path) -> None:
    """It refers to files of another pipeline, which only that pipeline's gate has proved."""
    deployment = new_world(tmp_path)
    run_day(deployment, 1, FIRST)
    file = Path(deployment.pipelines_directory) / "visits.yaml"
    (file.parent / "copy.yaml").write_text(file.read_text().replace("name: visits", "name: copy"))
    fork(deployment, deployment.pipeline("copy"), deployment.catalog().get(NAME, CheckpointId(1)), "test")
    first = run_day(deployment, 2, few(2), "copy")
    assert any("/visits/" in path for path in files(first)), "or nothing was tested"
    assert read_files(first) == files(first)
    assert run_day(deployment, 3, few(3), "copy").partial is not None


def test_a_savepoint_is_read_whole(tmp_path: Path) -> None:
    deployment = new_world(tmp_path)
    for number in (1, 2):
        run_day(deployment, number, FIRST if number == 1 else few(number))
    pipeline = deployment.pipeline(NAME)
    for form in ("canonical", "native"):
        savepoint = begin_savepoint(
            deployment, pipeline, format=form, target=None, note="", owner="test", key=form
        ).checkpoint_id
        publish_here(deployment, pipeline, savepoint)
        facts = facts_of(deployment, savepoint)
        assert read_files(facts) == files(facts)
        assert facts.partial is None or facts.partial.key_groups == frozenset(range(8))
        assert check(deployment, pipeline, savepoint).passed


def test_a_checkpoint_that_was_released_from_quarantine_is_proved(tmp_path: Path) -> None:
    """A check of the pipeline's refused it, but it was complete."""
    deployment = new_world(tmp_path)
    file = Path(deployment.pipelines_directory) / "visits.yaml"
    file.write_text(
        file.read_text().replace("checks: {", "checks: {drift: {entries: {most: 10%, severity: quarantine}}, ")
    )
    for number in (1, 2):
        run_day(deployment, number, FIRST)
    third = taken(deployment, 3, guests(500, 700))
    with pytest.raises(CorruptStateError) as caught:
        check(deployment, deployment.pipeline(NAME), third)
    assert caught.value.kind == "quarantined"
    assert not deployment.catalog().gate.has_proved(NAME, third), "as long as it is not registered"
    release(deployment, NAME, third, "test", "expected")
    assert deployment.catalog().gate.has_proved(NAME, third)
    assert facts_of(deployment, taken(deployment, 4, few(4))).partial is not None
