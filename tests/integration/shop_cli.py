"""Call the command line in this process, as against the small deployment of :mod:`shop`."""

from typing import Any

import click
from typer.testing import CliRunner, Result

from statelib.cli.main import app
from statelib.flows.wiring import VARIABLES, Deployment
from tests.integration.shop import environment


def call(deployment: Deployment | None, *words: object, columns: int | None = None) -> Result:
    """Run a command and return its output and status. Without a deployment no variable is set; without columns the
    output is a pipe."""
    env: dict[str, Any] = dict.fromkeys(VARIABLES) | (environment(deployment) if deployment else {})
    env["COLUMNS"] = str(columns) if columns else None
    result = CliRunner().invoke(app, [str(word) for word in words], env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit | click.exceptions.Exit), result.output
    assert "Traceback" not in result.output
    return result


def said(deployment: Deployment | None, *words: object, columns: int | None = None) -> str:
    """Return the output of a command, which must succeed."""
    result = call(deployment, *words, columns=columns)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(deployment: Deployment | None, *words: object, status: int = 2) -> str:
    """Return the only line of a command that fails, without its hint. Assert that nothing else is printed."""
    result = call(deployment, *words)
    assert (result.exit_code, result.stdout) == (status, "")
    first, *rest = result.stderr.splitlines()
    assert first.startswith("statelib: "), result.stderr
    assert len(rest) <= 1
    assert all(line.startswith("  hint: ") for line in rest)
    return first
