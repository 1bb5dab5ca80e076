"""Workflows, hooks and templates are valid, and the verbs and tools that they call exist."""

import re
from pathlib import Path

import pytest
import yaml

from tests.architecture.repository import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def verbs() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(workflow: Path) -> list[str]:
    """Return what the steps of a workflow run."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_verbs_of_the_makefile(workflow: Path) -> None:
    called = [verb for command in commands(workflow) for verb in re.findall(r"\bmake ([a-z-]+)", command)]
    assert called
    assert set(called) <= verbs()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_a_timeout_and_may_only_read(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text())
    assert document["permissions"] == {"contents": "read"}
    own_rights = [name for name, job in document["jobs"].items() if "permissions" in job]
    assert own_rights == (["publish"] if workflow.stem == "release" else [])


def test_ci_runs_what_contributors_run() -> None:
    assert "make check test" in (ROOT / ".ci" / "run").read_text()
    assert {command for path in WORKFLOWS for command in commands(path)} >= {"make check", "make test"}


def test_hooks_run_tools_of_the_environment() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        tool = hook["entry"].split()[0]
        assert tool.startswith(".work/venv/bin/")
        assert (ROOT / tool).exists(), f"make setup installs no {tool}"


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_forms_of_issues_are_valid(form: Path) -> None:
    document = yaml.safe_load(form.read_text())
    if form.stem == "config":
        return
    assert {"name", "description", "body"} <= set(document)
    assert all(field["attributes"]["label"] for field in document["body"])
