"""Checks of every page beside those of its test: no error in the console, no request to another host, and no part that
is not accessible."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import axe_playwright_python
from playwright.sync_api import ConsoleMessage, Page, Route

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
GRAVE = ("moderate", "serious", "critical")
OpenPage = Callable[..., Page]
"""The type of the fixture ``new_page``."""
PATIENCE_MS = 120_000
"""The time that a page may take for one step, in milliseconds. On a busy machine the first page of an Airflow that has
just started can take longer than the 30 s that Playwright waits by default."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")


@dataclass
class Watch:
    """The errors and requests of a page. ``expected``: patterns of console messages that a test provokes, such as
    the status of a refused request.

    Chromium logs a sandboxed frame of the same origin, which Airflow's is, as a warning; warnings are not faults."""

    faults: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def over(self, page: Page) -> None:
        """Watch this page, and let it reach this machine only."""
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        page.route(re.compile(r"^(?!data:|blob:|about:)"), self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text}")

    def _asked(self, route: Route) -> None:
        host = urlsplit(route.request.url).hostname
        if host in LOOPBACK:
            route.fallback()
        else:
            self.faults.append(f"asked {host} for {route.request.url}")
            route.abort()

    @property
    def unexpected(self) -> list[str]:
        return [fault for fault in self.faults if not any(re.search(each, fault) for each in self.expected)]


def inaccessible(page: Page) -> list[str]:
    """Return the findings of axe on the page and its frames of the same origin, except minor ones."""
    for frame in page.frames:
        frame.evaluate(AXE)
    answer: Mapping[str, list[dict[str, object]]] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [_described(one) for one in answer["violations"] if one["impact"] in GRAVE]


def _described(violation: Mapping[str, object]) -> str:
    nodes = violation["nodes"]
    assert isinstance(nodes, list)
    return f"{violation['impact']} {violation['id']}: {violation['help']} at {[node['target'] for node in nodes[:5]]}"


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window: tables scroll within themselves, the page never
    does."""
    return max(0, int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth")))
