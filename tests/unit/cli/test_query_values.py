"""The values that a query returns, whatever their type can hold."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tests
from statelib.cli.main import app

SNAPSHOT = Path(tests.__file__).parent / "golden" / "own" / "0.1.0.dev0" / "heap-full"


@pytest.mark.parametrize("as_json", [True, False])
def test_times_beyond_the_calendar_of_python_are_shown_as_text(as_json: bool) -> None:
    sql = "SELECT * FROM (VALUES (TIMESTAMP '19999-01-01', [DATE 'infinity']), ('2026-01-01', NULL)) AS times(a, b)"
    result = CliRunner().invoke(app, ["query", str(SNAPSHOT), sql, *(["--json"] if as_json else [])])
    assert result.exit_code == 0
    if as_json:
        assert json.loads(result.stdout)["rows"] == [
            ["19999-01-01 00:00:00.000000", ["<value out of range: 2147483647>"]],
            ["2026-01-01T00:00:00", None],
        ]
    else:
        assert "19999-01-01 00:00:00" in result.stdout
