"""A person's way through the page State in a real Airflow: sign in, look, save, restore, see the new head."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Browser, Frame, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from demo.airflow_client import AirflowClient
from demo.airflow_process import airflow, exclusive, free_ports, migrate
from demo.poisoned_day import asked
from tests.browser.tour_world import (
    AIRCRAFT,
    FIFTH,
    HEAD,
    QUARANTINED,
    ROUTES,
    ROUTES_HEAD,
    SAVED,
    tour_places,
    write_history,
)
from tests.browser.watching import PATIENCE_MS, OpenPage, Watch, inaccessible, overflow
from tests.support.airflow_database import airflow_database
from tests.support.extent import cases
from tests.support.worlds import CALM

USERS = {"admin": "admin", "viewer": "viewer"}
"""Roles by name; the password of each is the reversed name."""
RUN_PATIENCE_S = 600.0
NOTE = "before the parallelism is doubled"
EARLIER = 3
"""The checkpoint to which route_delays is restored; the other pipelines do not change, so that tests run in any
order."""
PLACES = {
    "overview": "",
    "history": f"p/{AIRCRAFT}",
    "checkpoint": f"p/{AIRCRAFT}/c/{HEAD}",
    "quarantined": f"p/{AIRCRAFT}/c/{QUARANTINED}",
    "savepoint": f"p/{AIRCRAFT}/c/{SAVED}",
    "compare": f"p/{AIRCRAFT}/compare?left={FIFTH}&right={HEAD}",
    "mended": f"p/{ROUTES}/c/{ROUTES_HEAD}",
    "storage": "storage",
    "pipeline-storage": f"p/{AIRCRAFT}/storage",
}
"""Every place in the page State, by the name of its picture."""
AIRFLOWS_OWN = "status of 401|hitlDetails|status of 404"
"""Console messages of Airflow's own pages: before somebody signs in, and about a question that does not exist yet."""
Shot = Callable[[Page, str], Path]

pytestmark = pytest.mark.timeout(1800)


@dataclass(frozen=True)
class Tour:
    url: str
    client: AirflowClient
    tokens: dict[str, str]

    def session(self, user: str) -> dict[str, object]:
        """Return the session of a user for ``new_page(storage_state=...)``."""
        return {"cookies": [{"name": "_token", "value": self.tokens[user], "url": self.url}]}


@pytest.fixture(scope="module")
def tour(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    """Yield the demo's Airflow with passwords. ``browser``: without a browser, nothing is started."""
    root = tmp_path_factory.mktemp("tour")
    places = tour_places(root)
    passwords = root / "passwords.json"
    passwords.write_text(json.dumps({user: user[::-1] for user in USERS}))
    settings = CALM | {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of these tests, and long enough for the signature of tokens",
    }
    with airflow_database(places) as places, exclusive(places):
        migrate(places)
        write_history(places)
        with airflow(places, free_ports(), settings=settings) as running:
            tokens = {user: sign_in(browser, running.url, user) for user in USERS}
            client = AirflowClient(running.url, token=tokens["admin"])
            client.wait_for_dags({f"{AIRCRAFT}.{dag}" for dag in ("savepoint", "restore", "dispose")})
            yield Tour(running.url, client, tokens)


def sign_in(browser: Browser, url: str, user: str) -> str:
    """Sign in by Airflow's form, as a person does, and return the token of the session."""
    with browser.new_context() as context:
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(url)
        page.get_by_label("Username").fill(user)
        page.get_by_label("Password").fill(user[::-1])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{url}/")
        return next(cookie["value"] for cookie in context.cookies() if cookie["name"] == "_token")


@pytest.fixture
def admin(new_page: OpenPage, tour: Tour, watch: Watch) -> Page:
    watch.expected.append(AIRFLOWS_OWN)
    return new_page(storage_state=tour.session("admin"))


def state(page: Page) -> Frame:
    """Return the page State in Airflow's frame."""
    page.wait_for_selector("iframe")
    frame = page.frames[1]
    frame.wait_for_selector("h1")
    return frame


def test_every_part_of_the_page_shows_the_history(admin: Page, tour: Tour, shot: Shot) -> None:
    admin.goto(tour.url)
    admin.get_by_role("button", name="Browse").click()
    admin.get_by_role("menuitem", name="State").click()
    frame = state(admin)
    expect(frame.get_by_role("row").filter(has_text=AIRCRAFT)).to_contain_text("1 in quarantine")
    for name in ("carrier_streaks", "route_delays"):
        expect(frame.get_by_role("row").filter(has_text=name)).to_contain_text("Healthy")
    shot(admin, "airflow-1440")

    frame.get_by_role("link", name=AIRCRAFT, exact=True).click()
    table = frame.get_by_role("table", name=f"Checkpoints of {AIRCRAFT}")
    expect(table.get_by_role("row")).to_have_count(1 + HEAD)
    expect(table.get_by_role("row").filter(has_text="Aborted")).to_contain_text("snapshot failed")
    expect(table.get_by_role("row").filter(has_text="Quarantined")).to_contain_text("1 of 17 failed")
    expect(table.get_by_role("row").filter(has_text="savepoint")).to_contain_text("before release 2.4")
    expect(table.get_by_text(f"after a restore to {FIFTH}")).to_have_count(1)

    tables = frame.get_by_role("table", name=f"Published tables of {AIRCRAFT}").get_by_role("row")
    expect(tables.filter(has=frame.get_by_text("aircraft", exact=True))).to_contain_text(
        re.compile(rf"Up to date.*{HEAD}")
    )
    expect(tables.filter(has_text="aircraft_changes")).to_contain_text(re.compile(rf"2 checkpoints.*{FIFTH}"))

    for number in (FIFTH, HEAD):
        frame.get_by_role("checkbox", name=f"Choose {number} for comparing").check()
    frame.get_by_role("link", name="Compare").click()
    expect(frame.get_by_text(f"statelib checkpoints diff {AIRCRAFT}/{FIFTH} {AIRCRAFT}/{HEAD}")).to_be_visible()

    frame.get_by_role("link", name=str(HEAD), exact=True).click()
    expect(frame.get_by_role("heading", level=1)).to_have_text(f"Checkpoint {HEAD}")
    expect(frame.get_by_role("figure").filter(has_text="by key group")).to_be_visible()
    expect(frame.get_by_role("table", name="Files")).to_be_visible()
    with admin.context.expect_page() as opened:
        frame.get_by_role("link", name="Data Docs").click()
    expect(opened.value.locator("body")).to_contain_text("Validated with Great Expectations")
    frame.get_by_role("link", name="Storage").first.click()
    expect(frame.get_by_role("figure").filter(has_text="over time")).to_be_visible()


def test_a_viewer_can_look_but_trigger_nothing(new_page: OpenPage, tour: Tour) -> None:
    page = new_page(storage_state=tour.session("viewer"))
    page.goto(f"{tour.url}/statelib/#/p/{AIRCRAFT}")
    button = page.get_by_role("link", name="Savepoint…")
    expect(button).to_have_attribute("aria-disabled", "true")
    assert button.get_attribute("href") is None
    conf = {"logical_date": None, "conf": {"note": "sly"}}
    answer = page.request.post(f"{tour.url}/api/v2/dags/{AIRCRAFT}.savepoint/dagRuns", data=conf)
    assert answer.status == 403


@pytest.mark.parametrize(("width", "dark"), cases([1440, 360], [False, True]))
def test_every_page_is_accessible(new_page: OpenPage, tour: Tour, shot: Shot, width: int, dark: bool) -> None:
    page = new_page(width, dark, storage_state=tour.session("admin"))
    for name, place in PLACES.items():
        page.goto("about:blank")
        page.goto(f"{tour.url}/statelib/#/{place}")
        page.wait_for_load_state("networkidle")
        shot(page, f"{name}-{width}{'-dark' if dark else ''}")
        assert page.get_by_role("alert").count() == 0
        assert inaccessible(page) == []
        assert overflow(page) == 0


def test_a_corrected_day_is_named_by_history_comparison_and_checkpoint(admin: Page, tour: Tour, shot: Shot) -> None:
    admin.goto(f"{tour.url}/plugin/state/statelib/#/p/{ROUTES}")
    rows = state(admin).get_by_role("table", name=f"Checkpoints of {ROUTES}").get_by_role("row")
    expect(rows.filter(has_text="mends 2013-01-02")).to_have_count(1)
    admin.goto(f"{tour.url}/statelib/#/p/{ROUTES}/compare?left={ROUTES_HEAD - 1}&right={ROUTES_HEAD}")
    expect(admin.get_by_role("row").filter(has_text="Interval")).to_contain_text(
        re.compile("2013-01-05.*mends 2013-01-02")
    )
    shot(admin, "compare-mended-1440")
    admin.goto(f"{tour.url}/statelib/#/p/{ROUTES}/c/{ROUTES_HEAD}")
    expect(admin.get_by_label("Facts", exact=True)).to_contain_text("mends 2013-01-02")
    expect(admin.get_by_role("listitem").filter(has_text="deltas of 5 intervals")).to_contain_text(
        "2013-01-01 … 2013-01-05"
    )


def test_the_approval_of_a_correction_shows_what_would_differ(admin: Page, tour: Tour, shot: Shot) -> None:
    dag_id = f"{ROUTES}.mend"
    run = tour.client.run(dag_id, tour.client.trigger(dag_id, {"interval": "2013-01-02", "approval": True}))
    assert "Differences, by" in asked(tour.client, run)["body"]
    admin.goto(f"{tour.url}/dags/{dag_id}/runs/{run.run_id}/tasks/approve/required_actions")
    item = admin.get_by_role("listitem").filter(has_text="minutes_flown").first
    expect(item).to_contain_text("changed")
    assert item.locator("code").count() >= 1
    shot(admin, "approval-1440")
    with admin.expect_response(lambda answer: answer.request.method == "PATCH") as answered:
        admin.get_by_role("button", name="Reject").click()
    assert answered.value.ok, answered.value.text()
    assert tour.client.wait_for_run(dag_id, run.run_id, RUN_PATIENCE_S).state == "success", "a no is an answer"


def test_a_savepoint_with_a_note_and_an_approved_restore_can_be_triggered(admin: Page, tour: Tour, shot: Shot) -> None:
    open_form(admin, tour, "Savepoint…", f"{ROUTES}.savepoint")
    enter(admin, "Note", NOTE)
    savepoint = triggered(admin, tour, f"{ROUTES}.savepoint")
    assert savepoint["note"] == NOTE
    number = ROUTES_HEAD + 1
    admin.goto(f"{tour.url}/plugin/state/statelib/#/p/{ROUTES}/c/{number}")
    expect(state(admin).get_by_role("heading", level=1)).to_have_text(f"Savepoint {number}")
    expect(state(admin).locator("main")).to_contain_text(NOTE)
    expect(state(admin).get_by_role("link", name="Dispose…")).to_have_attribute(
        "href", re.compile(rf"/dags/{ROUTES}\.dispose$")
    )
    assert_airflow_leads_to(admin, tour, number)
    assert_groups_open(admin, tour, shot)

    open_form(admin, tour, f"Restore… to {EARLIER}", f"{ROUTES}.restore")
    enter(admin, "Checkpoint", str(EARLIER))
    ask = admin.get_by_role("dialog").get_by_role("checkbox", name="Ask before the switch")
    ask.focus()
    admin.keyboard.press("Space")
    expect(ask).to_be_checked()
    shot(admin, "trigger-1440")
    assert triggered(admin, tour, f"{ROUTES}.restore", approve=True)["checkpoint"] == str(EARLIER)
    admin.goto(f"{tour.url}/plugin/state/statelib/#/p/{ROUTES}")
    row = state(admin).get_by_role("row").filter(has_text=f"2013-01-{EARLIER:02d}").filter(has_text="head")
    expect(row).to_contain_text(str(EARLIER))
    expect(state(admin).get_by_label("Pipeline", exact=True)).to_contain_text("generation1")


def assert_airflow_leads_to(page: Page, tour: Tour, number: int) -> None:
    """Assert that Airflow links to the page from the savepoint's task, its run, and its DAG."""
    dag = f"{tour.url}/dags/{ROUTES}.savepoint"
    (run,) = tour.client.runs(f"{ROUTES}.savepoint")
    page.goto(f"{dag}/runs/{run.run_id}/tasks/register/details")
    link = page.get_by_role("link", name="Checkpoint", exact=True).get_attribute("href")
    for address in (urljoin(dag, link or ""), f"{dag}/runs/{run.run_id}/plugin/state-run"):
        page.goto(address)
        expect(state(page).get_by_role("heading", level=1)).to_have_text(f"Savepoint {number}")
    page.goto(f"{dag}/plugin/state-dag")
    expect(state(page).get_by_role("heading", level=1)).to_have_text(ROUTES)


def assert_groups_open(page: Page, tour: Tour, shot: Shot) -> None:
    """Assert that the tasks from the Spark job to the registration are one group in Airflow's grid."""
    page.goto(f"{tour.url}/dags/{ROUTES}.savepoint")
    expect(page.get_by_text("abort", exact=True).first).to_be_visible()
    assert page.get_by_text("check_completeness", exact=True).count() == 0
    expand = page.get_by_role("button", name="Expand all task groups").first
    # Airflow's page may show no groups if it is loaded while the machine is busy.
    with suppress(PlaywrightTimeoutError):
        expand.wait_for(timeout=10_000)
    if not expand.is_visible():
        page.reload()
    expand.click()
    expect(page.get_by_text("check_completeness", exact=True).first).to_be_visible()
    shot(page, "run-1440")


def open_form(page: Page, tour: Tour, button: str, dag_id: str) -> None:
    """Go from the page's button to Airflow's form."""
    page.goto(f"{tour.url}/plugin/state/statelib/#/p/{ROUTES}")
    state(page).get_by_role("link", name=button, exact=True).click()
    page.wait_for_url(f"{tour.url}/dags/{dag_id}")
    page.get_by_test_id("trigger-dag-button").click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Run Parameters")).to_be_visible()


def enter(page: Page, field: str, value: str) -> None:
    """Enter a value into a field of free text that offers examples."""
    group = page.get_by_role("dialog").get_by_role("group").filter(has_text=field).last
    group.get_by_role("combobox").fill(value)
    group.get_by_role("combobox").press("Enter")


def triggered(page: Page, tour: Tour, dag_id: str, *, approve: bool = False) -> dict[str, object]:
    """Press the form's button, and return the run's conf once the run has succeeded."""
    page.get_by_role("dialog").get_by_role("button", name="Trigger", exact=True).click()
    page.wait_for_url(f"{tour.url}/dags/{dag_id}/runs/*")
    (run,) = tour.client.runs(dag_id)
    page.goto("about:blank")  # a page that shows a run is drawn again and again
    if approve:
        plan = asked(tour.client, run)["body"]
        assert f"to checkpoint {EARLIER}" in plan
        page.goto(f"{tour.url}/dags/{dag_id}/runs/{run.run_id}/tasks/approve/required_actions")
        # The page's requests pass through this process, which handles none of them once it waits for the run.
        with page.expect_response(lambda answer: answer.request.method == "PATCH") as answered:
            page.get_by_role("button", name="Approve").click()
        assert answered.value.ok, answered.value.text()
        page.goto("about:blank")
    ended = tour.client.wait_for_run(dag_id, run.run_id, RUN_PATIENCE_S)
    assert ended.state == "success", tour.client.failed_log(ended)
    return dict(tour.client.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"][0]["conf"])
