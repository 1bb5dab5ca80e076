"""The suite runs, at a size at which its figures mean nothing: rows are right, and table, file and plot come."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from statelib.backends.rocksdb.compaction import MANY
from statelib.definition.parts.quality import Rotation
from statelib.flows.gate.reading import Turn, read_what_is_new
from tests.benchmarks import __main__ as suite
from tests.benchmarks.cost_model import LARGE, Machine, Run, cost
from tests.benchmarks.cost_model import table as cost_table
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.measure import Ratio, table
from tests.benchmarks.plots import CHECKOUT, PICTURE, Bar, bars_in, bars_of, goal_of, picture, plot
from tests.benchmarks.rows.growth import Grown
from tests.benchmarks.rows.safety import SETTINGS, Checkpoints, Stopwatch, unverified, watched
from tests.benchmarks.scoreboard import ROWS, rows_of, scoreboard


def test_rows_without_spark_are_measured_and_right(tmp_path: Path) -> None:
    ratios = suite.measured(["P12", "P17", "P17-windows", "P17-ttl", "P19", "P20", "P23"], str(tmp_path), 1, 0.001)
    twice = ("P19", "P20", "P23")
    assert [row.row for row in ratios] == ["P12", "P17", "P17-windows", "P17-ttl", *sorted([*twice, *twice])]
    assert all(row.measured and row.ratio > 0 for row in ratios), table(ratios)
    assert not [row.note for row in ratios if "INVALID" in row.note]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", SETTINGS, ids="-".join)
def test_all_verification_is_timed_by_the_stopwatch_and_can_be_switched_off(
    tmp_path: Path, setting: tuple[str, str]
) -> None:
    """The contenders of G11 run. Without checksums, a snapshot is written and read without verification; with them,
    both take some time."""
    watch = Stopwatch("wall s")
    for verification in (lambda: watched(watch), unverified):
        checkpoints = Checkpoints(tmp_path / verification.__name__, setting, 0.05, verification)
        watch.spent = 0.0
        checkpoints.turn(0)
        assert (watch.spent > 0) == (verification is not unverified)


def test_a_suite_that_fails_has_the_error_in_its_row_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> list[Ratio]:
        raise OSError("no disk")

    monkeypatch.setattr(suite, "SUITES", ((("A",), fails), (("B",), lambda *_: [ratio("B", 1.0)])))
    first, second = suite.measured(["A", "B"], str(tmp_path), 1, 1.0)
    assert (first.row, first.note, first.measured, second.row) == ("A", "FAILED: OSError: no disk", False, "B")


def test_the_results_of_one_commit_are_kept_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "RESULTS", tmp_path / "a" / "results")
    for scale in (0.1, 1.0):
        suite.keep({"scale": scale, "ratios": [ratio("P1", 0.2).to_json()]})
    (path,) = suite.RESULTS.iterdir()
    assert [run["scale"] for run in json.loads(path.read_text())] == [0.1, 1.0]


def test_the_plot_has_a_bar_for_each_row_in_the_colour_of_its_goal() -> None:
    drawn = plot(bars_of([ratio("reached", 0.1), ratio("missed", 0.9), ratio("<none>", 0.9, goal="none")]), "load 0")
    bars = [e for e in ElementTree.fromstring(drawn).iter() if e.tag.endswith("rect") and e.get("height") == "13"]
    assert [bar.get("fill") for bar in bars] == ["#2a6f4e", "#c98a2b", "#999"]
    assert (goal_of("≤ 1/6"), goal_of("≤ 1.25"), goal_of("none")) == (1 / 6, 1.25, None)


def test_the_picture_of_the_performance_page_shows_its_table() -> None:
    """The command ``python -m tests.benchmarks.plots`` draws it anew."""
    assert PICTURE.read_text() == picture()
    document = """text
| row | ours / theirs | goal | measured | reached |
|---|---|---|---|---|
| P1 | one / other | ≤ 1/6 | 0.157 (0.15 to 0.2), 2026-11-22 | yes |
| | the same | none | wall 2.5; CPU 3 | |
| W | maps | none | not measured: 0.6 is nothing | |
- **P1** is 0.3
| P9 | another table | ≤ 1 | 5 | |
"""
    assert bars_in(document) == [Bar("P1", "one / other", 0.157, 1 / 6), Bar("", "the same", 2.5, None)]


def test_the_scoreboard_has_every_row_and_the_verdicts_of_the_performance_page() -> None:
    document = (CHECKOUT / "PERFORMANCE.md").read_text()
    rows = rows_of(document)
    assert {row.name for row in rows} >= set(ROWS)
    words = {"met": "yes", "missed": "no", "not measured": "not measured", "no goal": ""}
    wrong = [
        row
        for row in rows
        if not row.reached.startswith(words.get(row.verdict, ""))
        or (row.verdict == "met in part" and row.reached.startswith(("yes", "no")))
    ]
    assert wrong == []
    assert scoreboard(document).count("\n| P") == sum(r.name in ROWS and r.verdict != "no goal" for r in rows)


@pytest.mark.parametrize(
    ("measured", "figures", "verdict"),
    [
        ("0.126 (0.12 to 0.9), 2.13 CPU s against 16.9; 0.119 in seven turns", (0.126,), "met"),
        ("0.2 (0.1 to 0.3) and 0.7 (0.6 to 0.8), 2.5 CPU s", (0.2, 0.7), "met in part"),
        ("1.75 (1.4 to 2), 2.2 (2 to 3) and 2.6 (2 to 3) in three turns", (1.75, 2.2, 2.6), "missed"),
        ("0; 0.047", (0.0,), "met"),
        ("not measured: 0.6 is nothing", (), "not measured"),
    ],
)
def test_the_first_figures_of_a_row_are_compared_with_its_goal(
    measured: str, figures: tuple[float, ...], verdict: str
) -> None:
    (row,) = rows_of(
        f"| row | ours / theirs | goal | measured | reached |\n|---|\n| P1 | a / b | ≤ 1/2 | {measured} | yes |\n"
    )
    assert (row.figures, row.verdict) == (figures, verdict)


def ratio(row: str, ours: float, goal: str = "≤ 1/2") -> Ratio:
    return Ratio(row, "ours", "theirs", goal, "cpu s", (ours,), (1.0,))


@pytest.mark.parametrize("events", [20_000, 60_000, 180_000])
def test_the_cost_model_counts_what_a_small_run_reads_and_writes(tmp_path: Path, events: int) -> None:
    """The bytes are within a factor of two of those that subtasks and gate report, for a batch on all keys and for the
    batch after it, which merges no tables."""
    import pyarrow.parquet as pq

    write_batches(tmp_path, 2, events)
    subtasks = Subtasks(new_deployment(tmp_path), new_pipeline(tmp_path, "rocksdb", "incremental"))
    reports, checkpoints = [], []
    for number in range(2):
        subtasks.prepare(number, pq.read_table(batch_directory(tmp_path, number)))
        reports.append(subtasks.apply())
        checkpoints.append(subtasks.finish(judged=True))
    stored = sum(report.uploaded_bytes for report in reports[0])
    keys = sum(statistics.total_entries for report in reports[0] for statistics in report.statistics)
    run = Run(state_bytes=stored, partitions=2, events=events, row_bytes=stored / keys)
    printed = cost(run)
    read = sum(report.restored.size_bytes for report in reports[1] if report.restored)
    written = sum(report.uploaded_bytes for report in reports[1])
    base, proved = checkpoints
    by_gate = read_what_is_new(proved, base, Turn(1, 20)).size_bytes
    assert read / 2 < printed.read_bytes - printed.gate_bytes < read * 2
    merged = run.state_bytes / printed.merged_every
    assert written / 2 < printed.written_bytes - merged < written * 2
    assert by_gate / 2 < printed.gate_bytes - merged < by_gate * 2


@pytest.mark.parametrize("keys", [30_000, 60_000, 120_000])
def test_the_cost_model_has_the_mean_of_the_runs_from_merge_to_merge(tmp_path: Path, keys: int) -> None:
    grown = Grown(tmp_path / "grown", keys, keys // 100)
    contender, sizes = grown.contender(), []
    for number in range(MANY):
        assert contender.before
        contender.before(number)
        contender.turn(number)
        sizes.append(grown.uploaded_bytes())
        assert contender.after
        contender.after(number)
    mean, whole = sum(sizes) / MANY, max(sizes)
    run = Run(state_bytes=whole, partitions=2, events=keys / 100, row_bytes=whole / keys)
    assert cost(run).merged_every == MANY
    assert mean / 2 < cost(run).written_bytes < mean * 2


def test_the_parts_of_the_cost_model_grow_with_what_they_depend_on() -> None:
    warm = cost(replace(LARGE, warm=1.0))
    rarely = cost(replace(LARGE, warm=1.0, rotation=Rotation(rotate=500)))
    fewer = cost(replace(LARGE, warm=1.0, events=LARGE.events / 10))
    assert rarely.gate_bytes < warm.gate_bytes
    assert rarely.snapshot_s == warm.snapshot_s
    assert fewer.merging_s == warm.merging_s, "tables are merged after as many runs"
    assert fewer.snapshot_s < warm.snapshot_s
    assert (warm.publish_s, cost(replace(LARGE, is_published=True)).publish_s > 0) == (0, True)


def test_the_performance_page_has_the_table_of_the_cost_model() -> None:
    """The command ``python -m tests.benchmarks.cost_model`` prints it."""
    assert cost_table() in (CHECKOUT / "PERFORMANCE.md").read_text()


def test_in_the_cost_model_warm_copies_save_only_the_reads() -> None:
    cold, warm = cost(LARGE), cost(replace(LARGE, warm=1.0))
    assert warm.read_bytes == warm.gate_bytes == cold.gate_bytes
    assert (warm.written_bytes, warm.puts) == (cold.written_bytes, cold.puts)
    fetched = cold.read_bytes - cold.gate_bytes
    assert cold.cpu_s - warm.cpu_s == pytest.approx(fetched / Machine().copy_gb_s / 1e9)
    assert cost(replace(LARGE, cores=100)).seconds == pytest.approx(cold.seconds * 10)
    assert cost(LARGE, replace(Machine(), request_s=0.3)).seconds > cold.seconds
