"""Rows of bytes are taken, gathered and joined as lists of bytes would be, whatever their lengths and their order."""

from random import Random

import numpy as np
import pytest

from statelib.wire.ragged import JoinedRows, Ragged, as_arrow, as_ragged, from_list, gather, join

SEEDS = range(30)


def random_rows(random: Random, count: int) -> list[bytes]:
    """Return rows of one length, of few lengths or of many."""
    longest = random.choice([0, 1, 9, 400])
    lengths = random.choice([[longest], [0, longest], range(longest + 1)])
    return [random.randbytes(random.choice(lengths)) for _ in range(count)]


def cut(rows: list[bytes], random: Random) -> tuple[Ragged, list[bytes]]:
    """Return some neighbouring rows, with others before and after them in the same bytes."""
    start = random.randrange(len(rows) + 1)
    stop = random.randint(start, len(rows))
    return from_list(rows).slice(start, stop), rows[start:stop]


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_taken_in_any_order_and_more_than_once(seed: int) -> None:
    random = Random(seed)
    ragged, rows = cut(random_rows(random, random.choice([1, 30, 2000])), random)
    numbers = [random.randrange(len(rows)) for _ in range(random.choice([0, 1, 50, 3000]))] if rows else []
    numbers = random.choice([numbers, sorted(numbers)])
    taken = ragged.take(np.array(numbers, np.int64))
    assert taken.to_list() == [rows[number] for number in numbers]
    assert len(taken.data) == taken.offsets[-1]


@pytest.mark.parametrize("order", ["ascending", "any", "overlapping"])
@pytest.mark.parametrize("seed", SEEDS[:10])
def test_spans_of_bytes_are_gathered(seed: int, order: str) -> None:
    random = Random(seed)
    data = random.randbytes(5_000)
    bounds = sorted(random.randrange(len(data) + 1) for _ in range(random.choice([0, 2, 400])))
    places = list(zip(bounds[::2], bounds[1::2], strict=True))
    if order == "any":
        random.shuffle(places)
    if order == "overlapping":
        places = [(start, min(stop + 3, len(data))) for start, stop in places]
    starts, lengths = np.array([(a, b - a) for a, b in places], np.int64).reshape(-1, 2).T
    gathered = gather(np.frombuffer(data, np.uint8), starts, lengths)
    assert gathered.to_list() == [data[start:stop] for start, stop in places]


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_joined_side_by_side(seed: int) -> None:
    random = Random(seed)
    count = random.choice([0, 1, 700])
    parts = [random_rows(random, count) for _ in range(random.randint(1, 4))]
    joined = join([from_list(part) for part in parts])
    assert joined.to_list() == [b"".join(rows) for rows in zip(*parts, strict=True)]
    assert len(joined.data) == joined.offsets[-1]


@pytest.mark.parametrize("are_moved", [False, True])
@pytest.mark.parametrize("seed", SEEDS[:10])
def test_rows_that_were_joined_are_joined_with_others(seed: int, are_moved: bool) -> None:
    random = Random(seed)
    count = random.choice([0, 1, 700])
    first, second, third, fourth = parts = [random_rows(random, count) for _ in range(4)]
    inner = join([from_list(second), from_list(third)])
    if are_moved:
        assert len(inner.data) == inner.offsets[-1]
    outer = join([from_list(first), inner, from_list(fourth)])
    assert outer.to_list() == [b"".join(rows) for rows in zip(*parts, strict=True)]
    assert inner.to_list() == [left + right for left, right in zip(second, third, strict=True)]
    assert len(outer) == len(inner) == count


def test_bytes_of_several_parts_are_moved_once() -> None:
    texts, numbers = from_list([b"a", b"", b"bcd"]), from_list([b"1", b"2", b"3"])
    inner = join([numbers, texts])
    outer = join([numbers, inner, numbers])
    assert isinstance(outer, JoinedRows)
    assert [part.to_list() for part in outer.parts] == [[b"11", b"22", b"33"], texts.to_list(), numbers.to_list()]
    assert isinstance(inner, JoinedRows)
    assert len(inner.parts) == 2, "nobody asked for its bytes"
    assert outer.to_list() == [b"11a1", b"222", b"33bcd3"]
    assert len(outer.parts) == 1


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_rows_are_the_same_as_an_arrow_array(seed: int) -> None:
    random = Random(seed)
    ragged, rows = cut(random_rows(random, 100), random)
    array = as_arrow(ragged)
    assert array.to_pylist() == rows
    assert as_ragged(array).to_list() == rows
    assert as_ragged(array.slice(len(rows) // 2)).to_list() == rows[len(rows) // 2 :]


@pytest.mark.parametrize("places", [[(0, 3), (4, 7)], [(-2, 3), (4, 2)], [(0, 3), (11, 2)]])
def test_bytes_before_and_after_the_data_are_not_read(places: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(places, np.int64).T
    data = np.arange(10, dtype=np.uint8)
    with pytest.raises((ValueError, IndexError)):
        gather(data, starts, lengths)
    with pytest.raises((ValueError, IndexError)):
        Ragged(data, np.array([0, 3, 11])).take(np.array([0, 1]))
