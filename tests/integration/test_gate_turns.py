"""The gate reads all files again in turns, and the entries of a large state in more turns."""

from itertools import pairwise
from pathlib import Path

import pytest

from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.model.record import ClaimMode
from tests.integration.gate_rotation import (
    FILES_AND_ENTRIES,
    NAME,
    SLOWER_ENTRIES,
    TURNS,
    few,
    files,
    guests,
    new_world,
    read_files,
    run_day,
)

FIRST = guests(0, 200)
REFERRING = [("rocksdb", "incremental"), ("heap", "changelog"), ("rocksdb", "changelog")]


@pytest.mark.parametrize("read_back", [FILES_AND_ENTRIES, SLOWER_ENTRIES])
@pytest.mark.parametrize(("backend", "strategy"), REFERRING)
def test_everything_is_read_again_within_as_many_runs_as_turns(
    tmp_path: Path, backend: str, strategy: str, read_back: str
) -> None:
    deployment = new_world(tmp_path, backend, strategy, read_back)
    runs = [run_day(deployment, 1, FIRST)]
    runs += [run_day(deployment, number, few(number)) for number in range(2, 2 * TURNS + 3)]
    assert runs[0].partial is None, "all of it is new"
    assert read_files(runs[0]) == files(runs[0])
    skipped = 0
    for before, facts in pairwise(runs):
        assert facts.partial is not None
        assert files(facts) - files(before) <= read_files(facts), "new files are read in the run that wrote them"
        skipped += len(files(facts) - read_files(facts))
    assert skipped, "and known ones are not, or nothing was tested"
    for last in range(TURNS, len(runs)):
        window = runs[last - TURNS + 1 : last + 1]
        groups = set().union(*(facts.partial.key_groups for facts in window if facts.partial))
        assert groups == set(range(8))
        stayed = set.intersection(*(files(facts) for facts in window))
        assert stayed <= set().union(*map(read_files, window))


def test_entries_of_a_large_state_are_read_in_more_turns_than_files(tmp_path: Path) -> None:
    deployment = new_world(tmp_path, read_back=SLOWER_ENTRIES)
    runs = [run_day(deployment, 1, FIRST), *(run_day(deployment, number, few(number)) for number in range(2, 9))]
    for two in pairwise(runs[1:]):
        stayed = set.intersection(*map(files, two))
        assert stayed <= set().union(*map(read_files, two)), "two runs read all files"
    decoded = [len(facts.partial.key_groups) for facts in runs[1:] if facts.partial]
    assert decoded.count(2) >= 4, "of eight; a handle without known files is read whole"


def test_a_run_that_changes_much_decodes_as_much(tmp_path: Path) -> None:
    deployment = new_world(tmp_path, read_back="{rotate: 1/2, entries: 1}")
    run_day(deployment, 1, FIRST)
    few_changes, many_changes = run_day(deployment, 2, few(2)), run_day(deployment, 3, FIRST)
    assert few_changes.partial is not None
    assert many_changes.partial is not None
    assert len(few_changes.partial.key_groups) <= 1
    assert len(many_changes.partial.key_groups) == 4, "two rounds of 200 events have the 400 entries"


@pytest.mark.parametrize(("backend", "strategy"), [("heap", "canonical"), ("rocksdb", "full")])
def test_a_strategy_that_writes_everything_has_everything_read(tmp_path: Path, backend: str, strategy: str) -> None:
    deployment = new_world(tmp_path, backend, strategy)
    run_day(deployment, 1, FIRST)
    facts = run_day(deployment, 2, few(2))
    assert facts.partial is not None
    assert not facts.partial.skipped
    assert facts.partial.key_groups == frozenset(range(8))


def test_everything_is_read_if_the_pipeline_file_wants_it(tmp_path: Path) -> None:
    deployment = new_world(tmp_path, read_back="all")
    run_day(deployment, 1, FIRST)
    facts = run_day(deployment, 2, few(2))
    assert facts.partial is None
    assert read_files(facts) == files(facts)


def test_a_history_that_is_restored_again_and_again_reads_other_turns(tmp_path: Path) -> None:
    deployment = new_world(tmp_path)
    pipeline = deployment.pipeline(NAME)
    run_day(deployment, 1, FIRST)
    read: set[int] = set()
    for _ in range(TURNS):
        partial = run_day(deployment, 2, few(2)).partial
        assert partial is not None
        assert not partial.key_groups & read
        read |= partial.key_groups
        apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM), "test")
    assert read == set(range(8))
