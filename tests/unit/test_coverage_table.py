"""The table of coverage counts the lines of each room that tests executed."""

from pathlib import PurePath

from coverage import Coverage

from tools.coverage_table import counted, measured, room, table


def test_a_file_is_counted_in_its_room() -> None:
    rooms = {
        "src/statelib/wire/varint.py": "statelib/wire",
        "src/statelib/flows/restore/steps.py": "statelib/flows",
        "src/statelib/errors.py": "statelib/*.py",
        "plugins/statelib_airflow/runtime/trigger.py": "statelib_airflow",
        "jobs/statelib_jobs/snapshot.py": "statelib_jobs",
    }
    assert {path: room(PurePath(path)) for path in rooms} == rooms


def test_lines_of_a_room_are_added_up() -> None:
    files = [("statelib/wire/a.py", 8, 8), ("statelib/wire/b.py", 2, 0), ("statelib/empty.py", 0, 0)]
    rooms = counted((PurePath(path), lines, executed) for path, lines, executed in files)
    assert rooms == {"statelib/wire": (10, 8), "statelib/*.py": (0, 0)}
    assert [line.split() for line in table(rooms).splitlines()] == [
        ["room", "lines", "executed"],
        ["statelib/*.py", "0", "0%"],
        ["statelib/wire", "10", "80%"],
        ["all", "10", "80%"],
    ]


def test_the_lines_are_read_from_the_recorded_data(tmp_path) -> None:
    source = tmp_path / "statelib" / "wire" / "halves.py"
    source.parent.mkdir(parents=True)
    source.write_text('"""Halves."""\nx = 1\nif x > 2:\n    x = 3\n')
    coverage = Coverage(data_file=None, config_file=False)
    coverage.get_data().add_lines({str(source): [1, 2, 3]})
    assert measured(coverage) == [(PurePath(source), 3, 2)]
