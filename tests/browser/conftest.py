"""A real Chromium. Tests that need it are skipped with the reason if none is available.

``new_page(width=360, dark=True)`` opens a page that is watched: at the end of the test its console has no error, and
it has sent requests only to this machine. ``page`` is one of 1440 pixels, light. ``shot`` keeps a screenshot as an
artefact."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.chromium_kit import ARGUMENTS, NoChromium, chromium
from tests.browser.watching import PATIENCE_MS, OpenPage, Watch

SCREENSHOTS = Path(os.environ.get("STATELIB_SCREENSHOTS", Path(__file__).parents[2] / ".work" / "screenshots"))
HEIGHTS = {360: 780}
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield a browser, which ends with its module: while it runs, its process has an event loop that would disturb
    other tests."""
    try:
        program = chromium()
    except NoChromium as reason:
        pytest.skip(f"no Chromium: {reason}")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program.executable, args=list(ARGUMENTS), env={**os.environ, **program.environment}
        )
        yield started
        started.close()


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def new_page(browser: Browser, watch: Watch) -> Iterator[OpenPage]:
    """Yield a function that opens watched pages. ``options`` are those of Playwright's contexts: ``storage_state``
    contains the signed-in user, such as ``{"cookies": [{"name": "_token", "value": token, "url": url}]}``."""
    contexts: list[BrowserContext] = []

    def opened(width: int = 1440, dark: bool = False, **options: object) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": HEIGHTS.get(width, 900)},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            timezone_id="UTC",
            has_touch=width < 600,
            **options,
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.on("page", watch.over)
        return context.new_page()

    yield opened
    for context in contexts:
        context.close()
    assert watch.unexpected == []


@pytest.fixture
def page(new_page: OpenPage) -> Page:
    return new_page()


@pytest.fixture
def shot() -> Callable[[Page, str], Path]:
    """Return a function that saves a picture of the whole page as ``<name>.png`` in STATELIB_SCREENSHOTS, or
    .work/screenshots."""

    def taken(page: Page, name: str) -> Path:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        page.screenshot(path=path, full_page=True)
        return path

    return taken
