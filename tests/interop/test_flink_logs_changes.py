"""Change logs of a real Flink, compressed and not, alone and over materialised state, contain the state that its job
recorded."""

import json
from pathlib import Path

import pytest

from statelib.formats.metadata.operator_id import operator_id
from statelib.model.types import LONG
from statelib.savepoints.lines import export_all_lines
from statelib.savepoints.opened import open_checkpoint
from tests.interop.flink_kit import NoFlink, flink
from tests.interop.seen_lines import comparable
from tests.support.extent import large


def changelog(backend: str, target: Path) -> dict[str, str]:
    return {
        "state.backend.type": backend,
        "state.changelog.enabled": "true",
        "state.changelog.storage": "filesystem",
        "state.changelog.dstl.dfs.base-path": f"file://{target}/changelog",
    }


@large("make test reads the change logs among the fixtures")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("compressed", ["true", "false"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_logs_contain_the_state_that_the_job_recorded(
    version: str, backend: str, compressed: str, tmp_path: Path
) -> None:
    settings = {
        **changelog(backend, tmp_path),
        "state.changelog.dstl.dfs.compression.enabled": compressed,
        "state.changelog.periodic-materialize.interval": "4s",
    }
    try:
        written = flink(version).log_changes(tmp_path, settings, [300, 600, 900], [2500] * 3)
    except NoFlink as reason:
        pytest.skip(str(reason))
    for number, path in enumerate(written, 1):
        opened = open_checkpoint(str(path), relocate={f"file:{tmp_path}": str(tmp_path)}, key_type=LONG)
        ids = {operator_id("keyed").hex(): "keyed"}
        lines = [json.loads(line) for line in export_all_lines(opened, None)]
        lines_read = [json.dumps({**line, "op": ids.get(line["op"], line["op"])}) for line in lines]
        expected = (tmp_path / f"truth-{number}.jsonl").read_text(encoding="utf-8").split("\n")
        own = [line for line in lines_read if json.loads(line)["op"] == "keyed"]
        assert comparable(own) == comparable(line for line in expected if line)


@large("make test reads the change logs among the fixtures")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_windows_that_merge_over_materialised_state_equal_those_of_a_savepoint(
    version: str, backend: str, tmp_path: Path
) -> None:
    settings = {**changelog(backend, tmp_path), "state.changelog.periodic-materialize.interval": "8s"}
    try:
        written = flink(version).log_changes(tmp_path, settings, [50, 100], [10_000, 0], job="sessions")
    except NoFlink as reason:
        pytest.skip(str(reason))

    def windows(path: Path) -> list[str]:
        opened = open_checkpoint(str(path), relocate={f"file:{tmp_path}": str(tmp_path)}, key_type=LONG)
        lines = [json.loads(line) for line in export_all_lines(opened, None)]
        names = {operator_id(uid).hex(): uid for uid in ("list", "reduce", "aggregate")}
        own = [{**line, "op": names.get(line["op"], line["op"])} for line in lines]
        return sorted(json.dumps(line) for line in own if line["op"] in names.values())

    assert windows(written[-2]) == windows(written[-1])
    assert len(windows(written[-1])) > len(windows(written[0]))
