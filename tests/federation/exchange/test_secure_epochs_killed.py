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
    steps.watch(member._record, "write")
    steps.watch(member._vault, "write")
    for method in ("release", "absorb", "begin_epoch"):  # each is in the transaction of a write
        steps.watch(member.agent, method)


def end(member: SecureMember) -> None:
    member.close_vault()
    member.agent.close()


@pytest.mark.parametrize("victim", ["org1", "org3"], ids=["opener", "other"])
def test_a_member_is_stopped_at_every_step_of_a_change(tmp_path: Path, victim: str) -> None:
    """Freeze, row, vault, publish, accept, begin: each record is in the totals of one epoch."""
    names = NAMES[:3]
    here = secure_world(names).start_all([name for name in names if name != victim])
    member = start(here, victim, tmp_path)
    at, stopped = 0, True
    while stopped:
        at, stopped = at + 1, False
        busy(here, 3 * at)
        watch(member, Steps(at))
        for phase in ("sends a row", "changes the epoch", "sends its first row"):
            if phase == "changes the epoch":
                busy(here, 3 * at + 1)
                here.amend(away=[victim])
            else:
                here.now += 10.0
            try:
                here.follow(victim, member)
                here.turn()
            except Killed:
                stopped = True
                end(member)
                member = start(here, victim, tmp_path)
                here.turn(times=5)
            assert not any(each.progress.waits_for for each in here.members.values()), (at, phase)
        for each in here.members.values():
            assert each.progress.epoch == at + 1
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
    row = here.transport.latest()["org4.row.org1"]
    end(member)
    shutil.copy(tmp_path / "backup.db", tmp_path / "org4.db")
    for left in tmp_path.glob("org4.db[.-]*"):  # as on another machine, without the mark of the last use
        left.unlink()
    restored = start(here, "org4", tmp_path)
    busy(here, 3)
    here.round(2)
    assert restored.halted is not None
    assert "can't continue under its name" in restored.halted
    assert here.transport.latest()["org4.row.org1"] == row
    end(restored)


@pytest.mark.parametrize("vault", ["kept", "lost"])
def test_a_restored_member_does_not_continue_after_it_was_removed_and_added_again(
    tmp_path: Path, vault: str
) -> None:
    """Records of the backup were in a row of the epoch that it has forgotten. The hub has lost its rows."""
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
    here.round(1)
    assert (member.progress.epoch, member.progress.opened) == (2, 1)
    end(here.members.pop("org4"))
    shutil.copy(tmp_path / "backup.db", tmp_path / "org4.db")
    for left in tmp_path.glob("org4.db[.-]*"):  # as on another machine, without the mark of the last use
        left.unlink()
    if vault == "lost":
        (tmp_path / "org4.vault").unlink()
    for place in [*here.transport.latest()]:
        if place.startswith("org4."):
            del here.transport._messages[place]  # type: ignore[attr-defined]
    here.amend(remove=["org4"])
    here.turn(times=6)
    here.amend(add=["org4"])
    restored = start(here, "org4", tmp_path)
    here.turn()
    here.round(1)
    assert "can't continue under its name" in str(restored.halted)
    assert {*here.transport.latest()} & {f"org4.row.{name}" for name in here.roster.members} == set()
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
