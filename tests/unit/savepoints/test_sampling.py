"""A subset is the same for the same words, its parts are all of it, and a percentage is about that."""

import pytest

from statelib.errors import InvalidRequestError
from statelib.savepoints.verification.sampling import picked, sample, seed_of

URIS = [f"file:/state/sales/chk-{n}/{n * 7919:032x}-0-1" for n in range(2000)]


@pytest.mark.parametrize("parts", [1, 3, 20])
def test_each_file_is_in_exactly_one_part(parts: int) -> None:
    chosen = [[uri for uri in URIS if uri in sample(f"{n}/{parts}", "")] for n in range(1, parts + 1)]
    assert sorted(uri for part in chosen for uri in part) == sorted(URIS)


@pytest.mark.parametrize("percent", [1, 5, 50, 100])
def test_a_percentage_selects_about_that_share_and_depends_only_on_the_seed(percent: int) -> None:
    chosen = {uri for uri in URIS if uri in sample(f"{percent}%", "a seed")}
    assert abs(len(chosen) - len(URIS) * percent / 100) < 100
    assert chosen == {uri for uri in URIS if uri in sample(f"{percent}.0%", "a seed")}
    if percent < 100:
        assert chosen != {uri for uri in URIS if uri in sample(f"{percent}%", "another")}


@pytest.mark.parametrize("text", ["", "5", "0%", "101%", "-1%", "0/3", "4/3", "1/0", "a/b", "1/2/3", "5 %"])
def test_text_that_describes_no_subset_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        sample(text, "")
    assert caught.value.kind == "bad-subset"


def test_picked_files_are_in_the_sample_and_a_percentage_picks_at_least_one() -> None:
    half = sample("50%", "a")
    assert sorted(picked(URIS, "50%", "a")) == sorted(uri for uri in URIS if uri in half)
    assert picked(URIS, "50%", "a") == picked(URIS[::-1], "50%", "a")
    assert sorted(picked(URIS, "100%", "a")) == sorted(URIS)
    assert len(picked(URIS[:3], "0.001%", "a")) == 1
    assert [len(picked(URIS[:1], f"{n}/7", "")) for n in range(1, 8)].count(1) == 1
    assert picked((), "50%", "a") == []


def test_runs_that_each_read_one_part_together_read_everything() -> None:
    parts = [picked(URIS, f"{n}/4", seed_of(f"{n}/4", f"run {n}")) for n in (1, 2, 3, 4)]
    assert sorted(uri for part in parts for uri in part) == sorted(URIS)
    assert seed_of("5%", "run 1") == "run 1"
    assert [sample(text, "").is_all for text in ("100%", "1/1", "99.9%", "1/2")] == [True, True, False, False]
