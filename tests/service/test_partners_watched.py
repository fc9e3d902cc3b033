"""What an operator sees of peers that are silent or refused, of certificates, and of who comes back."""

from __future__ import annotations

import ast
import base64
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_auth import bearer, new_key
from test_federating import bring, fetch

import fedfairx
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import amend_federation, create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.setup.renew import renew_certificates
from fedfairx.federation.transport import SqliteTransport
from fedfairx.service.federation import REFUSED
from member_service import founded, member_of, rounds, sync
from service_helpers import metrics_of, until

DAY = 86_400.0


class Clock:
    def __init__(self, now: float = 1.8e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def alive(folder: Path, moment: float) -> str:
    """A member's sign of life, as an engine brings it."""
    return base64.b64encode(MemberFolder.read(folder).seal().close_sign_of_life(moment)).decode()


def value(client: Any, name: str) -> float:
    lines = [line for line in metrics_of(client).splitlines() if line.startswith(f"fedfairx_{name} ")]
    assert len(lines) == 1, lines
    return float(lines[0].split()[-1])


@pytest.mark.long
def test_a_silent_peer_is_named_everywhere_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base, clock = founded(tmp_path / "federation", transport="engine"), Clock()
    began = clock.now
    with caplog.at_level(logging.INFO, "fedfairx"), member_of(base / "org1", clock=clock) as one:

        def visit(*running: str) -> None:
            bring(one, **{f"{name}.alive": alive(base / name, clock.now) for name in running})

        visit("org1", "org2")
        peer = sync(one)["peers"]["org2"]
        assert (peer["alive"], peer["silent"], peer["release"]) == (began, False, 0)
        assert value(one, 'peer_silent_seconds{peer="org2"}') == 0.0
        assert "Nothing needs attention" in one.get("/").text
        for minutes in (1, 5, 6, 30, 199):
            clock.now = began + 60.0 * minutes
            visit("org1")
        peer = sync(one)["peers"]["org2"]
        assert (peer["alive"], peer["silent"]) == (began, True)
        assert value(one, 'peer_silent_seconds{peer="org2"}') == 199 * 60.0
        overview = one.get("/").text
        assert "org2 is silent" in overview
        assert "No sign of life for 3 hours." in overview
        page = one.get("/federation").text
        assert 'data-label="Last sign of life"><time' in page
        assert '<strong class="silent">silent</strong>' in page
        visit("org1", "org2")
        assert sync(one)["peers"]["org2"]["silent"] is False
        assert "Nothing needs attention" in one.get("/").text
    said = [record.getMessage() for record in caplog.records if record.name == "fedfairx.service"]
    assert said == [
        "agent org1: org2 is silent: no sign of life for 6 minutes",
        "agent org1: org2 is heard again",
    ]


def test_an_engine_that_does_not_come_is_trouble(tmp_path: Path) -> None:
    base, clock = founded(tmp_path / "federation", transport="engine"), Clock()
    with member_of(base / "org1", clock=clock) as one:
        assert sync(one)["trouble"] is None
        for gap, late in ((60.0, 301.0), (7200.0, 3 * 7200.0 + 1.0)):  # it is late by its own measure
            for _ in range(2):
                bring(one)
                clock.now += gap
            bring(one)
            clock.now += late - 2.0
            assert sync(one)["trouble"] is None
            clock.now += 2.0
            assert "the engine that carries messages has not come for" in sync(one)["trouble"]
        assert "fedfairx_federation_reached 0" in metrics_of(one)
        assert "The engine that carries messages has not come for" in one.get("/").text


@pytest.mark.long
def test_refusals_are_told_in_words_and_logged_once_for_each_peer_and_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = founded(tmp_path / "federation", names=("org1", "org2", "org3"), transport="engine")
    other = founded(tmp_path / "other", transport="engine")
    with (
        caplog.at_level(logging.WARNING, "fedfairx"),
        member_of(base / "org1") as one,
        member_of(other / "org2") as stranger,
    ):
        rounds(stranger, 1)
        envelope = fetch(stranger)["envelope"]
        for _ in range(3):
            rounds(stranger, 1)
            bring(one, org2=fetch(stranger)["envelope"], org3="AAAA", stranger=envelope)
            bring(one, org2="AAAA", org3=envelope)
        words = {
            "org2": (REFUSED["federation"], REFUSED["malformed"]),
            "org3": (REFUSED["malformed"], REFUSED["federation"]),
            "unknown senders": (REFUSED["unknown"],),
        }
        overview, page = one.get("/").text, one.get("/federation").text
        for name, reasons in words.items():
            assert overview.count(f"<strong>Messages of {name} are refused") == 1  # its latest
            for reason in reasons:
                assert f"3: {reason}" in page
            assert f"3 since this start: {reasons[-1]}." in overview
        assert value(one, 'refused_total{peer="org2",reason="federation"}') == 3
    said = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert sorted(said) == [
        f"agent org1: messages of {who} are refused ({reason}): {REFUSED[reason]}"
        for who, reason in (
            ("org2", "federation"),
            ("org2", "malformed"),
            ("org3", "federation"),
            ("org3", "malformed"),
            ("senders that are not in the roster", "unknown"),
        )
    ]


def test_every_reason_has_its_words() -> None:
    source, found = Path(fedfairx.__file__).parent, {"malformed"}  # the default
    for path in (*source.glob("federation/**/*.py"), source / "agent" / "validation.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", "")
                given = [word.value for word in node.keywords if word.arg == "reason"]
                given += node.args[2:3] if name == "_refuse" else []
                found |= {each.value for each in given if isinstance(each, ast.Constant)}  # type: ignore[misc]
    assert found == set(REFUSED)


def test_a_certificate_that_expires_is_warned_of_daily_until_it_is_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = tmp_path / "federation"
    terms = Terms(dimension=3, agents=2, horizon=50, epsilon=2.0)
    create_federation(base, terms, dict.fromkeys(("org1", "org2")), transport="flower", days=20)
    file = base / "org1" / "authority.crt"
    (end,) = MemberFolder.read(base / "org1").expiries().values()
    clock = Clock(end - 31 * DAY)
    with caplog.at_level(logging.WARNING, "fedfairx"), member_of(base / "org1", clock=clock) as one:
        bring(one)
        assert sync(one)["certificates"] == {"authority.crt": end}
        assert value(one, 'certificate_expires_seconds{file="authority.crt"}') == 31 * DAY
        assert "Nothing needs attention" in one.get("/").text
        assert "is valid until" in one.get("/federation").text
        for _ in range(40):  # visits every hour
            clock.now += 3600.0
            bring(one)
        overview = one.get("/").text
        assert "A certificate expires" in overview
        assert "Certificate authority.crt expires in 29 days: the convener renews it" in overview
        assert caplog.text.count("certificate authority.crt expires in") == 1
        clock.now += DAY
        bring(one)
        assert caplog.text.count("certificate authority.crt expires in") == 2
        clock.now = end + DAY
        bring(one)
        assert "A certificate has expired" in one.get("/").text
        assert "certificate authority.crt expired 1 day ago" in caplog.text
        before = file.read_bytes()
        renew_certificates(base, only=["hub"], days=400)  # would outlive the authority, which is renewed too
        assert file.read_bytes() != before
        assert "A certificate" not in one.get("/").text
    caplog.clear()
    clock.now = MemberFolder.read(base / "org1").expiries()["authority.crt"] - DAY
    with caplog.at_level(logging.WARNING, "fedfairx"), member_of(base / "org1", clock=clock):
        assert caplog.text.count("certificate authority.crt expires in 1 day") == 1  # at the start


@pytest.mark.long
def test_what_our_rewards_say_of_a_peer_is_for_auditors_and_admins(tmp_path: Path) -> None:
    base = founded(
        tmp_path / "federation", transport="engine", algorithm="fed-fairx-bayes", epsilon=None, horizon=200
    )
    with member_of(base / "org1") as one, member_of(base / "org2") as two:
        rounds(one, 40, reward=1.0)
        rounds(two, 40, reward=-1.0)
        bring(one, org2=fetch(two)["envelope"])
        assert "org2 differs from us" in one.get("/").text
    place = str(base / "org1" / "data" / "agent.sqlite")
    keys = {role: new_key(place, role) for role in ("reader", "auditor", "admin")}
    with member_of(base / "org1", host="0.0.0.0") as one:
        for role, key in keys.items():
            told = role != "reader"
            assert ("org2 differs" in one.get("/", headers=bearer(key)).text) == told
            peer = one.get("/v1/sync", headers=bearer(key)).json()["peers"]["org2"]
            assert ((peer["weight"] is not None), (peer["reason"] is not None)) == (told, told)
            assert ("Believed" in one.get("/federation", headers=bearer(key)).text) == told
            assert ("fedfairx_peer_weight" in one.get("/metrics", headers=bearer(key)).text) == told


# --- leaving and coming back -------------------------------------------------------------------------------


def holds(client: Any, name: str, records: int) -> bool:
    return bool(sync(client)["peers"].get(name, {}).get("records") == records)


@pytest.mark.long
def test_a_member_that_left_comes_back_with_its_data(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation")
    with member_of(base / "org1") as one:
        with member_of(base / "org2") as two:
            rounds(two, 5)
            until(lambda: holds(one, "org2", 5) and not sync(two)["waiting"])
        amend_federation(base, remove=["org2"])
        until(lambda: sync(one)["peers"] == {})
        amend_federation(base, add={"org2": None})  # its folder and its key are still here
        until(lambda: "org2" in sync(one)["peers"])
        with member_of(base / "org2") as two:
            until(lambda: holds(one, "org2", 5))  # the same release
            rounds(two, 3)
            until(lambda: holds(one, "org2", 8))
            until(lambda: sync(one)["peers"]["org2"]["alive"] is not None)
            assert sync(two)["trouble"] is None
        assert sync(one)["refusals"] == {}
        assert "refused" not in one.get("/").text


@pytest.mark.long
def test_a_member_that_lost_its_disk_comes_back_under_a_new_name(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation")
    with member_of(base / "org1") as one:
        with member_of(base / "org2") as two:
            rounds(two, 5)
            rounds(two, 5)
            until(lambda: holds(one, "org2", 10) and not sync(two)["waiting"])
        shutil.rmtree(base / "org2" / "data")
        with member_of(base / "org2") as two:  # under the old name it decides, and sends nothing
            until(lambda: "start again under a new name and a new key" in str(sync(two)["trouble"]))
            rounds(two, 3)
            assert sync(two)["waiting"] is False
        amend_federation(base, add={"org2b": None})
        with member_of(base / "org2b") as again:
            until(lambda: "org2b" in sync(one)["peers"])
            rounds(again, 4)
            until(lambda: holds(one, "org2b", 4))
            until(lambda: holds(again, "org2", 10))  # what it had sent before still helps everybody
            assert sync(again)["trouble"] is None
        assert holds(one, "org2", 10)
        assert sync(one)["refusals"] == {}
    held = SqliteTransport(base / "transport.sqlite").latest()
    assert MemberFolder.read(base / "org1").seal().open("org2", held["org2"]).count == 10
