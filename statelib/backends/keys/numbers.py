"""Serialized keys as 64-bit numbers, which sort and compare several times as fast as their bytes."""

import numpy as np
import numpy.typing as npt

from statelib.wire.ragged import Bytes, Ragged, big_endian_words, padded

Words = npt.NDArray[np.uint64]
_WORD = 8
_SAMPLED = 64
"""The number of rows that are compared first. Most bytes that differ, differ in them."""


def key_numbers(*sides: Ragged) -> list[Words] | None:
    """Return one number per row of each side, in the order of the bytes: two rows of any sides are equal if their
    numbers are. Return None unless all rows have one length and differ in at most 8 bytes."""
    widths = {rows.width or None for rows in sides}
    width = widths.pop()
    if widths or width is None:
        return None
    matrices = [rows.matrix for rows in sides]
    differing = _differing(matrices, most=_WORD)
    return None if differing is None else [_packed(matrix, differing)[0] for matrix in matrices]


def first_numbers(*sides: Ragged) -> list[Words]:
    """Return eight bytes of each row as one number, the first ones in which a sample of the rows differs. Equal rows
    have equal numbers, but so may others. All rows have one length, which is not 0."""
    matrices = [rows.matrix for rows in sides]
    columns: list[int] = np.flatnonzero(_differing_in_sample(matrices))[:_WORD].tolist()
    return [_packed(matrix, columns)[0] for matrix in matrices]


def sort_columns(keys: Ragged) -> list[Words]:
    """Return the bytes of at least one key as columns of numbers, whose order is that of the bytes.

    They are the big-endian 64-bit words, padded with zeros, and then the lengths, which only decide between keys that
    differ in zero bytes at their end. If all keys have one length, it is left out, and so are the bytes in which the
    keys do not differ."""
    if keys.width:
        return _packed(keys.matrix, _differing([keys.matrix], most=keys.width) or [])
    lengths = keys.lengths
    data, starts = padded(keys, _WORD)
    columns = [_padded_words(data, starts + at, lengths - at) for at in range(0, int(lengths.max()), _WORD)]
    return [*columns, lengths.astype(np.uint64)]


def _padded_words(data: Bytes, starts: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> Words:
    """Return the bytes at each place, at most eight of the ``left`` ones, as a number with zeros at its end."""
    words = big_endian_words(data, np.minimum(starts, len(data) - _WORD))
    unused = (8 * (_WORD - np.clip(left, 1, _WORD))).astype(np.uint64)
    return np.where(left > 0, words >> unused << unused, np.uint64(0))


def is_ascending(columns: list[Words]) -> bool:
    """Return whether no row is smaller than the row before it, so that there is nothing to sort."""
    tied = np.ones(len(columns[0]) - 1, np.bool_)
    for column in columns:
        if bool(np.any(tied & (column[1:] < column[:-1]))):
            return False
        tied &= column[1:] == column[:-1]
    return True


def _differing(matrices: list[Bytes], most: int) -> list[int] | None:
    """Return the columns in which the rows of all matrices differ, or None if they are more than ``most``."""
    first, differs = matrices[0][0], _differing_in_sample(matrices)
    for column in np.flatnonzero(~differs).tolist():
        if int(np.count_nonzero(differs)) > most:
            return None
        differs[column] = any(bool((matrix[:, column] != first[column]).any()) for matrix in matrices)
    columns: list[int] = np.flatnonzero(differs).tolist()
    return columns if len(columns) <= most else None


def _differing_in_sample(matrices: list[Bytes]) -> npt.NDArray[np.bool_]:
    """Return whether some rows of the matrices differ in each column."""
    first = matrices[0][0]
    differs = np.zeros(len(first), np.bool_)
    for matrix in matrices:
        sampled = matrix[:: max(len(matrix) // _SAMPLED, 1)]
        differs |= (sampled != first).any(axis=0)
    return differs


def _packed(matrix: Bytes, columns: list[int]) -> list[Words]:
    """Return the bytes in some columns of each row as big-endian 64-bit numbers, at least one, padded with zeros."""
    count = max(-(-len(columns) // _WORD), 1)
    padded = np.zeros((len(matrix), count * _WORD), np.uint8)
    for place, column in enumerate(columns):
        padded[:, place] = matrix[:, column]
    packed = padded.view(">u8")
    return [packed[:, i].astype(np.uint64) for i in range(count)]
