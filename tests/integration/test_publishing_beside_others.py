"""Publishing while something else works: another publisher that is always faster, and retention."""

from pathlib import Path
from typing import Any

import pytest

from statelib.flows.publication import steps
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from tests.integration.shop import SALES, sales
from tests.support.published import feed_rows, folded
from tests.support.worlds import checkpoint_of, new_deployment

NAME = PipelineName("sales")
COMMITS = 8


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Return a deployment with more checkpoints to publish than there are tries for one commit."""
    (tmp_path / "pipelines").mkdir()
    publish = 'publish: {feed: {target: "{data}/feed", mode: changes, state: total}}\n'
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES + publish)
    made = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number in range(1, COMMITS + 1):
        checkpoint_of(made, NAME, number, sales(number * 3))
        if number == 1:
            publish_tables(made, made.pipeline(NAME))
    return made


def commits(root: Path) -> list[tuple[int, int]]:
    return sorted({(row["commit"], row["checkpoint_id"]) for row in feed_rows(root / "feed").to_pylist()})


def test_a_publisher_that_always_comes_too_late_ends_without_an_error(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_content, overtaken = steps._content, []

    def overtaken_content(*args: Any, **kwargs: Any) -> Any:
        content = made_content(*args, **kwargs)
        monkeypatch.setattr(steps, "_content", made_content)
        overtaken.append(next(iter(steps._caught_up(deployment, deployment.pipeline(NAME), "feed"))))
        monkeypatch.setattr(steps, "_content", overtaken_content)
        return content

    monkeypatch.setattr(steps, "_content", overtaken_content)
    assert publish_tables(deployment, deployment.pipeline(NAME)) == []
    assert [commit.commit for commit in overtaken] == list(range(2, COMMITS + 1))
    assert commits(tmp_path) == [(number, number) for number in range(1, COMMITS + 1)]


def test_a_checkpoint_that_retention_deletes_after_it_was_listed_is_passed_over(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = steps._next

    def deleted_after(*args: Any) -> Any:
        record = chosen(*args)
        if record.checkpoint_id == CheckpointId(2):
            head = deployment.catalog().head(NAME)
            deployment.catalog().cleanup.subsume(NAME, [record.checkpoint_id], head.epoch)
        return record

    monkeypatch.setattr(steps, "_next", deleted_after)
    publish_tables(deployment, deployment.pipeline(NAME))
    assert commits(tmp_path) == [(1, 1), *((number - 1, number) for number in range(3, COMMITS + 1))]
    sold = [row["sold"] for row in folded(feed_rows(tmp_path / "feed"), ["shop"]).values()]
    assert sold == [2 * COMMITS] * 3, "each run has two sales of each shop"
    assert [standing.behind for standing in standings(deployment, deployment.pipeline(NAME))] == [0]
