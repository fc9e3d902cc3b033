"""Who may do what."""

from __future__ import annotations

import base64
import json
import re
import ssl
from pathlib import Path

import httpx
import pytest

from fedfairx.cli.main import main
from fedfairx.errors import InvalidInput
from fedfairx.service import auth
from fedfairx.service.factory import open_service
from fedfairx.service.roles import ROLES
from fedfairx.service.settings import place_of
from fedfairx.storage import postgres
from fedfairx.storage.api_keys import open_keys
from service_helpers import CONTEXTS, Running, asking, self_signed, settings_for, until

BODY = {"contexts": CONTEXTS}
#: Who may what needs a role.
MAY = {
    "reader": {"reader", "writer", "auditor", "admin"},
    "writer": {"writer", "admin"},
    "auditor": {"auditor", "admin"},
}


def new_key(place: str, role: str) -> str:
    with open_keys(place_of(settings_for(place))) as keys:
        return keys.add("somebody", role)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_without_a_key_this_machine_alone(place: str) -> None:
    with asking(place) as client:
        assert client.post("/v1/decisions", json=BODY).status_code == 201
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "[::2]:80"):
            answer = client.post("/v1/decisions", json=BODY, headers={"host": host})
            assert answer.status_code == 403
            assert answer.json()["type"].endswith(":host")
        for host in ("localhost:8000", "127.0.0.1", "[::1]:8000"):
            assert client.get("/v1/model", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"host": "0.0.0.0"}, "host must be loopback while there is no key, got host='0.0.0.0'"),
        ({"trusted_proxies": "127.0.0.1"}, "trusted_proxies must be left out while there is no key"),
        ({"root_path": "/fair"}, "root_path must be left out while there is no key, got root_path='/fair'"),
        ({"tls_certificate": "c.pem", "tls_key": "k.pem"}, "tls_certificate must be left out while there is"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_who_can_be_reached_needs_a_key(place: str, given: dict[str, str], rule: str) -> None:
    remedy = "; `fedfairx keys create --role admin --data"
    remedy = f"{remedy}base URL` makes one" if place.startswith("postgresql:") else remedy
    with pytest.raises(InvalidInput, match=f"^{re.escape(rule)}.*{re.escape(remedy)}"):
        open_service(settings_for(place, **given))
    key = new_key(place, "admin")
    with asking(place, **given) as client:
        assert client.get("/v1/export").status_code == 401
        assert client.get("/v1/export", headers=bearer(key)).status_code == 200


def test_without_a_key_nothing_from_a_proxy(place: str) -> None:
    """nginx sends the service's own address as the Host, unless it is told otherwise."""
    sent = {"forwarded": "for=192.0.2.1", "x-real-ip": "192.0.2.1", "via": "1.1 proxy"}
    sent |= {f"x-forwarded-{name}": "x" for name in ("for", "proto", "host", "port", "anything")}
    sent |= dict.fromkeys(
        ("x-client-ip", "cf-connecting-ip", "x-envoy-external-address", "x-amzn-trace-id"), "x"
    )
    with asking(place) as client:
        for name, value in sent.items():
            passed_on = {"headers": {name: value}}
            answer = client.get("/v1/export", **passed_on)
            assert (answer.status_code, name in answer.json()["detail"]) == (403, True)
            assert client.put("/v1/agents/other", json={"dimension": 2}, **passed_on).status_code == 403
            assert client.get("/", **passed_on).status_code == 403
        assert client.get("/healthz", headers=sent).status_code == 200
        assert client.get("/v1/export").status_code == 200
    key = new_key(place, "admin")
    with asking(place) as client:
        assert client.get("/v1/export", headers=sent | bearer(key)).status_code == 200


@pytest.mark.process
def test_the_log_says_that_everybody_is_an_admin(tmp_path: Path) -> None:
    place, said = str(tmp_path / "data" / "agent.db"), []
    for _ in range(2):
        running = Running(place, "--dimension", "3")
        httpx.get(f"{running.url}/v1/model")
        running.stop()
        said.append(running.said.count("everybody on this machine is an admin; `fedfairx keys create"))
        new_key(place, "admin")
    assert said == [1, 0]


def test_a_role_may_what_it_says(place: str) -> None:
    keys = {role: new_key(place, role) for role in ROLES}
    with asking(place, host="0.0.0.0") as client:
        allowed = {
            ("GET", "/v1/model"): "reader",
            ("GET", "/v1/decisions"): "reader",
            ("GET", "/metrics"): "reader",
            ("POST", "/v1/decisions"): "writer",
            ("GET", "/v1/export"): "auditor",
        }
        for (method, path), least in allowed.items():
            ask = {"json": BODY} if method == "POST" else {}
            assert client.request(method, path, **ask).status_code == 401
            for role in ROLES:
                answer = client.request(method, path, headers=bearer(keys[role]), **ask)
                may = role in MAY[least]
                assert (answer.status_code in (200, 201)) is may, (path, role)
                assert may or answer.status_code == 403
        for path in ("/healthz", "/readyz", "/v1/openapi.json"):
            assert client.get(path).status_code == 200


def test_keys_that_are_none(place: str) -> None:
    key = new_key(place, "admin")
    identity, _, secret = key.partition(".")
    with asking(place) as client:
        wrong = (
            "",
            "x",
            identity,
            f"{identity}.",
            f".{secret}",
            f"{identity}.{secret[:-1]}",
            key + "x",
            "é" * 9,
        )
        for bad in wrong:
            answer = client.get("/v1/model", headers={"authorization": f"Bearer {bad}".encode("latin-1")})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/model", headers={"authorization": key}).status_code == 401
        assert client.get("/v1/model", headers=bearer(key)).status_code == 200


def test_a_browser_may_look_with_basic_but_not_write(place: str) -> None:
    key = new_key(place, "admin")
    basic = {"authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}
    with asking(place) as client:
        assert client.get("/v1/model", headers=basic).status_code == 200
        assert client.post("/v1/decisions", json=BODY, headers=basic).status_code == 401
        for bad in ("Basic !!!", "Basic", "Basic " + base64.b64encode(b"nothing").decode()):
            assert client.get("/v1/model", headers={"authorization": bad}).status_code == 401


def test_keys_come_and_go_while_it_runs(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once there was a key, the door stays shut, also when the last one is revoked."""
    looks, real = [], auth.Authenticator.look

    async def look(self: auth.Authenticator) -> None:
        await real(self)
        looks.append(1)

    monkeypatch.setattr(auth.Authenticator, "look", look)
    monkeypatch.setattr(auth, "REMEMBERED", 0.02)
    monkeypatch.setattr(postgres, "_WAITS", ())  # the service, which holds the lock, won't end
    where = ["--database", place] if place.startswith("postgresql:") else ["--data", str(Path(place).parent)]
    with asking(place) as client:
        assert client.get("/v1/model").status_code == 200
        assert main(["keys", "create", "--role", "reader", *where]) == 0
        key = capsys.readouterr().out.strip()
        until(lambda: client.get("/v1/model").status_code == 401)
        assert client.get("/v1/model", headers=bearer(key)).status_code == 200
        assert main(["keys", "list", *where]) == 0
        shown = capsys.readouterr().out
        assert key.partition(".")[0] in shown
        assert key.partition(".")[2] not in shown
        assert main(["keys", "revoke", "--id", key.partition(".")[0], *where]) == 0
        until(lambda: client.get("/v1/model", headers=bearer(key)).status_code == 401)
        looks.clear()
        until(lambda: len(looks) > 3)
        assert client.get("/v1/model", headers=bearer(key)).status_code == 401
        assert client.get("/v1/model").status_code == 401
        assert client.post("/v1/decisions", json=BODY).status_code == 401
    with asking(place) as client:
        assert client.get("/v1/model").status_code == 401


def test_secrets_are_stored_hashed(tmp_path: Path) -> None:
    key = new_key(str(tmp_path / "agent.db"), "admin")
    secret = key.partition(".")[2].encode()
    assert all(secret not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.process
def test_tls(tmp_path: Path) -> None:
    place = str(tmp_path / "data" / "agent.db")
    (tmp_path / "data").mkdir()
    key = new_key(place, "writer")
    running = Running(place, "--dimension", "3", *self_signed(tmp_path))
    try:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        url = running.url.replace("127.0.0.1", "localhost")
        assert url.startswith("https://")
        answer = httpx.post(f"{url}/v1/decisions", json=BODY, headers=bearer(key), verify=trusted)
        assert answer.status_code == 201
    finally:
        running.stop()


def test_keys_asks_for_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "--data", str(tmp_path)]) == 2
    assert main(["keys", "revoke", "--data", str(tmp_path), "--id", "nobody"]) == 2
    assert "--role must be given" in capsys.readouterr().err


def test_a_new_key_comes_with_its_id(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Which is what revoking asks for."""
    where = ["--database", place] if place.startswith("postgresql:") else ["--data", str(Path(place).parent)]
    assert main(["keys", "create", "--role", "reader", "--json", *where]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made.keys() == {"id", "key", "role"}
    assert main(["keys", "revoke", "--id", made["id"], *where]) == 0
    main(["keys", "list", "--json", *where])
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["id"], bool(listed["revoked"])) == (made["id"], True)


@pytest.mark.parametrize(
    "what", [["create", "--role", "admin"], ["list"], ["revoke", "--id", "0123456789ab"]]
)
def test_a_misspelt_folder_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: list[str]
) -> None:
    misspelt = tmp_path / "my dta"
    assert main(["keys", *what, "--data", str(misspelt)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"data must be the folder of a service, got data='{misspelt}'" in said.err
    assert f"(mkdir -m 700 '{misspelt}')" in said.err
    assert not misspelt.exists()


def test_a_key_that_was_made_elsewhere(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the secret of a container, which is given at every start."""
    where = ["--database", place] if place.startswith("postgresql:") else ["--data", str(Path(place).parent)]
    file, key = tmp_path / "admin-key", f"{'0123456789ab'}.{'s' * 40}"
    file.write_text(f"{key}\n")
    create = ["keys", "create", "--role", "admin", "--key-file", str(file), *where]
    assert [main(create) for _ in range(3)] == [0, 0, 0]
    assert key not in capsys.readouterr().out
    with asking(place) as client:
        assert client.get("/v1/model").status_code == 401
        assert client.get("/v1/export", headers=bearer(key)).status_code == 200
    main(["keys", "list", "--json", *where])
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert main(["keys", "create", "--role", "reader", "--key-file", str(file), *where]) == 2
    main(["keys", "revoke", "--id", "0123456789ab", *where])
    assert main(create) == 2  # it must not come back by itself
    assert "must have a new id, got 0123456789ab" in capsys.readouterr().err
    for bad in (
        "",
        "short.key",
        f"0123456789AB.{'s' * 40}",
        f"0123456789ac.{'s' * 31}",
        f"0123456789ac.{' ' * 40}",
    ):
        file.write_text(bad)
        assert main(create) == 2
        said = capsys.readouterr().err
        assert "key must be 12 hexadecimal digits" in said
        assert "sss" not in said
    file.unlink()
    assert main(create) == 2
    assert "--key-file must be a text file" in capsys.readouterr().err
