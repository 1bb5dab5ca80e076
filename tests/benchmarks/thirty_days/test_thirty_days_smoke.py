"""The scoreboard runs, at a size at which its figures mean nothing: each entrant ends with the right state."""

import shutil
from pathlib import Path

import pytest

from tests.benchmarks.events import write_batches
from tests.benchmarks.thirty_days import measuring
from tests.benchmarks.thirty_days.__main__ import measured
from tests.benchmarks.thirty_days.keeper import ENTRANTS, MODES, Entrant
from tests.benchmarks.thirty_days.measuring import RIVALS, Outcome, run
from tests.benchmarks.thirty_days.page import PAGE, pictures, rows_of, table
from tests.support.extent import large

APART = pytest.mark.skipif(not RIVALS.exists(), reason="no .work/rivals: make rivals")
DAYS = 2


def entrants(*texts: str) -> list[Entrant]:
    return [entrant for entrant in ENTRANTS if any(text in entrant.name for text in texts)]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    write_batches(tmp_path, 1, 2_000)
    write_batches(tmp_path, DAYS + 1, 50, keys=2_000, first=1)
    return tmp_path / "data" / "events"


@pytest.mark.parametrize(
    "name", [*(e.name for e in entrants("without", "delta", "pyiceberg", "DuckDB")), *(
        pytest.param(e.name, marks=APART) for e in ENTRANTS if e.is_apart)],
)  # fmt: skip
def test_each_entrant_without_spark_ends_with_the_right_state(tmp_path: Path, name: str) -> None:
    (outcome,) = measured(entrants(name), ["warm"], tmp_path, DAYS, 0.001)
    assert outcome.trouble == ""
    assert len(outcome.cpu_s) == DAYS
    assert outcome.peak_bytes > 10_000_000
    assert outcome.stored_bytes > 0


def test_a_cold_day_continues_the_state_that_is_on_the_storage(tmp_path: Path) -> None:
    outcomes = measured(entrants("without Spark, blind", "DuckDB"), ["cold"], tmp_path, DAYS, 0.001)
    assert [(outcome.trouble, len(outcome.cpu_s)) for outcome in outcomes] == [("", DAYS)] * 2


@large("make test has the entrants without Spark")
@pytest.mark.slow
@pytest.mark.parametrize("name", [e.name for e in entrants("on Spark, blind", "Streaming", "Spark rewrite")])
def test_each_entrant_on_spark_ends_with_the_right_state(tmp_path: Path, name: str) -> None:
    (outcome,) = measured(entrants(name), ["warm"], tmp_path, DAYS, 0.001)
    assert (outcome.trouble, len(outcome.cpu_s)) == ("", DAYS)


def test_a_wrong_end_state_makes_the_row_invalid(tmp_path: Path, events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entrant gets another batch than the one with which it is compared."""
    last = sorted(events.iterdir())[-1]
    other = tmp_path / "other"
    shutil.copytree(sorted(events.iterdir())[0], other)
    asked = measuring.Child.ask

    def ask(self: measuring.Child, *words: object) -> None:
        asked(self, *(other if word == last else word for word in words))

    monkeypatch.setattr(measuring.Child, "ask", ask)
    (delta,) = entrants("delta")
    outcome = run(delta, events, tmp_path / "own", "warm", DAYS)
    assert outcome.trouble.startswith("INVALID: ")
    assert "INVALID" in table([outcome])


def test_an_entrant_whose_environment_is_missing_has_the_reason_in_its_row(
    tmp_path: Path, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "RIVALS", tmp_path / "no" / "python")
    for entrant in (entrant for entrant in ENTRANTS if entrant.is_apart):
        line = table([run(entrant, events, tmp_path / "own", "warm", DAYS)]).splitlines()[-1]
        assert entrant.name in line
        assert "not measured: its package is not there" in line


def test_an_entrant_that_fails_has_the_end_of_its_log_in_its_row(tmp_path: Path, events: Path) -> None:
    broken = Entrant("broken", "table_keepers:NoSuchTable")
    outcome = run(broken, events, tmp_path / "own", "warm", DAYS)
    assert outcome.trouble.startswith("FAILED: ")
    assert "broken" in table([outcome])


def test_the_scoreboard_page_has_a_line_per_entrant_and_the_pictures_of_its_tables() -> None:
    """The command ``python -m tests.benchmarks.thirty_days.page`` draws them anew."""
    document = PAGE.read_text()
    for mode in MODES:
        assert [row[""] for row in rows_of(document, mode)] == [entrant.name for entrant in ENTRANTS]
    for path, drawn in pictures(document):
        assert path.read_text() == drawn
        assert f"](pictures/{path.name})" in document


def test_the_tables_that_are_printed_are_read_from_the_page() -> None:
    right = Outcome("one", "cold", [1.0, 3.0, 2.0], [10**6] * 3, [2 * 10**6] * 3, 4_000_000_000, 5 * 10**6, 0.5)
    wrong = Outcome("two", "cold", [1.0], [1], [1], trouble="INVALID: 1 of 2 keys are right, 2 were found")
    missing = Outcome("three", "cold", trouble="not measured: no package")
    document = f"text\n\n### Cold\n\n{table([right, wrong, missing])}\n\ntext"
    rows = rows_of(document, "cold")
    assert [(row[""], row["days"], row["median day"], row["end state"]) for row in rows] == [
        ("one", "3", "2.00", "right"),
        ("two", "1", "1.00", "INVALID: 1 of 2 keys are right, 2 were found"),
        ("three", "-", "-", "not measured: no package"),
    ]
    drawn = {path.name: picture for path, picture in pictures(document)}
    assert "one</text>" in drawn["scoreboard-cold-memory.svg"]
    assert "two" not in drawn["scoreboard-cold-memory.svg"]
    assert ">4,000</text>" in drawn["scoreboard-cold-memory.svg"]
    assert drawn["scoreboard-cold-written.svg"].count(">2</text>") == 1, "6 MB in three days"
