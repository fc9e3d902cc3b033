"""The pages in a real browser: on a telephone, light and dark, by keyboard alone, and for everybody (axe)."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn

from fedfairx.agent.schedules import Never
from fedfairx.client import Client
from fedfairx.demo.couriers import FEATURES, SHARED, Couriers
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.transport import SqliteTransport
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.pages import PAGES
from fedfairx.service.settings import load
from fedfairx.storage.api_keys import ApiKeys
from fedfairx.storage.queries import matching
from market import fill
from servers import missing
from service_helpers import until

pytestmark = pytest.mark.process

AXE = Path(__file__).with_name("axe.min.js").read_text(encoding="utf-8")
LOOK = "rules => axe.run(rules).then(result => [result.violations, result.passes.length])"
ALIKE = """() => {  // remove rows whose elements and classes are those of two other rows
    const kinds = {};
    for (const row of document.querySelectorAll("tbody tr")) {
        const each = [row, ...row.querySelectorAll("*")];
        const kind = each.map(one => `${one.tagName} ${one.getAttribute("class")}`).join();
        kinds[kind] = (kinds[kind] || 0) + 1;
        if (kinds[kind] > 2) row.remove();
    }
}"""
COLOURS = ["color-contrast", "link-in-text-block"]  # axe's rules that look at them
PATHS = [
    *(each.path for each in PAGES.values()),
    "/decisions?before=1",
    "/decisions/{newest}",
    "/share?action={shown}",
    "/exposure?period=last-month",
    "/sign-in",
]


@dataclass
class Watched:
    """A page of a browser, with all that its console said and all addresses that it asked."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


class Site:
    """A service with pages, in a thread of this process."""

    def __init__(self, place: Path, **given: Any) -> None:
        self.service = open_service(load({"data": str(place.parent), **given}, environment={}))
        config = uvicorn.Config(make_app(self.service), port=0, log_level="error", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def at(self, path: str) -> str:
        """The address of a path, in which {newest} is the newest decision, and {shown} its action."""
        (newest,), _ = matching(self.service.default.journal, newest=True, limit=1)
        return self.url + path.replace("{newest}", newest.id).replace("{shown}", quote(str(newest.name)))

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


def fits(tab: Any, width: int) -> None:
    """A page of this width has nothing beside it, once it is laid out; else this fails after some seconds."""
    tab.set_viewport_size({"width": width, "height": 844})
    fitting = "width => innerWidth === width && document.documentElement.scrollWidth <= width"
    tab.wait_for_function(fitting, arg=width, timeout=5_000)


def load_axe(page: Any) -> None:
    """Have axe in a page, which takes the longer the more rows there are, and sees no more in a third one."""
    page.evaluate(ALIKE)
    page.evaluate(AXE)


def violations(page: Any, *rules: str, least: int = 15) -> list[tuple[str, str, str]]:
    """What axe finds, by all of its rules or by some; more than `least` of them must find nothing wrong."""
    found, passed = page.evaluate(
        LOOK, {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    )
    assert passed > least  # it did look
    nodes = [(each["id"], each["nodes"][0]) for each in found]
    return [(name, node["html"][:200], node["failureSummary"]) for name, node in nodes]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright")
    if program is None:
        missing("Chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def watched(browser: Any) -> Watched:
    """One page for all tests that need nothing else: a new one is a process, and half a second."""
    context = browser.new_context()
    made = Watched(context.new_page())
    context.on("console", lambda message: made.said.append(message.text))
    context.on("weberror", lambda error: made.said.append(str(error.error)))
    context.on("request", lambda request: made.asked.append(request.url))
    return made


@pytest.fixture
def tab(watched: Watched) -> Any:
    """That page, large and light."""
    watched.page.set_viewport_size({"width": 1280, "height": 720})
    watched.page.emulate_media(color_scheme="light", media="null", reduced_motion="no-preference")
    return watched.page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("market") / "agent.sqlite"
    fill(str(place), 4_000, favourite=0.5)  # some are above, some below, and of some too little is known
    found = Site(place)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A member of a federation with partners of whom nothing, or nothing good, has come."""
    base = tmp_path_factory.mktemp("federation")
    terms = Terms(dimension=3, agents=3, horizon=20, epsilon=2.0, schedule=Never())
    create_federation(
        base, terms, dict.fromkeys(("org1", "org2", "organisation-with-a-long-name")), transport="sqlite"
    )
    SqliteTransport(base / "transport.sqlite").publish("org2", b"rubbish", replacing=None)
    site = Site(base / "org1" / "data" / "agent.sqlite", federation=str(base / "org1"))
    yield site
    site.stop()


@pytest.mark.parametrize("path", ["/", "/federation"])
def test_a_member_has_a_page_that_fits(tab: Any, member: Site, path: str) -> None:
    tab.goto(member.url + path)
    assert tab.get_by_text("Nothing more is shared").count() >= 1
    load_axe(tab)
    for width in (390, 1200):
        fits(tab, width)
        assert violations(tab) == []


def test_ten_decisions_fit_a_report_and_have_no_bold_shortfall(tab: Any, tmp_path: Path) -> None:
    site, city = Site(tmp_path / "agent.sqlite", features=FEATURES, shared=SHARED), Couriers(seed=0)
    with Client(site.url) as client:
        for _ in range(10):
            client.decide(**city.order().request)
    tab.goto(site.url + "/report")
    cells = "[...document.querySelectorAll('table.exposure :is(td, th)')]"
    wide = f"{cells}.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
    assert tab.evaluate(wide) == []
    tab.goto(site.url + "/exposure")
    figures = "[...document.querySelectorAll('td[data-label^=Shortfall] .figure')]"
    assert set(tab.evaluate(f"{figures}.map(one => getComputedStyle(one).fontWeight)")) == {"400"}
    site.stop()


def test_a_member_with_secure_aggregation_has_a_page_that_fits(tab: Any, tmp_path: Path) -> None:
    terms = Terms(dimension=3, agents=3, horizon=20, epsilon=2.0, aggregation="secure")
    names = ("org1", "org2", "organisation-with-a-long-name")
    create_federation(tmp_path, terms, dict.fromkeys(names), transport="sqlite")
    site = Site(tmp_path / "org1" / "data" / "agent.sqlite", federation=str(tmp_path / "org1"))

    def waits() -> bool:
        tab.goto(site.url + "/federation")
        return bool(tab.get_by_text("waits for org2 (key)").count() == 1)

    until(waits)  # it has looked for messages
    assert tab.get_by_text("What is claimed, and against whom").count() == 1
    for width in (390, 1200):
        fits(tab, width)
    load_axe(tab)
    assert violations(tab) == []
    site.stop()


@pytest.fixture(scope="module", params=PATHS)
def opened(request: pytest.FixtureRequest, watched: Watched, site: Site) -> Watched:
    """Each page on a telephone, for all tests of it."""
    watched.said.clear()
    watched.asked.clear()
    watched.page.set_viewport_size({"width": 390, "height": 844})
    watched.page.emulate_media(color_scheme="light")
    watched.page.goto(site.at(request.param))
    return watched


def test_it_fits_a_telephone(opened: Watched) -> None:
    fits(opened.page, 390)
    small = opened.page.evaluate(
        """[...document.querySelectorAll("main *")].filter(each => each.childNodes.length
            && [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())
            && getComputedStyle(each).display !== "none"
            && parseFloat(getComputedStyle(each).fontSize) < 10.9)
            .map(each => each.outerHTML.slice(0, 100))"""
    )
    assert small == []


def test_axe_finds_no_violation(opened: Watched) -> None:
    page = opened.page
    page.emulate_media(reduced_motion="reduce")
    load_axe(page)
    for width in (390, 1200):
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme="light")
        assert violations(page) == []
        page.emulate_media(color_scheme="dark")  # which changes colours and nothing else
        assert violations(page, *COLOURS, least=0) == []


def test_a_browser_has_nothing_to_complain_about(opened: Watched, site: Site) -> None:
    """No violation of the content security policy, no error in a script, nothing asked of another host."""
    opened.page.wait_for_load_state("networkidle")  # half a second without a request
    assert opened.said == []
    assert len(opened.asked) > 1
    assert {url for url in opened.asked if not url.startswith(site.url)} == set()


def test_there_are_charts(tab: Any, site: Site) -> None:
    tab.goto(site.url + "/")
    assert tab.locator(".plot canvas").count() == 1
    tab.goto(site.url + "/exposure")
    tab.get_by_role("link", name="Cy Ltd").click()
    tab.get_by_role("heading", name="Cy Ltd over time").wait_for()
    assert tab.locator(".plot canvas").count() == 1


LABELS = """() => {  // that are drawn from now on, with the room on both sides
    const fill = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function(text, x, y) {
        const half = this.measureText(text).width / 2;
        const room = Math.min(x - half, this.canvas.width - x - half);
        if (text.includes(":") || text.includes("%")) window.labels.push([text, room]);
        return fill.call(this, text, x, y);
    };
}"""
YOUNG = """begin => {  // four minutes in stretches of ten seconds
    const figure = document.querySelector("figure.chart"), data = JSON.parse(figure.dataset.series);
    data.times = [...Array(24).keys()].map(k => 1.8e9 + begin + 10 * k);
    data.decisions = data.rewards = data.times.map(() => 1);
    figure.dataset.series = JSON.stringify(data);
    window.labels = [];
}"""
DRAWN = """new Promise(done => {
    let frames = 0;
    const look = () => labels.length || ++frames > 300 ? done(labels) : requestAnimationFrame(look);
    look();
})"""


def test_a_narrow_chart_has_labels_of_time_that_are_whole(tab: Any, site: Site) -> None:
    """By uPlot's own steps there was one label, and that was cut."""
    tab.set_viewport_size({"width": 400, "height": 900})
    tab.goto(site.url + "/")
    tab.evaluate(LABELS)
    for number, begin in enumerate((0, 60, 130, 200, 290)):
        tab.evaluate(YOUNG, begin)
        tab.emulate_media(color_scheme=("dark", "light")[number % 2])  # which draws again
        labels = tab.evaluate(DRAWN)
        assert len({text for text, _ in labels}) >= 2, labels
        assert min(room for _, room in labels) >= 0, labels


SMALL = """most => {  // shares up to this one
    const figure = document.querySelector("figure.chart"), data = JSON.parse(figure.dataset.shares);
    data.shown = data.entitled = data.times.map((_, k) => k % 2 ? most : 0);
    figure.dataset.shares = JSON.stringify(data);
    window.labels = [];
}"""


def test_labels_of_shares_differ(tab: Any, site: Site) -> None:
    """Of a share of 3 % there were two labels "1 %" and two "2 %"."""
    tab.goto(site.url + "/exposure")
    tab.evaluate(LABELS)
    for number, most in enumerate((0.03, 0.013, 0.08, 0.3, 0.9)):
        tab.evaluate(SMALL, most)
        tab.emulate_media(color_scheme=("dark", "light")[number % 2])
        labels = [text for text, _ in tab.evaluate(DRAWN) if "%" in text]
        assert len(set(labels)) == len(labels) >= 3, labels
        assert labels[0] in ("0 %", "0.0 %")


def test_a_reader_sees_less_and_as_well(tab: Any, tmp_path: Path) -> None:
    place = tmp_path / "agent.sqlite"
    fill(str(place), 400)
    site = Site(place)
    try:
        key = ApiKeys(site.service.log).add("reader", "reader")
        site.service.auth.any_key = True
        tab.set_extra_http_headers({"authorization": f"Bearer {key}"})
        for path, said in (
            ("/", "Decisions made and rewarded over time"),
            ("/decisions", "nor are probabilities, which come from rewards"),
            ("/exposure", "each covers the mean of the probabilities"),
            ("/rewards", "For how many decisions a reward came"),
            ("/decisions/{newest}", "which are for auditors and admins"),
        ):
            tab.goto(site.at(path))
            assert tab.get_by_text(said).count() == 1
            offered = tab.get_by_role("navigation", name="Pages", exact=True).get_by_role("link")
            assert {*offered.all_inner_texts()}.isdisjoint({"Model", "Report"})
            load_axe(tab)
            for width in (390, 1200):
                fits(tab, width)
                assert violations(tab) == []
    finally:
        tab.set_extra_http_headers({})
        site.stop()


def test_the_keyboard_is_enough(tab: Any, site: Site) -> None:
    tab.goto(site.url + "/")
    focused = "document.activeElement.textContent.trim()"
    tab.keyboard.press("Tab")
    assert tab.evaluate(focused) == "Skip to the content"
    assert tab.locator(".skip").bounding_box()["x"] >= 0  # it is seen while it has the focus
    visited = []
    for _ in range(9):
        tab.keyboard.press("Tab")
        visited.append(tab.evaluate(focused))
        seen = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert seen != "none", visited[-1]
    names = ["Overview", "Exposure", "Rewards", "Model", "Decisions", "Privacy", "Federation", "Report"]
    assert visited[1:9] == names
    tab.goto(site.url + "/decisions")
    tab.locator("summary").first.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("details[open]").count() == 1


def test_without_scripts_everything_is_said(browser: Any, site: Site) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url + "/")
    assert page.locator("details table tbody tr").count() >= 1
    page.goto(site.url + "/report")
    assert page.locator("button.print").is_hidden()
    context.close()


def test_the_report_is_one_sheet_to_sign(tab: Any, site: Site) -> None:
    tab.emulate_media(color_scheme="dark")
    tab.goto(site.url + "/report")
    printed = tab.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type /Page\b", printed)) == 1
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.locator(".top").is_hidden()
    assert tab.get_by_text("it can’t see that the model is wrong").is_visible()
    assert tab.locator(".sign .lines").is_visible()


def test_with_keys_one_signs_in(tab: Any, tmp_path: Path) -> None:
    site = Site(tmp_path / "agent.sqlite", dimension=3)
    try:
        key = ApiKeys(site.service.log).add("owner", "reader")
        site.service.auth.any_key = True
        tab.goto(site.url + "/exposure")
        tab.get_by_label("Key").fill("mistyped")
        tab.keyboard.press("Enter")
        tab.get_by_role("alert").wait_for()
        tab.get_by_label("Key").fill(key)
        tab.keyboard.press("Enter")
        tab.get_by_role("heading", name="Overview", level=1).wait_for()
        tab.get_by_role("link", name="Exposure").click()
        tab.get_by_role("heading", name="Exposure", level=1).wait_for()
        assert tab.evaluate("document.cookie") == ""  # no script can read it
        tab.get_by_role("button", name="Sign out").click()
        tab.get_by_role("heading", name="Sign in", level=1).wait_for()
    finally:
        tab.context.clear_cookies()
        site.stop()


def test_a_figure_of_a_tutorial_fits_a_phone(tab: Any) -> None:
    """The site's style, on a page as the site has it."""
    style = (Path(__file__).parents[3] / "docs" / "static" / "site.css").read_text(encoding="utf-8")
    figure = "<svg xmlns='http://www.w3.org/2000/svg' width='900' height='300'/>"
    image = f'<img src="data:image/svg+xml,{quote(figure)}">'
    tab.goto("about:blank")  # a page of the service before would forbid the picture
    tab.set_viewport_size({"width": 400, "height": 800})
    tab.set_content(
        f'<style>{style}</style><article><div class="cell_output">{image}</div></article>',
        wait_until="load",
    )
    tab.evaluate("document.querySelector('img').decode()")
    left, right, height = tab.evaluate(
        "() => { const at = document.querySelector('img').getBoundingClientRect(); "
        "return [at.left, at.right, at.height]; }"
    )
    assert 0 <= left < right <= 400
    assert height == pytest.approx((right - left) / 3, abs=1)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
