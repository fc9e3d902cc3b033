"""Services with secure aggregation: rounds at public times, totals, and what pages and metrics say."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedfairx.errors import InvalidInput
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.setup.create import amend_federation
from fedfairx.service import federation
from member_service import founded, member_of, rounds, sync
from service_helpers import metrics_of, until

NAMES = ("org1", "org2", "org3")
BEGIN = 2_000_000_000


@dataclass
class Clock:
    now: float = BEGIN

    def __call__(self) -> float:
        return self.now


def found(base: Path, **more: Any) -> Path:
    times = Rounds(begin=BEGIN, first=100, ratio=1, count=3)
    return founded(base, names=NAMES, aggregation="secure", rounds=times, **({"schedule": None} | more))


@contextmanager
def services(base: Path, clock: Clock, names: tuple[str, ...] = NAMES) -> Iterator[list[Any]]:
    with ExitStack() as stack:
        yield [stack.enter_context(member_of(base / name, clock=clock)) for name in names]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "EVERY", 0.02)


def opened(client: Any, number: int) -> bool:
    return bool(sync(client)["aggregation"]["opened"] == number)


@pytest.mark.long
def test_three_services_learn_the_sum_of_their_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base, clock = found(tmp_path / "federation"), Clock()
    with caplog.at_level(logging.INFO, logger="fedfairx.service"):
        with services(base, clock) as members:
            one = members[0]
            before = one.get("/v1/model").json()["estimate"]
            rounds(members[1], 20, reward=1.0)
            now = sync(one)["aggregation"]
            assert (now["round"], now["opened"], now["rounds"]) == (0, 0, 3)
            assert now["next_time"] == BEGIN + 100
            assert now["openers"] == ["org1", "org2"]
            assert now["claims"][0]["epsilon"] == pytest.approx(2.0)
            clock.now = BEGIN + 100
            for client in members:
                until(lambda client=client: opened(client, 1))  # type: ignore[misc]
            assert one.get("/v1/model").json()["estimate"] != before
            told = sync(one)
            assert (told["released"], told["next_round"], told["trouble"], told["waiting"]) == (
                1,
                None,
                None,
                False,
            )
            assert told["aggregation"]["records"] == 20
            assert told["aggregation"]["waits_for"] == {}
            assert told["aggregation"]["reason"] is not None
            assert {name: peer["release"] for name, peer in told["peers"].items()} == {"org2": 1, "org3": 1}
            page = one.get("/federation").text
            assert "The latest total is that of round 1; nobody is waited for" in page
            assert "against" in page.lower()
            assert "the hub and up to 1 of 3 members together" in page
        # org3 is away: no new total, and decisions go on
        with services(base, clock, NAMES[:2]) as members:
            one = members[0]
            clock.now = BEGIN + 200
            until(lambda: sync(one)["aggregation"]["waits_for"] == {"org3": "row"})
            rounds(one, 5)
            clock.now += federation.PATIENCE + 1
            until(lambda: "agent org1: the total of round 2 waits for org3 (row)" in caplog.messages)
            assert 'fedfairx_federation_waits_for{peer="org3",what="row"} 1' in metrics_of(one)
            assert "fedfairx_federation_round 2" in metrics_of(one)
            assert "fedfairx_federation_round_opened 1" in metrics_of(one)
            assert "fedfairx_federation_next_round_seconds" in metrics_of(one)
            assert "The total of round 2 waits for org3 (row)" in one.get("/federation").text
            assert "A total is waited for" in one.get("/").text
            with services(base, clock, NAMES[2:]) as back:
                until(lambda: opened(one, 2) and opened(back[0], 2))
                assert sync(one)["aggregation"]["records"] == 20  # its five came after row 2
                clock.now = BEGIN + 300
                until(lambda: opened(one, 3) and opened(back[0], 3))
                assert sync(one)["aggregation"]["records"] == 25
                assert "the last of 3 rounds is over" in sync(one)["over"]
                assert sync(one)["aggregation"]["next_time"] is None
    assert "agent org1: round 3 of 3 is opened" in caplog.messages


@pytest.mark.long
def test_a_member_joins_running_services_and_another_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base, clock = found(tmp_path / "federation"), Clock()
    with caplog.at_level(logging.INFO, logger="fedfairx.service"), ExitStack() as stack:
        one, two = (stack.enter_context(member_of(base / name, clock=clock)) for name in NAMES[:2])
        with member_of(base / "org3", clock=clock) as three:
            rounds(three, 7)
            clock.now = BEGIN + 100
            until(lambda: opened(one, 1) and opened(two, 1) and opened(three, 1))
        assert sync(one)["aggregation"]["records"] == 7
        rounds(one, 4)
        clock.now = BEGIN + 150
        amend_federation(base, add={"org4": None}, remove=["org3"], begin=BEGIN + 150)
        until(lambda: sync(one)["aggregation"]["waits_for"] == {"org4": "acceptance"})
        assert "Epoch 2 has not begun here: it waits for org4 (acceptance)" in one.get("/federation").text
        assert sync(one)["aggregation"]["epoch"] == 1
        four = stack.enter_context(member_of(base / "org4", clock=clock))
        clients = (one, two, four)
        for client in clients:
            until(lambda client=client: sync(client)["aggregation"]["epoch"] == 2)  # type: ignore[misc]
        assert "fedfairx_federation_epoch 2" in metrics_of(four)
        rounds(four, 2)
        clock.now = BEGIN + 250
        for client in clients:
            until(lambda client=client: opened(client, 1))  # type: ignore[misc]
        assert sync(one)["aggregation"]["records"] == 4 + 2
        assert sync(one)["aggregation"]["next_time"] == BEGIN + 350
        assert {name: peer["release"] for name, peer in sync(one)["peers"].items()} == {"org2": 1, "org4": 1}
    with services(base, clock, ("org1", "org2", "org4")) as again:
        clock.now = BEGIN + 450
        for client in again:
            until(lambda client=client: opened(client, 3))  # type: ignore[misc]
            assert "until the convener opens the next epoch" in sync(client)["over"]
    assert "agent org1: epoch 2 has begun" in caplog.messages
    assert not any("refused" in text for text in caplog.messages)


def test_an_unconfirmed_member_says_what_its_operator_has_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base, clock = found(tmp_path / "federation"), Clock()
    kept = (base / "org3" / "confirmed.json").read_text()
    (base / "org3" / "confirmed.json").unlink()
    with services(base, clock) as members:
        three = members[2]
        until(lambda: "openers must be confirmed" in sync(three)["aggregation"]["unconfirmed"])
        until(lambda: sync(members[0])["aggregation"]["waits_for"] == {"org3": "acceptance"})
        assert "The roster is not accepted here" in three.get("/").text
        assert any("the roster is not accepted here: openers" in text for text in caplog.messages)
        (base / "org3" / "confirmed.json").write_text(kept)  # without a restart
        until(lambda: sync(members[0])["aggregation"]["waits_for"] == {})


def test_a_member_whose_clock_is_far_ahead_says_so_and_sends_no_row(tmp_path: Path) -> None:
    base, clock, ahead = found(tmp_path / "federation"), Clock(), Clock(BEGIN + 1e6)
    with services(base, clock, NAMES[:2]) as members, member_of(base / "org3", clock=ahead) as three:
        until(lambda: "the clock here is ahead" in (sync(three)["trouble"] or ""))
        assert "the clock here is ahead" in three.get("/federation").text
        clock.now = BEGIN + 100
        until(lambda: sync(members[0])["aggregation"]["waits_for"] == {"org3": "sign of life"})
        assert sync(three)["released"] == 0
        ahead.now = clock.now
        for client in (*members, three):
            until(lambda client=client: opened(client, 1))  # type: ignore[misc]
        assert sync(three)["trouble"] is None


def test_an_engine_gets_no_row_and_brings_none(tmp_path: Path) -> None:
    base = found(tmp_path / "federation")
    with member_of(base / "org1") as one:
        assert one.get("/v1/release/latest").status_code == 404
        answer = one.put("/v1/peers", json={"envelopes": {"org2": ""}})
        assert answer.json()["refused"] == {"org2": "terms"}


def test_members_can_not_choose_what_the_terms_fix(tmp_path: Path) -> None:
    base = found(tmp_path / "federation")
    for given in ({"decide_from": "released"}, {"partners": "alike"}):
        with (
            pytest.raises(InvalidInput, match="must be left out or that of the terms"),
            member_of(base / "org1", **given),
        ):
            pass
    with member_of(base / "org1", decide_from="own+released", partners="differ") as one:
        assert sync(one)["aggregation"]["colluding"] == 1
