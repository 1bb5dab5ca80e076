"""The gate's report over hostile events in a real browser: no script runs, nothing is fetched, all text is there."""

import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page

from statelib.visible import visible
from tests.browser.watching import Watch
from tests.support.hostile_strings import MARKUP
from tests.support.reports import report_over

HARMLESS = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(len(MARKUP))]
ELEMENTS = "[...document.querySelectorAll('*')].map(e => e.tagName + [...e.attributes].map(a => ' ' + a.name).join(''))"
BY_HAND = "{ const s = document.createElement('script'); s.textContent = 'window.hacked = 2'; document.body.append(s) }"


class Quiet(SimpleHTTPRequestHandler):
    """A server of the files of a directory that prints no line per request."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Yield two reports of the same shape, ``hostile`` and ``harmless``, and their addresses."""
    root = tmp_path_factory.mktemp("site")
    report_over(MARKUP, str(root / "hostile"))
    report_over(HARMLESS, str(root / "harmless"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    serving.join()


def pages_of(root: Path, report: str) -> list[str]:
    return [str(path.relative_to(root)) for path in sorted((root / report).rglob("*.html"))]


def test_events_are_shown_as_text_in_every_page_of_the_report(page: Page, site: tuple[Path, str], watch: Watch) -> None:
    root, url = site
    watch.expected.append("favicon|status of 404")
    text = ""
    pairs = list(zip(pages_of(root, "hostile"), pages_of(root, "harmless"), strict=True))
    assert len(pairs) > 5
    for hostile, harmless in pairs:
        page.goto(f"{url}/{harmless}")
        expected = Counter(page.evaluate(ELEMENTS))
        page.goto(f"{url}/{hostile}")
        assert Counter(page.evaluate(ELEMENTS)) == expected, hostile
        assert page.evaluate("window.hacked") is None
        text += str(page.evaluate("document.body.textContent"))
    missing = [word for word in MARKUP if visible(word) not in text and visible(word, lines=True) not in text]
    assert missing == []


def test_a_page_runs_no_script_even_if_it_contained_one(page: Page, site: tuple[Path, str], watch: Watch) -> None:
    root, url = site
    watch.expected.append("favicon|status of 404|Content Security Policy")
    page.goto(f"{url}/{pages_of(root, 'hostile')[0]}")
    page.evaluate(BY_HAND)
    assert page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in fault for fault in watch.faults)
