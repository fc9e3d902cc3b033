"""An opener is killed at the steps of a round and of a change of epochs.

Rows have one content, totals are the sum of the rows, and each record is in one of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedfairx.agent.agent import Agent
from fedfairx.agent.exchange import OTHERS
from fedfairx.federation.aggregation.messages import Partial, Row, digest, parse
from fedfairx.federation.aggregation.records import Stores
from fedfairx.federation.aggregation.sender import Sender
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.setup.create import amend_federation, create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport import SqliteTransport
from fedfairx.privacy import SimulatedNoise
from fedfairx.privacy.release import total_of
from member_helpers import BEGIN, secure_terms, work
from secure_helpers import NAMES, SecureWorld

pytestmark = [pytest.mark.process, pytest.mark.long]

NONE = "none"  # a life that is not killed; the first one lets the others accept
CHANGES = {  # steps, and the lives before it, after which the others have gone on
    "closed": (),
    "closing sent": (),
    "accepted": ("closing sent",),
    "acceptance sent": ("closing sent",),
    "begun, not committed": ("closing sent", "acceptance sent"),
    "begun": ("closing sent", "acceptance sent"),
}
STEPS = ("accepted", NONE, "released", "recorded", "row sent", "opened", "partial sent", NONE)


def live(folder: Path, step: str, now: float, number: int) -> None:
    """A life of the opener at one round, in a process of its own, which ends after a step."""

    def dies(owner: Any, method: str, at: str, when: Callable[..., bool] = lambda *_: True) -> None:
        real = getattr(owner, method)

        def wrapped(self: Any, *args: Any, **options: Any) -> Any:
            answer = real(self, *args, **options)
            if step == at and when(*args):
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        setattr(owner, method, wrapped)

    dies(Stores, "accept", "accepted")
    dies(SecureMember, "_integers", "released")
    dies(Sender, "send", "recorded")
    dies(SqliteTransport, "publish", "row sent", lambda key, _: key.endswith(".row"))
    dies(Stores, "open", "opened", lambda _, opened: opened.number == number)
    dies(SqliteTransport, "publish", "partial sent", lambda key, _: key.endswith(".partial"))
    dies(Stores, "open", "closed", lambda _, opened: bool(opened.closing))
    dies(SqliteTransport, "publish", "closing sent", lambda key, _: key.endswith(".closing"))
    dies(SqliteTransport, "publish", "acceptance sent", lambda key, _: key.endswith(".accepted"))
    dies(Agent, "begin_epoch", "begun, not committed")
    dies(SecureMember, "_begin", "begun")
    place = MemberFolder.read(folder)
    with place.roster.terms.open_agent(place.name, folder / "agent.sqlite") as agent:
        member = place.member(agent)
        member.clock = lambda: now
        work(agent, 2)
        for _ in range(4):
            member.exchange()
        member.close()


def founded(base: Path) -> SecureWorld:
    """A federation of three, of whom all but the first live in this process."""
    names = NAMES[:3]
    roster = create_federation(base, secure_terms(agents=3), dict.fromkeys(names), transport="sqlite")
    here = SecureWorld(roster, {}, None)  # type: ignore[arg-type]
    for number, name in enumerate(names[1:]):
        place = MemberFolder.read(base / name)
        member = place.member(roster.terms.agent(name, noise=SimulatedNoise(1, agent=number)))
        assert isinstance(member, SecureMember)
        member.clock = lambda: here.now
        here.members[name] = member
    assert roster.openers == ("org1", "org2")
    return here


def lived(base: Path, step: str, now: float, number: int) -> None:
    """A life of the first member, which ends at this step."""
    life = multiprocessing.get_context("fork").Process(target=live, args=(base / "org1", step, now, number))
    life.start()
    life.join()
    assert life.exitcode == (0 if step == NONE else -signal.SIGKILL), step


def test_an_opener_is_killed_at_every_step_of_a_round(tmp_path: Path) -> None:
    base = tmp_path / "federation"
    here = founded(base)
    seen: dict[tuple[str, int], bytes] = {}
    transport = here.members["org2"].transport
    for number, step in enumerate(STEPS, 1):
        here.now = BEGIN + 10.0 * number
        work(here.members["org3"].agent, number, seed=number)
        here.turn()
        lived(base, step, here.now, number)
        here.turn()
        for key in ("org1.row", "org1.partial"):
            message = transport.latest().get(key)
            sent = None if message is None else parse(message)
            if isinstance(sent, Row | Partial) and message is not None:
                assert seen.setdefault((key, sent.number), digest(message)) == digest(message)
    last = len(STEPS)
    with Agent.open(base / "org1" / "agent.sqlite", name="org1") as agent:
        own = agent.past_release(last)
        assert own.count == agent.observed == 2 * last
    total = total_of([own, *(member.agent.past_release(last) for member in here.members.values())])
    for member in here.members.values():
        assert not member.refusals
        assert member.progress.opened == last
        assert member._participant is not None
        opened = member._participant.total
        assert opened is not None
        assert (opened.values[:-1] * member._share.step).tolist() == total.packed.tolist()
        assert opened.values[-1] == total.count
        member.close()


def test_an_opener_is_killed_at_every_step_of_a_change(tmp_path: Path) -> None:
    base = tmp_path / "federation"
    here = founded(base)
    here.turn()
    lived(base, NONE, here.now, 0)
    here.turn()
    for epoch, step in enumerate(CHANGES, 2):
        here.now += 10.0
        work(here.members["org3"].agent, epoch, seed=epoch)
        here.turn()
        lived(base, NONE, here.now, 0)  # the first round of the epoch before
        here.turn()
        amend_federation(base, begin=int(here.now))
        for name, member in here.members.items():
            MemberFolder.read(base / name).update(member)
        here.turn()
        for each in (*CHANGES[step], step):
            lived(base, each, here.now, 0)
            here.turn()
        for _ in range(2):
            here.turn()
            lived(base, NONE, here.now, 0)
        here.turn()
        for member in here.members.values():
            assert member.progress.epoch == epoch, step
            assert not member.refusals, step
    here.now += 10.0
    here.turn()
    lived(base, NONE, here.now, 0)
    here.turn()
    with Agent.open(base / "org1" / "agent.sqlite", name="org1") as agent:
        observed = {"org1": agent.observed}
        agent.verify()
    observed |= {name: member.agent.observed for name, member in here.members.items()}
    for name, member in here.members.items():
        assert member.progress.opened == 1
        others = sum(count for other, count in observed.items() if other != name)
        assert member.agent.held[OTHERS].count == others
        member.close()
