"""Pages over HTTP: what they say, what they never say, and who may see them."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from fedfairx.service.pages import PAGES, jinja
from market import NAMES, fill, looking

PATHS = [path for path, _ in PAGES.values()]


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("market") / "agent.sqlite")
    fill(place, 400)
    return place


@pytest.fixture
def empty(tmp_path) -> str:
    return str(tmp_path / "agent.sqlite")


def test_every_page_is_there_and_loads_nothing_from_elsewhere(market: str) -> None:
    with looking(market) as client:
        for path in PATHS:
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
        assert client.get("/report").status_code == 200


def test_names_are_escaped_everywhere(market: str) -> None:
    with looking(market) as client:
        for path in ("/", "/exposure", "/decisions", "/report"):
            text = client.get(path).text
            assert "<b>Eve" not in text
            assert path == "/" or "&lt;b&gt;Eve" in text


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


def test_who_is_shown_too_little_needs_attention(tmp_path) -> None:
    place = str(tmp_path / "agent.sqlite")
    fill(place, 6_000, favourite=0.5)
    with looking(place) as client:
        text = client.get("/").text
        assert "1 action above" in text
        assert "Shown surely more than entitled to: Ada Works." in text
        assert re.search(r"\d actions? below", text)
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

        monkeypatch.setattr("fedfairx.service.pages.page_data.latest", fail)
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
