"""Sketches and bitmaps against a computation of one value at a time, in any order, in any batches and after merges."""

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.aggregates.accumulators import FoldingAccumulator, accumulator_of
from statelib.aggregates.grouping import Grouping
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.sketches.bitmap import POSITIONS
from statelib.aggregates.sketches.hashes import sketch_hashes
from statelib.aggregates.sketches.hll import LG_K
from statelib.aggregates.sketches.kll import Levels
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.types import BYTES, DOUBLE, LONG, STRING
from statelib.wire.sorting import order_in_groups, ranks_of_doubles
from tests.support.extent import examples

MASK = 2**64 - 1
SPEC = {"long": LONG, "string": STRING, "bytes": BYTES}
ARROW = {"long": pa.int64(), "string": pa.string(), "bytes": pa.binary()}


def rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & MASK


def murmur(data: bytes) -> tuple[int, int]:
    """MurmurHash3 x64 of 128 bits, with the seed of DataSketches, as its author describes it."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def mixed(word: int, first: int, bits: int, second: int) -> int:
        return rotated(word * first & MASK, bits) * second & MASK

    def finished(word: int) -> int:
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            word = (word ^ word >> 33) * factor & MASK
        return word ^ word >> 33

    h1 = h2 = 9001
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = struct.unpack_from("<QQ", data, at)
        h1 = (rotated(h1 ^ mixed(k1, c1, 31, c2), 27) + h2) * 5 + 0x52DCE729 & MASK
        h2 = (rotated(h2 ^ mixed(k2, c2, 33, c1), 31) + h1) * 5 + 0x38495AB5 & MASK
    tail = data[whole:]
    h2 ^= mixed(int.from_bytes(tail[8:], "little"), c2, 33, c1)
    h1 ^= mixed(int.from_bytes(tail[:8], "little"), c1, 31, c2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & MASK
    h1, h2 = finished(h1), finished(h2 + h1 & MASK)
    h1 = h1 + h2 & MASK
    return h1, h2 + h1 & MASK


def as_bytes(value: Any) -> bytes:
    return struct.pack("<q", value) if isinstance(value, int) else value.encode() if isinstance(value, str) else value


def coupon(value: Any) -> int:
    h1, h2 = murmur(as_bytes(value))
    return min(64 - h2.bit_length(), 62) + 1 << 26 | h1 & 2**26 - 1


def slow_hll(values: list[Any]) -> bytes | None:
    coupons = sorted({coupon(value) for value in values if as_bytes(value)})
    if not coupons:
        return None
    count = len(coupons)
    listed = b"".join(struct.pack("<I", each) for each in coupons)
    if count < 8:
        return bytes([2, 1, 7, LG_K, 3, 8, count, 8]) + listed
    if count <= 384:
        places = next(n for n in range(5, 10) if 4 * count <= 3 * 2**n)
        return bytes([3, 1, 7, LG_K, places, 8, 0, 9]) + struct.pack("<i", count) + listed
    registers = [0] * 2**LG_K
    for each in coupons:
        registers[each % 2**LG_K] = max(registers[each % 2**LG_K], each >> 26)
    sums = [math.fsum(2.0**-r for r in registers if (r < 32) is low) for low in (True, False)]
    head = bytes([10, 1, 7, LG_K, 0, 24, 0, 10]) + struct.pack("<dddii", 0.0, *sums, registers.count(0), 0)
    return head + bytes(registers)


def slow_theta(values: list[Any]) -> bytes | None:
    hashes = sorted({murmur(as_bytes(value))[0] >> 1 for value in values if as_bytes(value)})
    if not hashes:
        return None
    head = bytes([3, 3, 0, 0, 0x1A, 0xCC, 0x93])
    stored = b"".join(struct.pack("<q", each) for each in hashes[:4096])
    if len(hashes) == 1:
        return b"\1" + head + stored
    if len(hashes) <= 4096:
        return b"\2" + head + struct.pack("<ii", len(hashes), 0) + stored
    return b"\3" + head + struct.pack("<iiq", 4096, 0, hashes[4096]) + stored


def slow_bitmap(values: list[int]) -> bytes | None:
    number = sum(1 << value for value in set(values))
    return number.to_bytes(max(values) // 8 + 1, "little") if values else None


SLOW = {"approx_distinct": slow_hll, "theta": slow_theta, "bitmap": slow_bitmap}


def sketches(agg: str, type_: str, groups: list[list[Any]], cuts: int, seed: int) -> list[bytes | None]:
    """The sketch of each group, of shuffled values in so many batches."""
    computation = accumulator_of(AggregateSpec(agg, ("x", SPEC[type_])))
    values = pa.array([value for group in groups for value in group], ARROW[type_])
    codes = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    order = np.random.default_rng(seed).permutation(len(codes))
    state = pa.nulls(len(groups), pa.binary())
    for rows in np.array_split(order, cuts):
        grouping = Grouping(codes[rows], np.arange(len(groups)))
        state = computation.merge(state, computation.partial(pa.table({"x": values.take(pa.array(rows))}), grouping))
    return state.to_pylist()


def quantiles(groups: list[list[float]], cuts: int, seed: int) -> list[Levels | None]:
    """The sketch of each group, of shuffled values in so many batches, as levels of values."""
    computation = accumulator_of(AggregateSpec("approx_quantiles", ("x", DOUBLE)))
    values = np.array([value for group in groups for value in group], np.float64)
    codes = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    state = pa.nulls(len(groups), pa.binary())
    for rows in np.array_split(np.random.default_rng(seed).permutation(len(codes)), cuts):
        grouping = Grouping(codes[rows], np.arange(len(groups)))
        state = computation.merge(state, computation.partial(pa.table({"x": values[rows]}), grouping))
    return [None if sketch is None else parsed(sketch) for sketch in state.to_pylist()]


def parsed(sketch: bytes) -> Levels:
    if sketch[1] == 2:
        return Levels.of_values(np.frombuffer(sketch, "<f8", 1, 8))
    return Levels.parsed(sketch)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.lists(st.floats(allow_nan=True), max_size=30), min_size=1, max_size=5), st.integers(1, 3))
def test_a_small_quantile_sketch_lists_its_values(groups: list[list[float]], cuts: int) -> None:
    for group, sketch in zip(groups, quantiles(groups, cuts, cuts), strict=True):
        numbers = sorted(value + 0.0 for value in group if value == value)
        if not numbers:
            assert sketch is None
            continue
        assert sketch is not None
        assert (sketch.count, sketch.least, sketch.most) == (len(numbers), numbers[0], numbers[-1])
        assert [list(level) for level in sketch.values] == [numbers]


@pytest.mark.parametrize("cuts", [1, 3, 40])
@pytest.mark.parametrize("shape", ["normal", "exponential"])
def test_the_ranks_of_a_large_quantile_sketch_are_about_right(cuts: int, shape: str) -> None:
    chance = np.random.default_rng(cuts)
    groups = [getattr(chance, shape)(size=size).tolist() for size in (200, 201, 1000, 30_000, 120_000)]
    sketches_of = quantiles(groups, cuts, 1)
    assert [repr(sketch) for sketch in quantiles(groups, cuts, 1)] == [repr(sketch) for sketch in sketches_of]
    for group, sketch in zip(groups, sketches_of, strict=True):
        assert sketch is not None
        numbers = np.sort(group)
        assert (sketch.count, sketch.least, sketch.most) == (len(group), numbers[0], numbers[-1])
        stored = np.concatenate(sketch.values)
        weights = np.concatenate([np.full(len(level), 2.0**i) for i, level in enumerate(sketch.values)])
        assert weights.sum() == len(group)
        assert len(stored) <= 700
        order = np.argsort(stored)
        ranks = np.cumsum(weights[order])
        true_ranks = np.searchsorted(numbers, stored[order], side="right")
        assert np.abs(ranks - true_ranks).max() <= 0.02 * len(group)


VALUES = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(max_size=40) | st.integers(0, 50).map("é".__mul__),
    "bytes": st.binary(max_size=40),
}


@pytest.mark.parametrize("agg", ["approx_distinct", "theta"])
@pytest.mark.parametrize("type_", list(VALUES))
def test_small_sketches_have_the_bytes_of_a_slow_computation(agg: str, type_: str) -> None:
    @settings(max_examples=examples(30), deadline=None)
    @given(st.lists(st.lists(VALUES[type_], max_size=20), min_size=1, max_size=6), st.integers(1, 3))
    def check(groups: list[list[Any]], cuts: int) -> None:
        repeated = [[*group, *group[:2], None] for group in groups]
        assert sketches(agg, type_, repeated, cuts, cuts) == [SLOW[agg](group) for group in groups]

    check()


@pytest.mark.parametrize("agg", ["approx_distinct", "theta"])
@pytest.mark.parametrize("cuts", [1, 4])
def test_sketches_of_every_size_have_the_bytes_of_a_slow_computation(agg: str, cuts: int) -> None:
    sizes = (0, 1, 7, 8, 24, 25, 383, 384, 385, 500, 4095, 4096, 4097, 9000)
    groups = [[f"{size} {n}" for n in range(size)] for size in sizes]
    assert sketches(agg, "string", groups, cuts, cuts) == [SLOW[agg](group) for group in groups]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.lists(st.integers(0, POSITIONS - 1), max_size=30), min_size=1, max_size=5), st.integers(1, 3))
def test_bitmaps_are_the_sets_of_their_numbers(groups: list[list[int]], cuts: int) -> None:
    assert sketches("bitmap", "long", groups, cuts, cuts) == list(map(slow_bitmap, groups))


STORED_BITMAPS = st.none() | st.binary(max_size=9) | st.binary(max_size=3).map(lambda data: data + bytes(4))


@given(st.lists(st.tuples(STORED_BITMAPS, STORED_BITMAPS), min_size=1, max_size=5), st.integers(0, 2))
def test_stored_bitmaps_are_merged_without_zeros_at_their_end(
    rows: list[tuple[bytes | None, bytes | None]], start: int
) -> None:
    before, more = (pa.array(column, pa.binary())[start:] for column in zip(*rows, strict=True))
    merged = accumulator_of(AggregateSpec("bitmap", ("x", LONG))).merge(before, more)
    union = [
        int.from_bytes(one or b"", "little") | int.from_bytes(other or b"", "little") for one, other in rows[start:]
    ]
    assert merged.to_pylist() == [n.to_bytes((n.bit_length() + 7) // 8, "little") if n else None for n in union]


@pytest.mark.parametrize("position", [-1, POSITIONS])
def test_a_position_outside_of_a_bitmap_is_an_error(position: int) -> None:
    with pytest.raises(InvalidRequestError, match="bitmap of x: expected numbers from 0 to 32767") as caught:
        sketches("bitmap", "long", [[1, position]], 1, 1)
    assert (caught.value.kind, "bitmap_bucket_number" in caught.value.hint) == ("bitmap-position", True)


def test_bytes_are_those_of_datasketches() -> None:
    """The bytes that the library datasketches 5.2 serializes."""
    assert sketches("approx_distinct", "long", [[0, 1, 2]], 1, 1) == [
        bytes.fromhex("0201070c03080308cbd7c2042bf2fb06862ff90d")
    ]
    assert sketches("theta", "long", [[1], [0, 1]], 1, 1) == [
        bytes.fromhex("01030300001acc9315f97dcbbd86a105"),
        bytes.fromhex("02030300001acc93020000000000000015f97dcbbd86a105e56b61eec8804420"),
    ]


def test_hashes_of_an_empty_column_are_empty() -> None:
    assert [len(half) for half in sketch_hashes(pa.array([], pa.string()))] == [0, 0]


@settings(max_examples=examples(60), deadline=None)
@given(
    agg=st.sampled_from(["approx_distinct", "theta", "approx_quantiles", "bitmap"]),
    sizes=st.lists(st.sampled_from([0, 1, 5, 150, 210, 700, 9000]), min_size=2, max_size=2),
    groups=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_events_are_added_as_their_partial_sketches_are(agg: str, sizes: list[int], groups: int, seed: int) -> None:
    """A run that reads the state adds its events, and a blind one stores partial sketches, which are merged later."""
    random, computation = np.random.default_rng(seed), accumulator_of(AggregateSpec(agg, ("x", LONG)))
    assert isinstance(computation, FoldingAccumulator)
    batches = []
    for size in sizes:
        codes = random.integers(0, groups, size) * random.integers(0, 2, size)
        values = pa.array(random.integers(0, POSITIONS, size), mask=random.random(size) < 0.1)
        batches.append((pa.table({"x": values}), Grouping(codes, np.zeros(groups, np.int64))))
    before, partial = (computation.partial(*batch) for batch in batches)
    assert computation.fold(before, *batches[1]).equals(computation.merge(before, partial))


@pytest.mark.parametrize("agg", ["approx_distinct", "theta", "approx_quantiles"])
@pytest.mark.parametrize("stored", [b"", b"abcdefgh", bytes(12), bytes([10, 1, 7, LG_K, 0, 24, 0, 2]) + bytes(4128)])
def test_other_bytes_are_refused(agg: str, stored: bytes) -> None:
    computation = accumulator_of(AggregateSpec(agg, ("x", LONG)))
    more = pa.array([bytes.fromhex("0201070c03080308cbd7c2042bf2fb06862ff90d")])
    with pytest.raises(CorruptStateError, match=f"{agg} of x: expected") as caught:
        computation.merge(pa.array([stored]), more)
    assert caught.value.kind == "bad-sketch"


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2**32, 2**32 + 1, 2**64 - 1]) | VALUES["long"])))
def test_entries_are_ordered_by_group_and_rank(pairs: list[tuple[int, int]]) -> None:
    codes = np.array([code for code, _ in pairs], np.int64)
    ranks = np.array([rank % 2**64 for _, rank in pairs], np.uint64)
    order = order_in_groups(codes, ranks)
    assert list(zip(codes[order].tolist(), ranks[order].tolist(), strict=True)) == sorted(
        (code, rank % 2**64) for code, rank in pairs
    )


def test_the_entries_of_two_ordered_columns_are_merged() -> None:
    """They are two ascending runs, which are sorted in another way. Some ranks differ in their lower halves only."""
    random = np.random.default_rng(1)
    runs = [sorted((int(code), int(rank)) for code, rank in random.integers(0, 40, (2000, 2))) for _ in range(2)]
    codes, ranks = (np.array([pair[i] for run in runs for pair in run]) for i in (0, 1))
    order = order_in_groups(codes, ranks.astype(np.uint64))
    assert list(zip(codes[order].tolist(), ranks[order].tolist(), strict=True)) == sorted(runs[0] + runs[1])


@given(st.lists(st.floats(allow_nan=False).map(lambda value: value + 0.0)))
def test_ranks_are_in_the_order_of_the_doubles(values: list[float]) -> None:
    column = np.array(values, np.float64)
    assert column[np.argsort(ranks_of_doubles(column))].tolist() == sorted(values)
