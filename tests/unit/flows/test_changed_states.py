"""The states that a checkpoint has with another definition than the pipeline file."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.flows.checkpoint.kept_deltas import changed_states
from statelib.formats.manifest.manifest_json import SCHEMA

FILE = """\
name: p
source: {{path: "{{start}}-{{end}}", columns: {{k: string, n: long}}}}
key: [k]
states:
  hits: {{kind: value, {state} fields: {{views: {{agg: count}}, most: {{agg: max, of: n {field}}}}}}}
backend: heap
"""


def loaded(tmp_path: Path, state: str = "", field: str = "") -> Pipeline:
    (tmp_path / "p.yaml").write_text(FILE.format(state=state, field=field))
    return load_pipeline(tmp_path / "p.yaml")


def checkpoint_of(pipeline: Pipeline) -> Any:
    """Return a checkpoint with the states of a pipeline, as far as its manifest records them."""
    recorded = SCHEMA.read(SCHEMA.write(pipeline.schema()), "schema")
    return SimpleNamespace(schema=lambda: recorded)


def test_earlier_names_in_the_file_do_not_change_a_state(tmp_path: Path) -> None:
    renamed = loaded(tmp_path, "renamed_from: visits,", ", renamed_from: largest")
    assert renamed.schema().states[0].renamed_from == ("visits",)
    assert changed_states(renamed, checkpoint_of(renamed)) == ()


def test_another_aggregate_changes_its_state(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(loaded(tmp_path))
    (tmp_path / "p.yaml").write_text(FILE.format(state="", field="").replace("agg: max", "agg: min"))
    assert changed_states(load_pipeline(tmp_path / "p.yaml"), checkpoint) == ("hits",)
