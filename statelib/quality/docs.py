"""Where Data Docs go, and what makes them readable without a network.

Great Expectations' pages load their styles and scripts from other people's servers. What has to
be fetched is taken out and a style sheet of our own put in, so that a report looks the same in
ten years, behind a firewall, and tells nobody that it was opened.
"""

import re
import shutil
from collections.abc import Iterable
from html import escape
from itertools import count
from pathlib import Path

from statelib.model.quality import GRAVITY, QualityResult, Severity, verdict
from statelib.model.record import CheckpointRecord
from statelib.storage.uris import local_path

_DROPPED = re.compile(
    r"<script\b.*?</script>"  # all of them need libraries that are fetched
    r"|<link\b[^>]*>"  # style sheets, and an icon in the folder that is dropped below
    r"|<img\b[^>]*\bsrc=\"https?:[^>]*>"
    r"|<footer\b.*?</footer>"  # an invitation to a newsletter
    r"|<div class=\"btn-group.*?</div>",  # buttons without their scripts
    re.DOTALL | re.IGNORECASE,
)
_STYLE = """<style>
:root { color-scheme: light dark; --good: #1a7f37; --bad: #c62828; --warned: #9a6700; --line: #8884; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 1.6rem; } a { color: #1f6feb; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: .92em; overflow-wrap: anywhere; }
.good, .text-success { color: var(--good); } .bad, .text-danger { color: var(--bad); }
.warned, .text-warning { color: var(--warned); }
.alert, .card { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .75rem; margin: .75rem 0; }
.fas { font-style: normal; } .fa-check-circle::before { content: "\\2714"; } .fa-times::before { content: "\\2718"; }
.fa-exclamation-triangle::before { content: "\\26A0"; }
.nav, .breadcrumb { list-style: none; padding: 0; display: flex; gap: 1rem; flex-wrap: wrap; }
.navbar, .sticky { position: static !important; height: auto !important; }
</style>"""


def fresh_directory(docs_directory: str) -> Path:
    """Make a directory that nobody has made: ``docs_directory``, else the same with ``-2``, ``-3``, ..."""
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


def write_index(directory: Path, record: CheckpointRecord, judged: Iterable[QualityResult]) -> str:
    """Make the pages in ``directory`` self-contained, give them a front page, and return its URI."""
    for page in directory.rglob("*.html"):
        page.write_text(_offline(page.read_text("utf-8")), "utf-8")
    shutil.rmtree(directory / "static", ignore_errors=True)
    index = directory / "index.html"
    index.write_text(_front_page(directory, record, list(judged)), "utf-8")
    return index.as_uri()


def _offline(page: str) -> str:
    return _DROPPED.sub("", page).replace("</head>", f"{_STYLE}</head>", 1)


def _front_page(directory: Path, record: CheckpointRecord, judged: list[QualityResult]) -> str:
    title = f"{record.kind.capitalize()} {record.pipeline} / {record.checkpoint_id}"
    gravest = verdict(judged)
    lists = "".join(_failures(severity, judged) for severity in reversed(GRAVITY))
    notes = "".join(sorted({f"<li>{escape(said)}</li>" for j in judged if j.passed for said in j.sentences}))
    rows = "".join(_row(directory, j) for j in judged)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8"><title>{escape(title)}</title>{_STYLE}</head>'
        f"<body><h1>{escape(title)}: {_VERDICTS[gravest]}</h1>"
        f"<p>Directory <code>{escape(record.directory)}</code>, strategy {escape(record.strategy)}, "
        f"epoch {record.epoch}, generation {record.generation}, base {record.base or 'none'}.</p>"
        + lists
        + (f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "")
        + "<h2>Expectations</h2><table><thead><tr><th>Result</th><th>Expectation</th><th>If it does not hold</th>"
        '<th class="number">Rows</th>'
        f'<th class="number">Failed</th><th>Details</th></tr></thead><tbody>{rows}</tbody></table>'
        "<p>Validated with Great Expectations.</p></body></html>\n"
    )


_VERDICTS = {
    None: '<strong class="good">complete</strong>',
    Severity.WARN: '<strong class="good">complete</strong>, <strong class="warned">with warnings</strong>',
    Severity.QUARANTINE: '<strong class="bad">in quarantine</strong>',
    Severity.FAIL: '<strong class="bad">not complete</strong>',
}
_HEADINGS = {Severity.WARN: "Warnings", Severity.QUARANTINE: "Reasons for quarantine", Severity.FAIL: "Failures"}
_FOLLOWS = {Severity.WARN: "a warning", Severity.QUARANTINE: "quarantine", Severity.FAIL: "aborted"}


def _failures(severity: Severity, judged: Iterable[QualityResult]) -> str:
    said = [s for j in judged if not j.passed and j.severity is severity for s in j.sentences]
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in said)
    return f"<h2>{_HEADINGS[severity]}</h2><ul>{items}</ul>" if items else ""


def _row(directory: Path, outcome: QualityResult) -> str:
    bad = "warned" if outcome.severity is Severity.WARN else "bad"
    result = '<span class="good">passed</span>' if outcome.passed else f'<span class="{bad}">failed</span>'
    pages = sorted((directory / "validations" / outcome.group).rglob("*.html"))
    link = f'<a href="{escape(str(pages[0].relative_to(directory)))}">{escape(outcome.group)}</a>' if pages else ""
    return (
        f"<tr><td>{result}</td><td>{escape(outcome.name)}</td><td>{_FOLLOWS[outcome.severity]}</td>"
        f'<td class="number">{outcome.checked}</td>'
        f'<td class="number">{outcome.failed}</td><td>{link}</td></tr>'
    )
