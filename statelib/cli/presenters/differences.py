"""Differing entries as people read them: of two rows of fields, the fields that differ."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from statelib.cli.presenters.blocks import TableColumn, TextTable
from statelib.cli.presenters.values import short_bytes

_OTHERS = ", …}"
"""The end of a row of which equal fields are left out."""


def differences_table(title: str, entries: Iterable[Mapping[str, str]]) -> TextTable:
    """Return a table of entries, which have the same columns, ``before`` and ``after`` among them."""
    shown = [_shortened(entry) for entry in entries]
    columns = [TableColumn(name.replace("_", " "), wraps=name in ("before", "after")) for name in shown[0]]
    return TextTable(title, columns, [list(entry.values()) for entry in shown])


def _shortened(entry: Mapping[str, str]) -> dict[str, str]:
    before, after = changed_fields(entry["before"], entry["after"])
    return {name: short_bytes(text) for name, text in (dict(entry) | {"before": before, "after": after}).items()}


def changed_fields(before: str, after: str) -> tuple[str, str]:
    """Return the texts of two values. If both are rows with the same fields, equal fields are left out."""
    rows = _fields(before), _fields(after)
    if not all(rows) or rows[0].keys() != rows[1].keys():
        return before, after
    parts = _differing(*rows)
    if len(parts[0]) in (0, len(rows[0])):
        return before, after
    one, other = (json.dumps(part, ensure_ascii=False).removesuffix("}") + _OTHERS for part in parts)
    return one, other


def _fields(text: str) -> dict[str, Any]:
    """Return the fields of a row by name; none for another value."""
    if not text.startswith("{"):
        return {}
    fields: dict[str, Any] = json.loads(text)
    return fields


def _differing(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [name for name in before if before[name] != after[name]]
    return {name: before[name] for name in names}, {name: after[name] for name in names}
