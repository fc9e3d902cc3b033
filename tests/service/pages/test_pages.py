"""Pages over HTTP: what they say, what they never say, and who may see them."""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import fedfairx as ffx
from fedfairx.decision import DecisionNote
from fedfairx.demo.couriers import FEATURES, SHARED, Couriers
from fedfairx.service import exposure_cache
from fedfairx.service.pages import PAGES, jinja
from fedfairx.service.pages.pagination import LINES
from fedfairx.storage.api_keys import ApiKeys
from market import MERIT, NAMES, fill, looking

PATHS = [each.path for each in PAGES.values()]


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("market") / "agent.sqlite")
    fill(place, 400)
    return place


@pytest.fixture
def empty(tmp_path) -> str:
    return str(tmp_path / "agent.sqlite")


@pytest.mark.long
def test_every_page_is_there_and_loads_nothing_from_elsewhere(market: str) -> None:
    with looking(market) as client:
        for path in [*PATHS, *(f"/agents/market{path}" for path in PATHS)]:
            answer = client.get(path)
            assert answer.status_code == 200, path
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"
            assert not re.search(r"""(src|href|action)=["'](https?:)?//""", answer.text)
            assert " style=" not in answer.text
            assert "<script>" not in answer.text
            for link in re.findall(r'(?:src|href)="(/[^"#]*)"', answer.text):
                assert client.get(link).status_code == 200, link


def test_an_empty_service_says_so(empty: str) -> None:
    with looking(empty, dimension=3) as client:
        assert "No decision has been made yet." in client.get("/").text
        assert "Nothing needs attention." in client.get("/").text
        assert "No decision was made in this period." in client.get("/exposure").text
        assert "No decision has been made yet." in client.get("/decisions").text
        assert "learns alone" in client.get("/federation").text
        report = client.get("/report")
        assert report.status_code == 200
        assert "draws tell" not in report.text


def test_without_an_agent_the_first_page_says_how_to_make_one(tmp_path: Path) -> None:
    with looking(str(tmp_path / "agent.sqlite")) as client:
        answer = client.get("/")
        assert answer.status_code == 404
        assert "There is no agent yet" in answer.text
        assert "PUT /v1/agents/shop" in answer.text
        assert ">Overview</a>" not in answer.text  # which would lead here again
        assert client.put("/v1/agents/shop", json={"actions": ["ann", "ben", "cid"]}).status_code == 200
        assert client.get("/").status_code == 200


def test_names_are_escaped_everywhere(market: str) -> None:
    with looking(market) as client:
        for path in ("/", "/exposure", "/decisions", "/report"):
            text = client.get(path).text
            assert "<b>Eve" not in text
            assert path == "/" or "&lt;b&gt;Eve" in text


def test_invisible_characters_in_names_are_shown_escaped(tmp_path) -> None:
    hidden = "[\u202e\u200b\x1b\u2066\u3164]"
    names, groups = (
        ["ann\u202eneb", "cid\u200b", "dora\x1b[31m", "eve\n"],
        ["left\u2066", None, None, "two\u3164"],
    )
    actions = {"ann\\u202eneb", "cid\\u200b", "dora\\x1b[31m", "eve\\n"}
    everything = actions | {"left\\u2066", "two\\u3164"}
    place = str(tmp_path / "agent.sqlite")
    with ffx.Agent.open(place, dimension=2, name="market\u202e", seed=0) as agent:
        for _ in range(12):
            note = DecisionNote(groups=groups)
            agent.observe(agent.decide(np.ones((4, 2)), names=names, note=note), reward=0.5)
    with looking(place) as client:
        for path, shown in {
            "/": set(),
            "/exposure": everything,
            "/decisions": actions,
            "/report": everything,
        }.items():
            text = client.get(path).text
            assert not re.search(hidden, text), path
            assert {each for each in (*shown, "market\\u202e") if each not in text} == set(), path


@pytest.mark.parametrize("decide_from", [None, "own+released", "released"])
def test_the_privacy_page_of_an_agent_that_is_alone_does_not_contradict_itself(
    empty: str, decide_from: str | None
) -> None:
    given = {} if decide_from is None else {"epsilon": 2.0, "decide_from": decide_from}
    with looking(empty, dimension=3, **given) as client:
        text = unescape(re.sub(r"<[^>]*>|\s+", " ", client.get("/privacy").text))
    later = "What a record changes in later decisions, which use this agent's own data without noise."
    assert "sent, without noise" not in text
    silent = "Nothing leaves this service" if decide_from is None else "nothing has been sent"
    assert silent in text
    assert "NOT PRIVATE" not in text
    assert ("Outside of the guarantee" in text) == (decide_from is not None)
    assert (later in text) == (decide_from == "own+released")
    assert ("so it has learnt nothing" in text) == (decide_from == "released")
    assert ("It is the strict claim" in text) == (decide_from == "released")


def test_pages_tell_no_context_and_no_reward(market: str) -> None:
    """Every number with many digits would be one; ours are rounded."""
    with looking(market) as client:
        for path in PATHS:
            text = re.sub(r'(datetime|x|x1|x2|cx|width)="[^"]*"', "", client.get(path).text)
            assert not re.search(r"\d\.\d{4,}", text), path


def test_the_exposure_page_shows_the_table(market: str) -> None:
    with looking(market) as client:
        text, table = client.get("/exposure").text, client.get("/v1/exposure").json()
        assert {row["name"] for row in table["actions"]} == set(NAMES)
        assert "drawn as the policy said" in text
        assert f"{table['withdrawn']} decisions were withdrawn" in text
        for row in table["actions"]:
            assert f"{100 * row['shown']['value']:.1f}\u00a0%" in text
        assert client.get("/exposure?period=month").status_code == 200
        assert "No decision was made in this period." in client.get("/exposure?period=last-month").text
        assert client.get("/exposure?period=<script>").status_code == 422


@pytest.mark.long
def test_the_overview_begins_with_who_is_shown_too_little(tmp_path) -> None:
    place = str(tmp_path / "agent.sqlite")
    fill(place, 4_000, favourite=0.5)
    with looking(place) as client:
        text, table = client.get("/").text, client.get("/v1/exposure").json()
        verdicts = {row["name"]: row["likely"]["verdict"] for row in table["groups"] + table["actions"]}
        assert verdicts["Ada Works"] == "likely above"
        below = [name for name, verdict in verdicts.items() if verdict == "likely below"]
        assert below
        assert 0 < text.index(table["summary"]) < text.index("What needs attention")
        assert f"{len(below)} {'is' if len(below) == 1 else 'are'} likely below" in table["summary"]
        shortfall = {
            row["name"]: row["estimate"]["value"] - row["shown"]["value"]
            for row in table["groups"] + table["actions"]
        }
        worst = sorted(below, key=lambda name: -shortfall[name])[:3]
        first = text.split("What needs attention")[0].replace("<wbr>", "")  # where a name may break
        listed = re.findall(r'<tr><th scope="row">([^<]+)<', first)
        assert [unescape(name).strip() for name in listed] == worst
        report = client.get("/report").text
        assert table["summary"] in report
        assert "took the caller’s baseline" in client.get("/exposure").text


def test_decisions_come_page_by_page_newest_first(market: str) -> None:
    with looking(market) as client:
        seen, path = [], "/decisions"
        while path:
            text = client.get(path).text
            seen += [int(found) for found in re.findall(r"<code>[a-z0-9]+-(\d+)</code>", text)]
            older = re.search(r'href="(/decisions\?before=\d+)"', text)
            path = older[1] if older else ""
        assert len(seen) == 400
        assert seen == sorted(seen, reverse=True)
        for odd in ("x", "-1", "1e9", "9" * 40, "²"):
            assert client.get("/decisions", params={"before": odd}).status_code == 422


def test_a_page_that_is_just_full_leads_nowhere(empty: str) -> None:
    with ffx.Agent.open(empty, dimension=3, name="market", merit=MERIT) as agent:
        agent.learn(np.eye(3), [0.0, 0.5, 1.0])  # so that the number of the first decision is not 0
    fill(empty, LINES)
    with looking(empty) as client:
        text = client.get("/decisions").text
        assert text.count('<tr role="row">') == 1 + LINES
        assert "Older" not in text


def test_pages_only_read(market: str) -> None:
    with looking(market) as client:
        for path in PATHS:
            for method in ("POST", "PUT", "DELETE"):
                assert client.request(method, path).status_code == 405


def test_without_a_key_only_this_machine_may_look(market: str) -> None:
    with looking(market) as client:
        assert client.get("/", headers={"host": "elsewhere.example"}).status_code == 403


def test_a_page_that_fails_tells_nothing_of_the_error(market: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with looking(market) as client:

        def fail(*_args, **_more):
            raise RuntimeError("a secret")

        monkeypatch.setattr("fedfairx.service.pages.decision_pages.matching", fail)
        answer = client.get("/decisions")
        assert answer.status_code == 500
        assert "a secret" not in answer.text
        assert "Internal error" in answer.text


def test_behind_a_proxy_links_keep_the_path(market: str) -> None:
    with looking(market) as client:
        there = TestClient(client.app, base_url="http://127.0.0.1", root_path="/agents/1")
        for path in PATHS:
            text = there.get(path).text
            links = re.findall(r'(?:href|src|action)="([^"#]+)"', text)
            assert links
            assert all(link.startswith(("/agents/1/", "?")) for link in links), path


def test_files_have_the_licence_beside_them() -> None:
    from importlib.resources import files

    static = files("fedfairx.service.pages") / "static"
    assert "MIT" in (static / "uPlot.LICENSE").read_text()
    assert "v1.6" in jinja.STATIC["uPlot.iife.min.js"][:100].decode()
    assert {"pages.css", "pages.js", "uPlot.min.css", "mark.svg"} <= set(jinja.STATIC)


def test_decisions_are_filtered(market: str) -> None:
    with looking(market) as client:
        api = client.get("/v1/decisions?action_id=Cy%20Ltd&group=large&status=rewarded&limit=1000").json()
        assert api["next"] is None
        right = [each["decision_id"] for each in api["decisions"]]
        every = client.get("/v1/decisions?limit=1000").json()["decisions"]
        assert right == [
            each["decision_id"]
            for each in every
            if (each["action_id"], each["status"]) == ("Cy Ltd", "rewarded")
        ]
        path = "/decisions?action=Cy%20Ltd&group=large&status=rewarded"
        found, text = [], client.get(path).text
        while True:
            found += re.findall(r'/decisions/([^"?]+)"><code>', text)
            older = re.search(r'href="/decisions([^"]+)">Older', text)
            if older is None:
                break
            text = client.get(f"/decisions{older[1].replace('&amp;', '&')}").text
        assert found == right[::-1]
        assert len(found) > 50
        lines = client.get(f"{path}&format=csv").text.splitlines()
        assert [line.split(",")[0] for line in lines[1:]] == found
        one = client.get(f"/decisions?id={found[3]}").text
        assert re.findall(r'/decisions/([^"?]+)"><code>', one) == [found[3]]
        assert "No decision is like that." in client.get("/decisions?group=nobody").text
        assert client.get("/decisions?status=odd").status_code == 422


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Pages of 230 actions, one with a long name and one like a formula."""
    place = str(tmp_path_factory.mktemp("many") / "agent.sqlite")
    names = [*(f"seller {number:04d}" for number in range(228)), "=1+1", "W" * 190]
    with ffx.Agent.open(place, actions=names, name="many", seed=0) as agent, agent.transaction():
        for t in range(60):
            agent.observe(agent.decide(), reward=float(t % 2))
    with looking(place) as client:
        yield client


@pytest.mark.parametrize("path", ["/exposure", "/model"])
def test_many_actions_come_in_pages(many: TestClient, path: str) -> None:
    text = many.get(path).text
    assert text.count('scope="row" role="rowheader"') == 50
    text = many.get(f"{path}?sort=name").text
    assert "Page 1 of 5" in text
    assert "seller 0051" not in text
    assert "seller 0051" in many.get(f"{path}?sort=name&page=2").text
    assert "W" * 190 in many.get(f"{path}?sort=name&page=999").text  # the last one
    found = many.get(f"{path}?q=SELLER%200051").text
    assert found.count('scope="row" role="rowheader"') == 1
    assert "No name contains" in many.get(f"{path}?q=nobody").text
    downwards = many.get(f"{path}?sort=-name").text
    assert downwards.index("W" * 190) < downwards.index("seller 0227")
    lines = list(csv.reader(many.get(f"{path}?format=csv").text.splitlines()))
    assert len(lines) == 1 + 230
    assert sum("'=1+1" in line for line in lines) == 1
    for odd in ("sort=odd", "page=0", "page=x", f"q={201 * 'x'}"):
        assert many.get(f"{path}?{odd}").status_code == 422


def test_a_decision_among_many_is_on_pages_too(many: TestClient) -> None:
    text = many.get("/decisions").text
    assert len(text) < 200_000
    link = re.search(r'href="(/decisions/[^"]+)">230 actions', text)
    assert link is not None
    found = many.get(f"{link[1]}?sort=-share").text
    assert "Page 1 of 5" in found
    assert "Why this share" in found


def test_many_are_counted_in_thousands(tmp_path: Path) -> None:
    with looking(str(tmp_path / "agent.sqlite"), actions=[f"a{number}" for number in range(1_000)]) as client:
        made = client.post("/v1/decisions", json={}).json()
        client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 1.0})
        for path in ("/", "/exposure", "/report"):
            assert "of 1\u202f000 actions, " in client.get(path).text


def test_a_report_says_what_it_rests_on(market: str) -> None:
    with looking(market) as client:
        service = client.app_service.default  # type: ignore[attr-defined]
        text = client.get("/report").text
        assert service.journal.head().hex() in text
        assert "x1, x2, x3" in text
        number = re.search(r"<dt>Number</dt><dd><code>([0-9a-f]{12})", text)
        assert number is not None
        assert text.count(number[1]) == 2  # at the top, and where it is signed
        assert client.get("/report").text.count(number[1]) == 2
        assert number[1] not in client.get("/report?period=month").text
        chosen = client.get("/report?since=2020-02-03&until=2020-03-04").text
        assert "from 2020-02-03 until before 2020-03-04" in chosen
        assert "There is nothing to sign" in chosen
        assert "Signature" not in chosen
        assert "Signature" in text
        for odd in ("since=2020-02-30", "since=yesterday", "since=2020-02-02&until=2020-02-02"):
            assert client.get(f"/report?{odd}").status_code == 422


def test_charts_say_that_the_last_stretch_is_not_over(market: str) -> None:
    with looking(market) as client:
        for path, name in (("/", "data-series"), ("/exposure", "data-shares")):
            text = client.get(path).text
            assert "dashed, is not over" in text
            assert re.search(rf"{name}='[^']*\"open\": true", text), path
        past = client.get("/exposure?until=2100-01-01").text
        assert '"open": false' in past
        shown = client.get("/exposure?chart=Cy%20Ltd").text
        assert "Cy Ltd over time" in shown


def test_the_first_day_has_estimates(tmp_path) -> None:
    """Before any reward they are the prior's: the same for all, and wide."""
    place = str(tmp_path / "agent.sqlite")
    with ffx.Agent.open(place, actions=["ann", "ben"], name="new", seed=0) as agent:
        agent.decide()
    with looking(place) as client:
        for row in client.get("/v1/exposure").json()["actions"]:
            assert row["estimate"]["value"] == pytest.approx(0.5, abs=0.1)
            assert row["estimate"]["low"] < 0.05
            assert row["estimate"]["high"] > 0.95
        assert "estimated under the model" in client.get("/exposure").text


def test_pages_of_the_demonstration_show_no_rounding_and_the_right_batch(tmp_path: Path) -> None:
    """Couriers of an order have its features and the constant in common, so these explain nothing."""
    city = Couriers(seed=0)
    with looking(str(tmp_path / "agent.sqlite"), features=FEATURES, shared=SHARED) as client:
        for _ in range(20):
            order = city.order()
            made = client.post("/v1/decisions", json=order.request).json()
            answer = {"reward": order.reward(made["action"])}
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json=answer)
        columns = 56 + len(client.app._app.state.service.default.agent.names)
        assert f"it takes {10 * columns}." in client.get("/").text  # ten for each feature and each name
        page = client.get(f"/decisions/{made['decision_id']}").text
    why = page[page.index("Why this share") : page.index("Chosen from")]
    assert not re.search(r"e−\d", why)
    assert "intercept" not in why
    rows = re.findall(r'<th scope="row" role="rowheader">([^<]*)</th>', why)
    assert sorted({*rows} - {"own record"}) == ["distance", "price", "rating", "vehicle"]
    assert "All actions have the same weather and fragile" in why
    assert "<h1>Decision</h1>" in page  # the number of its row would count rewards and other agents too


def test_a_service_that_sends_nothing_says_so(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.sqlite")
    with looking(place, dimension=3) as client:
        client.post("/v1/decisions", json={"contexts": [[0.1, 0.2, 0.3], [0.3, 0.1, 0.1]]})
        for path in ("/privacy", "/report"):
            text = client.get(path).text
            assert "Nothing leaves this service" in text
            assert "NOT PRIVATE" not in text
    with ffx.Agent.open(place) as agent:
        agent.release()
    with looking(place) as client:
        for path in ("/privacy", "/report"):
            text = client.get(path).text
            assert "Nothing leaves this service" not in text
            assert "NOT PRIVATE: releases are exact sums" in text


def test_values_outside_of_ranges_and_levels_need_attention(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.sqlite")
    kinds = {"price": [0, 10], "city": ["Rome", "Oslo"]}
    sound, odd = {"price": 3, "city": "Rome"}, {"price": 30, "city": "Bern"}
    with looking(place, features=kinds) as client:
        client.post("/v1/decisions", json={"actions": [{"id": "ann", "features": sound}]})
        assert "outside of their ranges" not in client.get("/").text
        rows = [{"id": "ann", "features": sound}, {"id": "ben", "features": odd}]
        client.post("/v1/decisions", json={"actions": rows})
        text = client.get("/").text
        assert "1 since this start were clipped to an end of their range: price 1." in text
        assert "1 since this start were taken as “other”: city 1." in text
        service = client.app._app.state.service
        key = ApiKeys(service.log).add("x", "reader")
        service.auth.any_key = True
        seen = client.get("/", headers={"authorization": f"Bearer {key}"}).text
        assert "1 since this start were clipped to an end of their range." in seen
        service.auth.any_key = False
        many = [{"actions": [{"id": "ann", "features": sound}]}] * 99
        client.post("/v1/decisions/batch", json={"decisions": many})
        assert "outside of their ranges" not in client.get("/").text  # less than one in a hundred decisions


def test_a_long_log_is_not_waited_for(market: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages say what is still being computed, and nobody signs a report of a part of the decisions."""
    going_on = threading.Event()

    def slowly(real: Callable[..., object], stops: Callable[..., bool]) -> Callable[..., object]:
        def called(*asked: object) -> object:
            assert not stops(*asked) or going_on.wait(30)
            return real(*asked)

        return called

    monkeypatch.setattr(exposure_cache, "PATIENCE", 0.05)
    monkeypatch.setattr(exposure_cache, "FEW", (50, 1 << 19))
    cache = exposure_cache.ExposureCache
    monkeypatch.setattr(cache, "_make", slowly(cache._make, lambda *asked: not asked[-1]))
    rewards = exposure_cache._Rewards
    monkeypatch.setattr(rewards, "update", slowly(rewards.update, lambda *_: True))
    monkeypatch.setattr(cache, "_read_arrivals", slowly(cache._read_arrivals, lambda *_: True))
    with looking(market) as client:
        pages = ("/", "/exposure", "/report", "/rewards")

        def texts() -> dict[str, str]:
            return {path: re.sub(r"<[^>]*>", "", client.get(path).text) for path in pages}

        while "So far this is of the latest 50 decisions" not in texts()["/"]:
            pass
        early = texts()
        for path in ("/exposure", "/report"):
            assert (
                "So far this is of the latest 50 decisions; the table of all is being computed."
                in early[path]
            )
        assert "There is nothing to sign yet" in early["/report"]
        assert "What needs attention is being computed." in early["/"]
        assert "–being computed" in early["/"]
        assert "Whether merit changes is being computed." in early["/"]
        assert "Decisions are still being counted." in early["/rewards"]
        assert "No decision has been counted" not in early["/rewards"]
        going_on.set()
        while any("being" in text for text in texts().values()):
            pass
        assert "I have read this report" in texts()["/report"]
        assert "Nothing needs attention." in texts()["/"]
