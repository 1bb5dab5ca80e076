"""Checks of the result of a user function: rows to write and timers to set, only for the keys of its input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import group_rows, one_array
from statelib.errors import InvalidRequestError
from statelib.model.amounts import number_of
from statelib.serializers.columns.arrow import fields_beyond, numbers, other_meaning
from statelib.serializers.columns.decimal_words import as_doubles
from statelib.serializers.scalars.windows import MOMENT

DOMAIN_COLUMNS = ("event_time", "processing_time")
"""The columns of a result with timers, by the number of the time domain as in ``functions.timers``."""
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FunctionResult:
    """The checks of one result. ``key_arrays`` are the key columns of the function's input, with each key once.

    All methods raise InvalidRequestError (``bad-function-result``) if the result is wrong."""

    state: str
    reference: str
    key_columns: tuple[str, ...]
    key_arrays: Sequence[pa.Array]
    with_timers: bool

    def parts(self, answer: object) -> tuple[object, object, dict[object, object]]:
        """Return (rows, timers, outputs), where timers is None and outputs is empty if the function did not return
        any."""
        parts = list(answer) if isinstance(answer, tuple) else [answer]
        size, last = len(parts), parts[-1] if parts else None
        outputs = last if size > 1 and isinstance(last, dict) else {}
        if outputs is last:
            parts.pop()
        if len(parts) == 2 and parts[1] is not None and not self.with_timers:
            raise self.bad("expected a pyarrow.Table, found a tuple: only a state with 'on_timer' has timers")
        if not 1 <= len(parts) <= 2:
            raise self.bad(f"expected (rows, timers) or (rows, timers, outputs), found a tuple of {size}")
        return parts[0], parts[1] if len(parts) == 2 else None, outputs

    def checked_outputs(
        self, outputs: Mapping[object, object], declared: Mapping[str, pa.Schema]
    ) -> dict[str, pa.Table]:
        """Return the rows to emit by their output, with the columns and types that the pipeline file declares."""
        tables = {}
        for name, rows in outputs.items():
            if not isinstance(name, str) or name not in declared:
                close = get_close_matches(str(name), declared, 1)
                meant = f", did you mean {close[0]!r}?" if close else ""
                names = ", ".join(declared) or "none"
                raise self.bad(f"'outputs' in the pipeline file declares {names}, found output {name!r}{meant}")
            tables[name] = self._with_columns(rows, declared[name], f"output {name}: ")
        return tables

    def checked_rows(self, result: object, expected: pa.Schema) -> pa.Table:
        """Return the rows of a result with the expected columns and types."""
        return self._with_keys(self._with_columns(result, expected))

    def timers(self, result: object) -> tuple[Rows, npt.NDArray[np.int8], Rows]:
        """Return (row of the key, time domain, epoch milliseconds) per timer, as three arrays."""
        table = self._table(result)
        domains = [name for name in DOMAIN_COLUMNS if name in table.column_names]
        if not domains or sorted(table.column_names) != sorted([*self.key_columns, *domains]):
            expected = [*self.key_columns, *DOMAIN_COLUMNS]
            raise self.bad(f"timers: expected the columns {expected}, one time or both, found {table.column_names}")
        keys = zip(self.key_columns, self.key_arrays, strict=True)
        fields = [(name, array.type) for name, array in keys] + [(name, MOMENT) for name in domains]
        table = self._with_keys(self._cast(table, pa.schema(fields)))
        owners = self.rows_of(table, once=False)
        timers_by_domain = []
        for name in domains:
            column = one_array(table[name])
            rows_with_timer = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            moments = np.asarray(numbers(column.drop_null(), "i8"), np.int64)
            timers_by_domain.append(
                (owners[rows_with_timer], np.full(len(rows_with_timer), DOMAIN_COLUMNS.index(name), np.int8), moments)
            )
        rows, numbered, moments = (np.concatenate(part) for part in zip(*timers_by_domain, strict=True))
        return rows, numbered, moments

    def rows_of(self, result: pa.Table, *, once: bool) -> Rows:
        """Return the row of its key in the input, per row of the result.

        A key that is not in the input is an error, and so is a repeated key if ``once`` is set."""
        size = len(self.key_arrays[0])
        returned = [one_array(result[name]) for name in self.key_columns]
        pairs = zip(self.key_arrays, returned, strict=True)
        rows = group_rows([pa.concat_arrays(pair) for pair in pairs]).codes[size:]
        problem = ""
        if (rows >= size).any():
            row, problem = int(np.argmax(rows >= size)), f"is not among the {number_of(size, 'key')} of this batch"
        elif once and (np.bincount(rows, minlength=size) > 1).any():
            counts = np.bincount(rows)[rows]
            row, problem = int(np.argmax(counts)), f"is there {counts.max()} times, expected once"
        if problem:
            key = ", ".join(f"{name}={result[name][row].as_py()!r}" for name in self.key_columns)
            raise self.bad(f"key {key} {problem}")
        return rows

    def bad(self, problem: str) -> InvalidRequestError:
        """Return the error of a wrong result."""
        return InvalidRequestError(
            f"result of function {self.reference} for state {self.state}: {problem}", kind="bad-function-result"
        )

    def _with_columns(self, result: object, expected: pa.Schema, what: str = "") -> pa.Table:
        """Return a table with the expected columns and types. ``what``: the beginning of errors."""
        table = self._table(result, what)
        if sorted(table.column_names) != sorted(expected.names):
            raise self.bad(f"{what}expected the columns {expected.names}, found {table.column_names}")
        return self._cast(table, expected, what)

    def _table(self, result: object, what: str = "") -> pa.Table:
        if not isinstance(result, pa.Table):
            raise self.bad(f"{what}expected a pyarrow.Table, found {type(result).__name__}")
        return result

    def _cast(self, table: pa.Table, expected: pa.Schema, what: str = "") -> pa.Table:
        table = table.select(expected.names)
        for field in expected:
            given = table.schema.field(field.name).type
            if fields_beyond(given, field.type):
                raise self.bad(f"{what}column {field.name}: expected the fields of {field.type}, found {given}")
            if problem := other_meaning(given, field.type):
                raise self._wrong_types(table, expected, what, f"column {field.name}: {problem}")
            if pa.types.is_decimal(given) and pa.types.is_floating(field.type):
                doubles = as_doubles(one_array(table[field.name]))
                table = table.set_column(table.column_names.index(field.name), field.name, doubles)
        try:
            return table.cast(expected)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._wrong_types(table, expected, what, error) from error

    def _wrong_types(self, table: pa.Table, expected: pa.Schema, what: str, problem: object) -> InvalidRequestError:
        return self.bad(f"{what}expected the types {_types(expected)}, found {_types(table.schema)}: {problem}")

    def _with_keys(self, table: pa.Table) -> pa.Table:
        """Return the table if no key in it is null."""
        for name in self.key_columns:
            if table[name].null_count:
                raise self.bad(f"key column {name} is null in {number_of(table[name].null_count, 'row')}")
        return table


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
