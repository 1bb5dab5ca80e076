"""Sorting lines: the order is Java's, whatever fits into memory, and no temporary file is left."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.savepoints.tables.line_order import in_java_order, java_order

LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))


@given(LINES, st.integers(1, 40))
def test_the_order_does_not_depend_on_how_many_lines_fit_into_memory(lines: list[str], run_characters: int) -> None:
    assert list(in_java_order(lines, run_characters=run_characters)) == sorted(lines, key=java_order)


def test_lines_are_compared_by_utf_16_units() -> None:
    assert list(in_java_order(["\uffff", "😀", "a\r", "a"])) == ["a", "a\r", "😀", "\uffff"]


def test_temporary_files_are_removed_if_sorting_is_abandoned(tmp_path: Path) -> None:
    lines = in_java_order(map(str, range(100)), str(tmp_path), 10)
    assert next(lines) == "0"
    assert list(tmp_path.iterdir())
    lines.close()  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError):
        list(in_java_order((str(1 // (50 - n)) for n in range(100)), str(tmp_path), 10))
    assert not list(tmp_path.iterdir())
