"""The tutorial and the how-to, step by step: every file, every command and its output."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.integration.document_steps import Shell, follow
from tests.integration.how_to_world import six_days
from tests.integration.shop import environment
from tests.support.worlds import CHECKOUT

OWN = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_commands_of_the_tutorial_print_what_it_shows(spark: SparkSession, tmp_path: Path) -> None:
    document = (CHECKOUT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert follow(document, Shell(tmp_path, {**os.environ, **OWN})) > 10


def test_the_commands_of_the_how_to_print_what_it_shows(tmp_path: Path) -> None:
    document = (CHECKOUT / "docs" / "how-to.md").read_text(encoding="utf-8")
    deployment = six_days(tmp_path)
    assert follow(document, Shell(tmp_path, {**os.environ, **OWN, **environment(deployment)})) > 10
