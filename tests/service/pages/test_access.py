"""Who may look at pages: sessions, what they open, and what ends them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedfairx.service import auth
from fedfairx.service.pages import PAGES
from fedfairx.service.routes import OPERATIONS
from fedfairx.storage.api_keys import ApiKeys
from market import looking

PATHS = [each.path for each in PAGES.values()]


@pytest.fixture
def client(tmp_path) -> Iterator[Any]:
    with looking(str(tmp_path / "agent.sqlite"), dimension=3) as found:
        yield found


def new_key(client: Any, role: str) -> str:
    key = ApiKeys(client.app_service.log).add("owner", role)
    client.app_service.auth.any_key = True
    return key


def sign_in(client: Any, key: str) -> str:
    """The cookie's value."""
    answer = client.post("/sign-in", data={"key": key}, follow_redirects=False)
    assert answer.status_code == 303
    return str(answer.cookies["fedfairx-80"])


def opens(client: Any, token: str, path: str = "/exposure") -> bool:
    answer = TestClient(client.app, base_url="http://127.0.0.1").get(
        path, headers={"cookie": f"fedfairx-80={token}"}
    )
    return bool(answer.status_code == 200)


def test_the_page_to_sign_in_names_no_agent(client: Any) -> None:
    """Anybody can see it."""
    new_key(client, "reader")
    (name,) = client.app_service.agents.rows
    assert name in client.get("/", headers={"authorization": f"Bearer {new_key(client, 'reader')}"}).text
    for answer in (client.get("/sign-in"), client.get("/"), client.post("/sign-in", data={"key": "a.b"})):
        assert 'action="/sign-in"' in answer.text
        assert name not in answer.text


def test_one_signs_in_and_out(client: Any) -> None:
    key = new_key(client, "auditor")
    assert client.get("/").status_code == 401
    assert 'action="/sign-in"' in client.get("/").text
    wrong = client.post("/sign-in", data={"key": "nobody.nothing"})
    assert wrong.status_code == 401
    assert "does not open these pages" in wrong.text
    assert "nobody.nothing" not in wrong.text
    token = sign_in(client, key)
    assert all(client.get(path).status_code == 200 for path in PATHS)
    client.post("/sign-out")
    assert client.get("/exposure").status_code == 401
    assert not opens(client, token)  # whoever has kept a copy of the cookie is out as well


def test_a_session_opens_what_its_key_may_see(client: Any) -> None:
    for role, least in (("reader", {"reader"}), ("auditor", {"reader", "auditor"})):
        sign_in(client, new_key(client, role))
        for each in PAGES.values():
            assert client.get(each.path).status_code == (200 if each.role in least else 403)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_cookie_is_for_this_site_and_no_script(client: Any, scheme: str) -> None:
    key = new_key(client, "reader")
    there = TestClient(client.app, base_url=f"{scheme}://127.0.0.1")
    answer = there.post("/sign-in", data={"key": key}, follow_redirects=False)
    parts = [part.strip().lower() for part in answer.headers["set-cookie"].split(";")]
    assert {"httponly", "samesite=strict", "path=/", f"max-age={auth.SECONDS}"} <= set(parts)
    assert ("secure" in parts) is (scheme == "https")
    secret = key.partition(".")[2].lower()
    assert key.lower() not in parts[0]
    assert secret not in parts[0]


def test_a_session_opens_nothing_but_pages(client: Any) -> None:
    token = sign_in(client, new_key(client, "admin"))
    basic = "Basic " + base64.b64encode(f"me:{token}".encode()).decode()
    guarded = [operation for operation in OPERATIONS if operation.role is not None]
    for operation in guarded:
        path = operation.path.replace("{decision_id}", "a-1")
        for header in (None, f"Bearer {token}", basic):  # the cookie alone is sent with all of them
            headers = {} if header is None else {"authorization": header}
            answer = client.request(operation.method, path, json={}, headers=headers)
            assert answer.status_code == 401, (operation.name, header)
    assert opens(client, token)


def test_a_key_is_no_session(client: Any) -> None:
    key = new_key(client, "admin")
    assert not opens(client, key)
    assert not opens(client, "")
    assert client.get("/", headers={"authorization": f"Bearer {key}"}).status_code == 200


def test_a_revoked_key_ends_its_sessions(client: Any) -> None:
    first, second = new_key(client, "reader"), new_key(client, "reader")
    gone, other = sign_in(client, first), sign_in(client, second)
    again = sign_in(client, first)
    ApiKeys(client.app_service.log).revoke(first.partition(".")[0])
    client.portal.call(client.app_service.auth.look)
    assert not opens(client, gone)
    assert not opens(client, again)
    assert opens(client, other)


def test_a_session_is_over_after_its_time(client: Any) -> None:
    token = sign_in(client, new_key(client, "reader"))
    held = client.app_service.auth.sessions
    began = held.clock()
    held.clock = lambda: began + auth.SECONDS - 60
    assert opens(client, token)
    held.clock = lambda: began + auth.SECONDS + 60
    assert not opens(client, token)
    client.portal.call(held.keep, [])
    assert not held._sessions  # and nothing of it is kept


def test_services_on_one_host_don_t_sign_each_other_out(tmp_path) -> None:
    jar: dict[str, str] = {}  # a browser's, which knows no ports
    with (
        looking(str(tmp_path / "one" / "agent.sqlite"), dimension=3) as one,
        looking(str(tmp_path / "two" / "agent.sqlite"), dimension=3) as two,
    ):
        browsers = []
        for port, client in ((8001, one), (8002, two)):
            key = new_key(client, "reader")
            browser = TestClient(client.app, base_url=f"http://127.0.0.1:{port}")
            answer = browser.post("/sign-in", data={"key": key}, follow_redirects=False)
            jar |= dict(answer.cookies)
            browsers.append(browser)
        assert set(jar) == {"fedfairx-8001", "fedfairx-8002"}
        header = {"cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}
        for browser in browsers:
            browser.cookies.clear()
            assert browser.get("/", headers=header).status_code == 200
        for name in jar:  # what was opened here opens nothing there
            other = browsers[name == "fedfairx-8001"]
            wrong = {"cookie": f"fedfairx-{8002 if name == 'fedfairx-8001' else 8001}={jar[name]}"}
            assert other.get("/", headers=wrong).status_code == 401


def test_a_federation_s_key_opens_no_page(client: Any) -> None:
    answer = client.post("/sign-in", data={"key": new_key(client, "federation")}, follow_redirects=False)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_form_of_another_site_signs_nobody_in_or_out(client: Any) -> None:
    across = {"sec-fetch-site": "cross-site"}
    assert client.post("/sign-in", data={"key": "a.b"}, headers=across).status_code == 403
    welcome = client.post("/sign-in", data={"key": "a.b"}, follow_redirects=False)
    assert "set-cookie" not in welcome.headers  # no key is needed here, and none is kept
    token = sign_in(client, new_key(client, "reader"))
    assert client.post("/sign-in", content=b"key=" + b"x" * 100_000).status_code == 401
    assert client.post("/sign-out", headers=across).status_code == 403
    assert opens(client, token)
