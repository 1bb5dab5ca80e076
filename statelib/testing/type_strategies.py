"""Hypothesis strategies of state types, and of the plain values of a type (see ``reference.codecs``)."""

import decimal

from hypothesis import strategies as st

from statelib.model.types import (
    BYTES,
    SCALARS,
    VOID,
    ArrayOf,
    Decimal,
    Field,
    ListOf,
    MapOf,
    Row,
    Scalar,
    StateType,
    Ttl,
    Tuple,
)
from statelib.serializers.containers.arrays import ARRAY_ELEMENTS
from statelib.testing.reference.codecs import Plain

_FIELD_NAMES = st.text(st.characters(exclude_characters=":<>,", exclude_categories=["Z", "C"]), min_size=1, max_size=5)
_UNKEYABLE = (BYTES, VOID)

_CHARACTERS = st.one_of(
    st.sampled_from("a\0\x7f\x80é日\u3fff\u4000\ud7ff\ue000\uffff😀\U0010ffff"),
    st.characters(exclude_categories=["Cs"]),
)
_TEXT = st.one_of(st.text("ab", max_size=5), st.text(_CHARACTERS, max_size=5), st.integers(100, 400).map("é".__mul__))


def _signed(bits: int) -> st.SearchStrategy[Plain]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_VALUES: dict[str, st.SearchStrategy[Plain]] = {
    "boolean": st.booleans(),
    "byte": _signed(8),
    "short": _signed(16),
    "int": _signed(32),
    "long": _signed(64),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": _TEXT,
    "bytes": st.binary(max_size=6),
    "date": st.one_of(st.integers(-800_000, 100_000), _signed(32)),
    "time": st.integers(0, 86_400 * 10**9 - 1),
    "datetime": _signed(64),
    "instant": _signed(64),
    "void": st.none(),
}


def state_types(*, keyable: bool = False) -> st.SearchStrategy[StateType]:
    """Return a strategy of state types. If ``keyable``, only types that Flink accepts for keys are drawn."""
    scalars = [t for t in SCALARS.values() if not (keyable and t in _UNKEYABLE)]
    leaves: st.SearchStrategy[StateType] = st.one_of(st.sampled_from(scalars), _decimal_types())
    if not keyable:
        leaves = st.one_of(leaves, st.sampled_from([ArrayOf(e) for e in ARRAY_ELEMENTS]))
    return st.recursive(leaves, _composites if keyable else _composites_and_ttl, max_leaves=5)


def _decimal_types() -> st.SearchStrategy[StateType]:
    return st.integers(1, 38).flatmap(lambda digits: st.builds(Decimal, st.just(digits), st.integers(0, digits)))


def _decimals(type_: Decimal) -> st.SearchStrategy[Plain]:
    most = 10**type_.precision - 1
    unscaled = st.one_of(st.integers(-most, most), st.sampled_from([0, 1, -1]), st.just(min(10, most)))
    exact = decimal.Context(prec=type_.precision)
    return unscaled.map(lambda number: decimal.Decimal(number).scaleb(-type_.scale, exact))


def _composites_and_ttl(parts: st.SearchStrategy[StateType]) -> st.SearchStrategy[StateType]:
    return st.one_of(_composites(parts), st.builds(Ttl, parts))


def _composites(parts: st.SearchStrategy[StateType]) -> st.SearchStrategy[StateType]:
    names = st.lists(_FIELD_NAMES, min_size=1, max_size=9, unique=True)
    rows = names.flatmap(lambda n: st.tuples(*(st.builds(Field, st.just(name), parts) for name in n))).map(Row)
    tuples = st.lists(parts, min_size=1, max_size=4).map(lambda fields: Tuple(tuple(fields)))
    keys = parts.filter(lambda t: t != VOID)
    return st.one_of(rows, tuples, st.builds(ListOf, parts), st.builds(MapOf, keys, parts))


def plain_values(type_: StateType) -> st.SearchStrategy[Plain]:  # noqa: PLR0911 - one case per type
    """Return a strategy of the values of a type. Fields of rows and values of maps may be None. NaN is never drawn,
    because it equals no value."""
    match type_:
        case Tuple(fields):
            return st.tuples(*map(plain_values, fields)).map(list)
        case Row(fields):
            return st.tuples(*(_nullable(field.type) for field in fields)).map(list)
        case Ttl(value):
            return st.tuples(_signed(64), plain_values(value)).map(list)
        case ArrayOf(element) | ListOf(element):
            return st.lists(plain_values(element), max_size=4)
        case MapOf(key, value):
            return st.lists(st.tuples(plain_values(key), _nullable(value)), max_size=3)
        case Decimal():
            return _decimals(type_)
        case _:
            assert isinstance(type_, Scalar), f"no strategy for {type_}"
            return _VALUES[type_.name]


def _nullable(type_: StateType) -> st.SearchStrategy[Plain]:
    return st.one_of(st.none(), plain_values(type_))
