"""Functions and formats that a file names: certainly wrong, missing on this machine, or present."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statelib.cli.main import app

PIPELINE = """\
name: p
source: {{format: {format}, path: "{{start}}-{{end}}", columns: {{k: string}}}}
key: [k]
states:
  n: {{kind: value, fields: {{n: long}}, function: "{function}"}}
backend: heap
"""
GOOD = "statelib_jobs.functions.carrier_streaks:update"
BROKEN = "import a_package_of_the_cluster\n\ndef update(events, state): ...\n"


def validate(root: Path, *more: str, **named: str) -> tuple[int, list[str], list[str]]:
    """Return the exit status, the messages of faults and the messages of warnings."""
    (root / "p.yaml").write_text(PIPELINE.format(**{"format": "parquet", "function": GOOD} | named))
    done = CliRunner().invoke(app, ["pipelines", "validate", "--directory", str(root), "--json", *more])
    answer = json.loads(done.stdout)
    faults, warnings = ([each["message"] for each in answer[name]] for name in ("faults", "warnings"))
    assert answer["valid"] == ([] if faults else ["p"])
    return done.exit_code, faults, warnings


@pytest.mark.parametrize("name", ["parquet", "JSON", "binaryFile", "delta", "statelib", "org.example.DefaultSource"])
def test_existing_formats_are_accepted(tmp_path: Path, name: str) -> None:
    assert validate(tmp_path, format=name) == (0, [], [])


def test_a_mistyped_format_is_a_fault(tmp_path: Path) -> None:
    status, (fault,), warnings = validate(tmp_path, format="parqet")
    assert (status, warnings) == (1, [])
    assert fault == f"{tmp_path}/p.yaml:2: source.format: unknown format 'parqet', did you mean 'parquet'?"


def test_an_unknown_format_that_the_cluster_may_have_is_a_warning(tmp_path: Path) -> None:
    status, faults, (warning,) = validate(tmp_path, format="warehouse")
    assert (status, faults) == (0, [])
    assert "'warehouse' is not one of Spark's own formats" in warning
    assert validate(tmp_path, "--strict", format="warehouse") == (1, [warning], [])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            "statelib_jobs.functions.carrier_streak:update",
            "there is no module 'statelib_jobs.functions.carrier_streak'",
        ),
        ("statelib_jobs.functions.carrier_streaks:updat", "has no 'updat', did you mean 'update'?"),
    ],
)
def test_a_function_that_its_package_does_not_have_is_a_fault(tmp_path: Path, function: str, expected: str) -> None:
    status, (fault,), warnings = validate(tmp_path, function=function)
    assert (status, warnings) == (1, [])
    assert fault.startswith(f"{tmp_path}/p.yaml:5: states.n.function: ")
    assert expected in fault


def test_a_function_that_the_cluster_may_have_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, faults, (warning,) = validate(tmp_path, function="no.such:thing")
    assert (status, faults) == (0, [])
    assert "no.such:thing: there is no package 'no' on this host" in warning
    (tmp_path / "users_broken_module.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    status, faults, (warning,) = validate(tmp_path, function="users_broken_module:update")
    assert (status, faults) == (0, [])
    assert "cannot be imported on this host: ModuleNotFoundError: No module named 'a_package_of_the_cluster'" in warning
