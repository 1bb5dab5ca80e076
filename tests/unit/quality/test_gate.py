"""The gate with real Great Expectations: checkpoints that pass, and the failures of others."""

import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from statelib.model.checkpoint import (
    CheckpointManifest,
    DataInterval,
    EventCounts,
    FileRecord,
    SnapshotKind,
    SourcePosition,
)
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.model.types import LONG, STRING
from statelib.quality.facts import CheckpointFacts
from statelib.quality.gate import run_gate
from statelib.storage.ports.inventory import FileFinding
from statelib.storage.uris import local_path

pytestmark = pytest.mark.slow

GROUPS = 8
WHOLE = KeyGroupRange(0, GROUPS - 1)
DAY = DataInterval(0, 86_400_000)
SCHEMA = KeyedStateSchema(
    STRING,
    GROUPS,
    (StateDescriptor("flights", StateKind.VALUE, LONG), StateDescriptor("by <dest>", StateKind.MAP, LONG, STRING)),
)


def statistics(*entries: int, digest: int = 2**63) -> StateStatistics:
    counted = np.array(entries, np.int64)
    return StateStatistics(WHOLE, counted, np.array(entries, np.uint64) + np.uint64(digest))


RECORDED = (statistics(1, 2, 3, 4, 5, 6, 7, 8), statistics(0, 0, 0, 0, 0, 0, 0, 9))


def good() -> CheckpointFacts:
    name, number, epoch = PipelineName("flights"), CheckpointId(3), Epoch(5)
    record = CheckpointRecord(
        name, number, SnapshotKind.CHECKPOINT, CheckpointState.PENDING, Owner.SYSTEM, epoch, "k", 1, CheckpointId(2),
        DAY, "full", 2, "file:/state/flights/chk-3", 1,
    )  # fmt: skip
    manifest = CheckpointManifest(
        name, number, SnapshotKind.CHECKPOINT, "full", epoch, AttemptId("a" * 32), 1, CheckpointId(2), 1,
        SourcePosition(DAY, 1), EventCounts(11, 10, 1), SCHEMA, (), RECORDED,
    )  # fmt: skip
    base = (statistics(1, 2, 3, 4, 5, 6, 7, 2), statistics(0, 0, 0, 0, 0, 0, 0, 0))
    return CheckpointFacts(record, manifest, (KeyGroupRange(0, 3), KeyGroupRange(4, 7)), (), base, RECORDED)


def finding(path: str, groups: KeyGroupRange, problem: str = "") -> FileFinding:
    size = {"missing": None, "size": 99}.get(problem, 100)
    crc = {"missing": None, "size": None, "checksum": 0xBAD}.get(problem, 0xF00D)
    return FileFinding(path, groups, 100, size, 0xF00D, crc, problem)


def judge(facts: CheckpointFacts, tmp_path: Path) -> tuple[str, ...]:
    report = run_gate(facts, str(tmp_path / "docs"))
    assert report.passed == (not report.failures)
    assert report.passed == all(result.passed for result in report.results)
    return report.failures


def with_files(facts: CheckpointFacts, *findings: FileFinding) -> CheckpointFacts:
    files = tuple(FileRecord(f.path, f.expected_size, f.expected_crc, 0, f.key_group_range) for f in findings)
    return replace(facts, manifest=replace(facts.manifest, files=files), file_findings=findings)


def with_manifest(facts: CheckpointFacts, **changes) -> CheckpointFacts:
    return replace(facts, manifest=replace(facts.manifest, **changes))


def test_a_complete_checkpoint_passes_and_the_report_lists_the_checks(tmp_path: Path):
    facts = with_files(good(), finding("a", KeyGroupRange(0, 3)), finding("b", KeyGroupRange(4, 7)))
    report = run_gate(facts, str(tmp_path / "docs"))
    assert (report.passed, report.failures) == (True, ())
    checked = {result.name: result.checked for result in report.results}
    assert checked["every key group is covered by exactly one handle"] == GROUPS
    assert checked["every file has its checksum"] == 2
    assert checked["the entries of every state and key group are read back as recorded"] == 2 * GROUPS
    assert checked["no state grows by more entries than events were applied"] == 2
    assert len({result.name for result in report.results}) == len(report.results) == 9
    assert all(result.failed == 0 for result in report.results)


def test_the_report_is_found_in_a_directory_with_any_name(tmp_path: Path):
    report = run_gate(good(), str(tmp_path / "Qualität 100%" / "docs"))
    assert Path(local_path(report.report_uri)).is_file()


def test_great_expectations_is_imported_only_for_expectations_of_users(tmp_path: Path):
    code = f"""
import sys
from tests.unit.quality.test_gate import good, run_gate
report = run_gate(good(), {str(tmp_path / "docs")!r})
assert report.passed and report.report_uri
print("great_expectations" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "False\n"
    pages = {page.parent.name for page in (tmp_path / "docs" / "validations").rglob("result.html")}
    assert {"counters", "identity", "key_groups", "files", "contents", "growth"} <= pages
    assert "Great Expectations" not in (tmp_path / "docs" / "index.html").read_text()


def test_a_page_shows_the_rows_that_fail(tmp_path: Path):
    report = run_gate(with_files(good(), finding("<a>", WHOLE, "missing"), finding("b", WHOLE)), str(tmp_path / "docs"))
    assert not report.passed
    page = (tmp_path / "docs" / "validations" / "files" / "result.html").read_text()
    assert "<td>&lt;a&gt;</td><td>0-7</td><td>no</td>" in page
    assert "1 of 2 rows failed" in page


def test_the_failure_names_uncovered_and_doubly_covered_key_groups(tmp_path: Path):
    facts = replace(good(), ranges=(KeyGroupRange(0, 3), KeyGroupRange(3, 5)))
    assert judge(facts, tmp_path) == (
        "key group 3: covered by 2 handles, expected 1",
        "key groups 6-7: covered by 0 handles, expected 1",
    )


def test_handles_beyond_the_last_key_group_are_counted(tmp_path: Path):
    facts = replace(good(), ranges=(KeyGroupRange(0, 3), KeyGroupRange(4, 8)))
    assert judge(facts, tmp_path) == ("counter 'handles beyond key group 7': expected 0, found 1",)


def test_the_failure_names_broken_files_with_their_key_groups(tmp_path: Path):
    low, high = KeyGroupRange(0, 3), KeyGroupRange(4, 7)
    facts = with_files(
        good(),
        finding("gone.sst", low, "missing"),
        finding("whole.sst", low),
        finding("cut.sst", high, "size"),
        finding("flipped.sst", high, "checksum"),
    )
    assert judge(replace(facts, read_back=None), tmp_path) == (
        "file gone.sst (key groups 0-3) is missing",
        "file cut.sst (key groups 4-7): size expected 100 bytes, found 99",
        "file flipped.sst (key groups 4-7): crc32c expected 0000f00d, found 00000bad",
    )


def test_files_that_were_not_read_back_do_not_pass(tmp_path: Path):
    assert judge(replace(good(), read_back=None), tmp_path) == ("counter 'states read back': expected 2, found 0",)


def test_a_file_whose_data_was_not_read_does_not_pass(tmp_path: Path):
    unread = replace(finding("a", WHOLE), actual_crc=None)
    assert judge(with_files(good(), unread), tmp_path) == (
        "file a (key groups 0-7): crc32c expected 0000f00d, found not read",
    )


def test_a_file_that_was_not_verified_does_not_pass(tmp_path: Path):
    facts = replace(with_files(good(), finding("a", WHOLE)), file_findings=())
    assert judge(facts, tmp_path) == ("counter 'files looked at': expected 1, found 0",)


def test_the_failure_names_states_and_key_groups_with_other_contents(tmp_path: Path):
    result = (statistics(1, 2, 3, 4, 5, 6, 7, 7), RECORDED[1])
    digests = RECORDED[1].digests.copy()
    digests[2:5] ^= np.uint64(1)
    result = (result[0], StateStatistics(WHOLE, RECORDED[1].entries, digests))
    assert judge(replace(good(), read_back=result), tmp_path) == (
        "state flights, key group 7: expected 8 entries, found 7",
        f"state flights, key group 7: content digest expected {2**63 + 8}, found {2**63 + 7}",
        f"state by <dest>, key groups 2-4: content digest expected {2**63}, found {2**63 + 1}",
    )


def test_the_failure_names_lost_events_and_a_foreign_manifest(tmp_path: Path):
    facts = with_manifest(good(), events=EventCounts(12, 10, 1), epoch=Epoch(4), base=None)
    assert judge(facts, tmp_path) == (
        "counter 'events read, against applied + without key': expected 12, found 11",
        "_metadata 'epoch': expected 5, found 4",
        "_metadata 'base': expected 2, found None",
    )


def test_the_data_interval_must_be_that_of_the_run(tmp_path: Path):
    facts = with_manifest(good(), position=SourcePosition(DataInterval(0, 1), 0))
    assert judge(facts, tmp_path) == ("_metadata 'data interval': expected [0, 86400000) ms, found [0, 1) ms",)


def test_a_state_may_grow_by_at_most_one_entry_per_event(tmp_path: Path):
    assert judge(with_manifest(good(), events=EventCounts(9, 9, 0)), tmp_path) == ()
    assert judge(with_manifest(good(), events=EventCounts(8, 8, 0)), tmp_path) == (
        "state by <dest>: 9 entries, expected at most 8 (those of the base and one per applied event)",
    )


def test_without_events_the_content_must_equal_that_of_the_base(tmp_path: Path):
    facts = with_manifest(replace(good(), base_statistics=RECORDED), events=EventCounts(0, 0, 0))
    assert judge(facts, tmp_path) == ()
    other = (RECORDED[0], statistics(0, 0, 0, 0, 0, 0, 1, 8))
    failures = judge(replace(facts, base_statistics=other), tmp_path)
    assert failures[0] == ("state by <dest>, key group 6: expected 1 entry, found 0 although no event was applied")
    assert len(failures) == 4


def test_a_first_checkpoint_is_compared_with_the_empty_state(tmp_path: Path):
    facts = with_manifest(good(), base=None, events=EventCounts(35, 35, 0))
    first = replace(facts, record=replace(facts.record, base=None), base_statistics=None)
    assert judge(first, tmp_path) == (
        "state flights: 36 entries, expected at most 35 (those of the base and one per applied event)",
    )


def test_a_base_without_statistics_is_not_compared(tmp_path: Path):
    assert judge(with_manifest(replace(good(), base_statistics=None), events=EventCounts(0, 0, 0)), tmp_path) == ()


def test_missing_statistics_of_states_or_key_groups_are_a_failure(tmp_path: Path):
    short = StateStatistics(KeyGroupRange(0, 6), RECORDED[0].entries[:7], RECORDED[0].digests[:7])
    assert judge(replace(good(), read_back=(short, RECORDED[1])), tmp_path) == (
        "counter 'key groups with statistics, read back': expected 8, found 7",
    )
    assert judge(replace(good(), base_statistics=RECORDED[:1]), tmp_path) == (
        "counter 'states of the base': expected 2, found 1",
    )


def test_a_checkpoint_without_manifest_fails(tmp_path: Path):
    assert judge(replace(good(), manifest=None), tmp_path) == ("counter 'manifests in _metadata': expected 1, found 0",)


def test_a_pipeline_without_states_needs_no_handles(tmp_path: Path):
    facts = with_manifest(good(), schema=KeyedStateSchema(STRING, GROUPS, ()), statistics=())
    facts = replace(facts, ranges=(), read_back=(), base_statistics=())
    assert judge(facts, tmp_path) == ()


def test_a_long_list_of_failures_is_shortened_with_their_number(tmp_path: Path):
    result = (statistics(*range(11, 19)), statistics(*range(11, 19)))
    failures = judge(replace(good(), read_back=result), tmp_path)
    entries = [f for f in failures if "entr" in f]
    assert len(entries) == 11
    assert entries[-1].endswith("6 more failures in the report")


def test_reports_work_without_a_network_and_are_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("the gate opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    facts = replace(good(), read_back=(RECORDED[0], statistics(0, 0, 0, 0, 0, 0, 0, 8)))
    uris = [run_gate(facts, f"file://{tmp_path}/flights/chk-3").report_uri for _ in range(3)]
    names = ["chk-3", "chk-3-2", "chk-3-3"]
    assert uris == [f"file://{tmp_path}/flights/{name}/index.html" for name in names]
    assert sorted(os.listdir(tmp_path / "flights")) == names
    site = tmp_path / "flights" / "chk-3"
    pages = list(site.rglob("*.html"))
    assert len([p for p in pages if p.parent != site]) == 6, "a page for each frame"
    for page in pages:
        text = page.read_text()
        assert "<script" not in text
        assert not re.search(r"<(link|img|iframe)\b", text)
        assert "<style>" in text
        for target in re.findall(r'href="([^"#]+)"', text):
            assert (page.parent / target).exists(), target
    front = (site / "index.html").read_text()
    assert "state by &lt;dest&gt;, key group 7: expected 9 entries, found 8" in front
    assert "not complete" in front
    assert sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) < 500_000


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit the size of every file to a few bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_report_that_cannot_be_written_is_a_warning_and_does_not_change_the_verdict(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.write_text("not a directory")
    whole = run_gate(good(), f"{docs}/flights/chk-3")
    assert whole.report_uri == ""
    assert whole.passed
    (warning,) = whole.warnings
    assert f"the report of flights/3 cannot be written to {docs}/flights/chk-3: Not a directory" in warning
    assert "STATELIB_DOCS" in warning


def test_a_full_disk_neither_hides_a_failure_nor_leaves_a_partial_report(tmp_path: Path) -> None:
    with full_disk():
        spoilt = run_gate(replace(good(), ranges=()), f"{tmp_path}/flights/chk-3")
    assert spoilt.report_uri == ""
    assert any("key group" in failure for failure in spoilt.failures)
    assert "File too large" in spoilt.warnings[0]
    assert os.listdir(tmp_path / "flights") == []
