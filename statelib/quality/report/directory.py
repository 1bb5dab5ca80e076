"""The directory of a report (Data Docs) and its front page."""

import shutil
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

from statelib.model.quality import GRAVITY, QualityResult, Severity, verdict
from statelib.model.record import CheckpointRecord
from statelib.quality.report.pages import page, self_contained, text
from statelib.storage.uris import local_path, to_uri


def fresh_directory(docs_directory: str) -> Path:
    """Create and return a new directory: ``docs_directory``, or if it exists, the same with ``-2``, ``-3``, ..."""
    wanted = Path(local_path(docs_directory))
    wanted.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        directory = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        return directory
    raise AssertionError("count() does not end")


def make_self_contained(directory: Path) -> None:
    """Write the library's pages in ``directory`` again, so that they need no network."""
    for path in directory.rglob("*.html"):
        html = self_contained(path.read_text("utf-8"), _links_from(path.parent, directory))
        path.write_text(html, "utf-8")
    shutil.rmtree(directory / "static", ignore_errors=True)


def write_index(
    directory: Path, record: CheckpointRecord, judged: Iterable[QualityResult], *, with_library: bool
) -> str:
    """Write the front page beside the pages in ``directory`` and return its URI. ``with_library``: whether Great
    Expectations validated some of the checks."""
    index = directory / "index.html"
    index.write_text(_front_page(directory, record, list(judged), with_library), "utf-8")
    return to_uri(str(index))


def _links_from(folder: Path, directory: Path) -> Callable[[str], bool]:
    """Return a function that returns whether a relative link on a page in ``folder`` leads to a page of the report."""

    def is_page(link: str) -> bool:
        target = (folder / link).resolve()
        return target.is_relative_to(directory.resolve()) and target.is_file()

    return is_page


def _front_page(directory: Path, record: CheckpointRecord, judged: list[QualityResult], with_library: bool) -> str:
    title = f"{record.kind.capitalize()} {record.pipeline} / {record.checkpoint_id}"
    gravest = verdict(judged)
    lists = "".join(_failures(severity, judged) for severity in reversed(GRAVITY))
    notes = "".join(sorted({f"<li>{text(sentence)}</li>" for j in judged if j.passed for sentence in j.sentences}))
    rows = "".join(_row(directory, j) for j in judged)
    return page(
        title,
        f"<h1>{text(title)}: {_VERDICTS[gravest]}</h1>"
        f"<p>Directory <code>{text(record.directory)}</code>, strategy {text(record.strategy)}, "
        f"epoch {record.epoch}, generation {record.generation}, base {record.base or 'none'}.</p>"
        + lists
        + (f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "")
        + "<h2>Expectations</h2><table><thead><tr><th>Result</th><th>Expectation</th><th>If it does not hold</th>"
        '<th class="number">Rows</th>'
        f'<th class="number">Failed</th><th>Details</th></tr></thead><tbody>{rows}</tbody></table>'
        + ("<p>Validated with Great Expectations.</p>" if with_library else ""),
    )


_VERDICTS = {
    None: '<strong class="good">complete</strong>',
    Severity.WARN: '<strong class="good">complete</strong>, <strong class="warned">with warnings</strong>',
    Severity.QUARANTINE: '<strong class="bad">in quarantine</strong>',
    Severity.FAIL: '<strong class="bad">not complete</strong>',
}
_HEADINGS = {Severity.WARN: "Warnings", Severity.QUARANTINE: "Reasons for quarantine", Severity.FAIL: "Failures"}
_CONSEQUENCES = {Severity.WARN: "a warning", Severity.QUARANTINE: "quarantine", Severity.FAIL: "aborted"}


def _failures(severity: Severity, judged: Iterable[QualityResult]) -> str:
    """Return the HTML list of the problems of this severity, '' if there are none."""
    sentences = [s for j in judged if not j.passed and j.severity is severity for s in j.sentences]
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in sentences)
    return f"<h2>{_HEADINGS[severity]}</h2><ul>{items}</ul>" if items else ""


def _row(directory: Path, outcome: QualityResult) -> str:
    bad = "warned" if outcome.severity is Severity.WARN else "bad"
    result = '<span class="good">passed</span>' if outcome.passed else f'<span class="{bad}">failed</span>'
    pages = sorted((directory / "validations" / outcome.group).rglob("*.html"))
    link = f'<a href="{text(str(pages[0].relative_to(directory)))}">{text(outcome.group)}</a>' if pages else ""
    return (
        f"<tr><td>{result}</td><td>{text(outcome.name)}</td><td>{_CONSEQUENCES[outcome.severity]}</td>"
        f'<td class="number">{outcome.checked}</td>'
        f'<td class="number">{outcome.failed}</td><td>{link}</td></tr>'
    )
