"""A verdict for every kind of file that can lie in a pipeline's directory."""

import pytest

from statelib.coordinator.orphans import CatalogRecords, Listed, Verdict, classify
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointState

ROOT = "file:///state/p"
OPEN, WON, LOST = (digit * 32 for digit in "abc")
UNKNOWN = "d" * 32
KNOWN = CatalogRecords(
    files={f"{ROOT}/chk-1/{WON[:24]}00000000-0-0", f"{ROOT}/shared/anything.sst"},
    open_attempts={OPEN[:24]},
    ended_attempts={WON[:24], LOST[:24]},
    checkpoints={
        f"{ROOT}/chk-{number}": (CheckpointId(number), state)
        for number, state in enumerate(
            (
                CheckpointState.COMPLETED,
                CheckpointState.PENDING,
                CheckpointState.ABORTED,
                CheckpointState.DELETING,
                CheckpointState.DELETED,
            ),
            1,
        )
    },
)


def verdict(path: str, age_ms: int = 0, grace_ms: int = 100) -> Verdict:
    (result,) = classify([Listed(f"{ROOT}/{path}", 1, 1_000_000 - age_ms)], KNOWN, 1_000_000, grace_ms)
    return result.verdict


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"chk-1/{WON[:24]}00000000-0-0", Verdict.LIVE),
        ("shared/anything.sst", Verdict.LIVE),
        (f"chk-1/{WON[:24]}00000001-0-0", Verdict.ORPHAN),
        (f"chk-1/{LOST}-0-0", Verdict.ORPHAN),
        (f"chk-3/{LOST}-0-0", Verdict.ORPHAN),
        (f"chk-2/{OPEN[:24]}0000000f-1-7", Verdict.LIVE),
        (f"shared/2-0-{OPEN}-7.sst", Verdict.LIVE),
        (f"shared/1-0-{LOST}-7.sst", Verdict.ORPHAN),
        (f"taskowned/{LOST}-0-0", Verdict.ORPHAN),
        (f"taskowned/{OPEN}-0-0", Verdict.LIVE),
        ("chk-1/_metadata", Verdict.LIVE),
        ("chk-2/_metadata", Verdict.LIVE),
        ("chk-3/_metadata", Verdict.ORPHAN),
        ("chk-4/_metadata", Verdict.LIVE),
        ("chk-5/_metadata", Verdict.ORPHAN),
        ("chk-6/_metadata", Verdict.UNKNOWN_CHECKPOINT),
        ("chk-1/._metadata.0.tmp", Verdict.ORPHAN),
        ("chk-2/._metadata.0.tmp", Verdict.LIVE),
        ("chk-3/._metadata.0.tmp", Verdict.ORPHAN),
        ("chk-3/notes.txt", Verdict.FOREIGN),
        ("README", Verdict.FOREIGN),
        (f"chk-1/{UNKNOWN}0-0-0", Verdict.FOREIGN),
        (f"chk-1/{UNKNOWN.upper()}-0-0", Verdict.FOREIGN),
    ],
)
def test_the_name_of_a_file_decides_whatever_its_age(path: str, expected: Verdict):
    assert [verdict(path, age_ms) for age_ms in (0, 999_999)] == [expected, expected]


@pytest.mark.parametrize("path", [f"chk-9/{UNKNOWN}-0-0", f"shared/{UNKNOWN}.sst", ".clock.0.tmp", "chk-9/.x.0.tmp"])
def test_a_file_of_no_known_attempt_is_removed_only_after_the_grace_period(path: str):
    assert verdict(path, 99) is Verdict.YOUNG
    assert verdict(path, 100) is Verdict.UNKNOWN_ATTEMPT
    assert verdict(path, -5, grace_ms=0) is Verdict.YOUNG, "newer than the storage's own clock"
