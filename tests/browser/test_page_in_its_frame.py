"""In the sandboxed frame that Airflow gives it, the page takes Airflow's theme, address and way out."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Frame, Page, expect

from tests.browser.framed import framed_page
from tests.browser.watching import OpenPage, Watch, inaccessible, overflow

REFUSED = "status of 401|favicon"


@pytest.fixture(scope="module")
def airflow() -> Iterator[str]:
    with framed_page() as url:
        yield url


@pytest.fixture(autouse=True)
def nobody_is_signed_in(watch: Watch) -> None:
    watch.expected.append(REFUSED)


def inside(page: Page) -> Frame:
    frame = page.frames[1]
    frame.wait_for_selector("text=You are not signed in.")
    return frame


def scheme(frame: Frame) -> str:
    return str(frame.evaluate("getComputedStyle(document.documentElement).colorScheme"))


def test_the_theme_is_that_of_airflow_and_changes_with_it(page: Page, airflow: str) -> None:
    page.goto(f"{airflow}/plugin/state")
    frame = inside(page)
    assert scheme(frame) == "dark"
    page.evaluate("document.documentElement.className = 'light'")
    frame.wait_for_function("getComputedStyle(document.documentElement).colorScheme === 'light'")


@pytest.mark.parametrize("dark", [False, True])
def test_outside_of_airflow_the_theme_is_that_of_the_system(new_page: OpenPage, airflow: str, dark: bool) -> None:
    page = new_page(dark=dark)
    page.goto(f"{airflow}/statelib/")
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == ("rgb(17, 19, 22)" if dark else "rgb(251, 251, 252)")


def test_links_leave_the_sandboxed_frame(page: Page, airflow: str) -> None:
    page.goto(f"{airflow}/plugin/state")
    inside(page).get_by_role("link", name="Sign in").click()
    page.wait_for_url(f"{airflow}/auth/login/")


def test_links_can_be_opened_in_another_window(page: Page, airflow: str) -> None:
    page.goto(f"{airflow}/plugin/state")
    frame = inside(page)
    with page.context.expect_page() as opened:
        frame.get_by_role("link", name="Sign in").click(modifiers=["Control"])
    expect(opened.value).to_have_url(f"{airflow}/auth/login/")
    assert page.url.endswith("/plugin/state/statelib/")


def test_the_address_can_be_copied(page: Page, airflow: str) -> None:
    page.goto(f"{airflow}/plugin/state")
    inside(page).click("text=Storage")
    page.wait_for_url(f"{airflow}/plugin/state/statelib/#/storage")


def test_the_address_of_another_tab_stays_unchanged(page: Page, airflow: str) -> None:
    tab = f"{airflow}/dags/route_delays.checkpoint/plugin/state-dag"
    page.goto(tab)
    frame = inside(page)
    frame.click("text=Storage")
    expect(frame.locator("h1")).to_have_text("Storage")
    assert page.url == tab


@pytest.mark.parametrize("width", [1440, 360])
@pytest.mark.parametrize("dark", [False, True])
def test_a_refusal_is_accessible(new_page: OpenPage, airflow: str, width: int, dark: bool) -> None:
    page = new_page(width, dark)
    page.goto(f"{airflow}/statelib/#/p/route_delays")
    expect(page.get_by_role("alert").first).to_contain_text("You are not signed in.")
    assert inaccessible(page) == []
    assert overflow(page) == 0


def test_the_keyboard_reaches_the_content_first(page: Page, airflow: str) -> None:
    page.goto(f"{airflow}/statelib/#/storage")
    expect(page.get_by_role("alert")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("#/storage")


def test_navigation_moves_the_focus_to_the_heading(page: Page, airflow: str) -> None:
    page.goto(f"{airflow}/statelib/")
    page.get_by_role("link", name="Storage").click()
    expect(page.get_by_role("heading", level=1, name="Storage")).to_be_focused()
    expect(page).to_have_title("Storage · State")
