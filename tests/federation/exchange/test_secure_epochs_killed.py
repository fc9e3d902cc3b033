"""A durable member is stopped before and after each write and sending of a change of epochs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfairx.agent.exchange import OTHERS
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.transport import MemoryTransport
from member_helpers import work
from secure_helpers import NAMES, SecureWorld, secure_world

pytestmark = pytest.mark.long


class Killed(BaseException):
    """The process ends here."""


class Steps:
    """Ends a member's process at one of its writes and sendings, before or after it."""

    def __init__(self, at: int) -> None:
        self.at, self.made = at, 0

    def watch(self, owner: Any, method: str) -> None:
        real: Callable[..., Any] = getattr(owner, method)

        def watched(*args: Any, **options: Any) -> Any:
            self._step()
            answer = real(*args, **options)
            self._step()
            return answer

        setattr(owner, method, watched)

    def _step(self) -> None:
        self.made += 1
        if self.made == self.at:
            raise Killed


class OneMember:
    """One member's way to the transport that all share."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        self._transport.publish(agent, message, replacing=replacing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def start(here: SecureWorld, name: str, folder: Path) -> SecureMember:
    """Start the durable member; the others live in memory."""
    place = folder / f"{name}.db"
    here.folder = folder
    agent = here.roster.terms.open_agent(name, place, members=len(here.roster.members))
    member = here.start(name, agent)
    here.folder = None
    return member


def watch(member: SecureMember, steps: Steps) -> None:
    member.transport = OneMember(member.transport)  # type: ignore[arg-type]
    steps.watch(member.transport, "publish")
    steps.watch(member._records, "put")
    if member._vault is not None:
        steps.watch(member._vault, "put")


def end(member: SecureMember) -> None:
    member.close_vault()
    member.agent.close()


@pytest.mark.parametrize(("victim", "names"), [("org1", NAMES[:3]), ("org3", NAMES)], ids=["opener", "other"])
def test_a_member_is_stopped_at_every_step_of_a_change(
    tmp_path: Path, victim: str, names: tuple[str, ...]
) -> None:
    """An opener is behind when the epoch ends, and completes the last round.

    The others are the other openers and a member that is none.
    """
    here = secure_world(names).start_all([name for name in names if name != victim])
    member = start(here, victim, tmp_path)
    at, stopped = 0, True
    while stopped:
        at, stopped = at + 1, False
        busy(here, 3 * at)
        here.round(1)
        here.check_total(1)
        busy(here, 3 * at + 1)
        here.now += 10.0
        member.exchange()  # sends its row
        watch(member, Steps(at))
        others = [name for name in names if name != victim]
        here.amend(away=names)
        for phase in ("closes before the others send", "changes the epoch", "sends its first row"):
            if phase.startswith("changes"):
                here.turn(without=[victim])
                for name in others:
                    here.follow(name, here.members[name])
            elif phase.startswith("sends"):
                assert {each.progress.epoch for each in here.members.values()} == {at + 1}, at
                busy(here, 3 * at + 2)
                here.now += 10.0
            without = others if phase.startswith("closes") else []
            try:
                here.follow(victim, member)
                here.turn(without=without)
            except Killed:
                stopped = True
                end(member)
                member = start(here, victim, tmp_path)
                here.turn(times=5, without=without)
        for each in here.members.values():
            assert each.progress.waits_for == {}, at
            assert not each.refusals, at
            observed = sum(other.agent.observed for other in here.members.values() if other is not each)
            assert each.agent.held[OTHERS].count == observed, at
        here.check_total(1)
    assert at > 20
    member.agent.verify()
    end(member)


def busy(here: SecureWorld, seed: int) -> None:
    for place, member in enumerate(here.members.values()):
        work(member.agent, 1 + place % 2, seed=10 * seed + place)


def test_a_member_restored_from_before_a_change_halts(tmp_path: Path) -> None:
    here = secure_world(NAMES).start_all(NAMES[:3])
    member = start(here, "org4", tmp_path)
    busy(here, 1)
    here.round(1)
    end(member)
    shutil.copy(tmp_path / "org4.db", tmp_path / "backup.db")
    member = start(here, "org4", tmp_path)
    here.amend()
    here.turn()
    busy(here, 2)
    here.round(1)
    here.check_total(1)
    row = here.transport.latest()["org4.row"]
    end(member)
    shutil.copy(tmp_path / "backup.db", tmp_path / "org4.db")
    for left in tmp_path.glob("org4.db[.-]*"):  # as on another machine, without the mark of the last use
        left.unlink()
    restored = start(here, "org4", tmp_path)
    busy(here, 3)
    here.round(2)
    assert restored.halted is not None
    assert "can't continue under its name" in restored.halted
    assert here.transport.latest()["org4.row"] == row
    end(restored)


@pytest.mark.parametrize("evidence", ["it has halted", "a total", "its row"])
def test_a_restored_member_does_not_continue_after_it_was_removed_and_added_again(
    tmp_path: Path, evidence: str
) -> None:
    """Records of the backup were in a row of the epoch that it has forgotten."""
    here = secure_world((*NAMES, "org5"), agents=5).start_all([*NAMES[:3], "org5"])
    member = start(here, "org4", tmp_path)
    busy(here, 1)
    here.round(1)
    busy(here, 2)
    end(member)
    shutil.copy(tmp_path / "org4.db", tmp_path / "backup.db")
    member = start(here, "org4", tmp_path)
    here.amend(add=["org6"])
    here.start("org6")
    here.turn()
    here.round(1, without=["org3"] if evidence == "its row" else [])
    assert member.progress.sent == 1
    assert member.progress.opened == (evidence != "its row")
    end(here.members.pop("org4"))
    shutil.copy(tmp_path / "backup.db", tmp_path / "org4.db")
    for left in tmp_path.glob("org4.db[.-]*"):  # as on another machine, without the mark of the last use
        left.unlink()
    if evidence == "it has halted":
        restored = start(here, "org4", tmp_path)
        here.turn()
        assert restored.halted is not None
        end(restored)
    if evidence != "its row":  # the hub has lost it
        del here.transport._messages["org4.row"]  # type: ignore[attr-defined]
    if evidence == "it has halted":
        for each in here.members.values():
            each._proved = dict  # type: ignore[method-assign]  # totals that do not fit into a message
    here.amend(remove=["org4"])
    here.turn(times=6)
    here.amend(add=["org4"])
    restored = start(here, "org4", tmp_path)
    here.turn()
    here.round(1)
    assert "can't continue under its name" in restored.progress.unconfirmed
    assert here.members["org1"].progress.waits_for == {"org4": "acceptance"}
    end(restored)


def test_durable_members_know_after_a_restart_what_they_knew(tmp_path: Path) -> None:
    here = secure_world(NAMES).start_all(NAMES[:3])
    member = start(here, "org4", tmp_path)
    for epoch in (1, 2, 3):
        busy(here, epoch)
        here.round(1)
        here.check_total(1)
        before = member.agent.state()
        end(member)
        member = start(here, "org4", tmp_path)
        after = member.agent.state()
        assert after.learner == before.learner
        assert after.base == before.base
        assert (after.base is None) == (epoch == 1)
        here.turn()
        here.check_total(1)
        here.amend()
        here.turn()
        assert member.progress.epoch == epoch + 1
    guarantee = member.agent.privatizer.guarantee
    assert (guarantee.spent, guarantee.runs) == (0, 1)  # a record is in one epoch
    assert guarantee.epsilon == pytest.approx(2.0)
    assert np.isfinite(member.agent.estimate).all()
    member.agent.verify()
    end(member)
