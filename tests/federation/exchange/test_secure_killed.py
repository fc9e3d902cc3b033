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
from fedfairx.federation.aggregation.messages import Partial, RowMessage, digest, parse, row_and_share
from fedfairx.federation.aggregation.records import (
    FileStore,
    MemoryStore,
    Part,
    Record,
    SqlStore,
    Vault,
    record_in,
    vault_in,
)
from fedfairx.federation.aggregation.shares import as_integers, from_bytes
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.setup.create import amend_federation, create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport import SqliteTransport
from fedfairx.privacy import SimulatedNoise
from fedfairx.privacy.release import total_of
from member_helpers import BEGIN, secure_terms, work
from secure_helpers import NAMES, SecureWorld, part_of

pytestmark = [pytest.mark.process, pytest.mark.long]

NONE = "none"  # a life that is not killed; the first one lets the others accept
CHANGES = {  # steps, and the lives before it, after which the others have gone on
    "key kept": (),
    "key sent": (),
    "acceptance sent": ("key sent",),
    "begun, not committed": ("key sent",),
    "begun": ("key sent",),
    "keys deleted": ("key sent",),
}
STEPS = ("key kept", NONE, "released", "recorded", "marked", "row sent", "opened", "partial sent", NONE)


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

    def record(value: bytes) -> Record:
        return record_in(MemoryStore(value))

    def vault(value: bytes) -> Vault:
        kept = vault_in(MemoryStore(value))
        assert kept is not None
        return kept

    def part(value: bytes) -> Part:
        return record(value).part or Part(None, None)  # type: ignore[arg-type]

    version = MemberFolder.read(folder).roster.version
    dies(FileStore, "write", "key kept", lambda value: version in vault(value).secrets)
    dies(SqliteTransport, "publish", "key sent", lambda key, _: key.endswith(".opener"))
    dies(SecureMember, "_integers", "released")
    dies(SqlStore, "write", "recorded", lambda value: part(value).last == number)
    dies(FileStore, "write", "marked", lambda value: vault(value).round == number)
    dies(SqliteTransport, "publish", "row sent", lambda key, _: ".row." in key)
    dies(FileStore, "write", "opened", lambda value: getattr(vault(value).opened, "number", 0) == number)
    dies(SqliteTransport, "publish", "partial sent", lambda key, _: key.endswith(".partial"))
    dies(SqliteTransport, "publish", "acceptance sent", lambda key, _: key.endswith(".accepted"))
    dies(Agent, "begin_epoch", "begun, not committed")
    dies(SecureMember, "_drop_published", "begun, not committed")
    dies(FileStore, "write", "keys deleted", lambda value: {*vault(value).secrets} == {version})
    dies(SqliteTransport, "publish", "begun", lambda key, _: key.endswith(".past"))
    place = MemberFolder.read(folder)
    with place.roster.terms.open_agent(place.name, folder / "agent.sqlite") as agent:
        member = place.member(agent)
        member.clock = lambda: now
        work(agent, 2)
        for _ in range(4):
            member.exchange()
            member.show_life()
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
        for key in ("org1.row.org1", "org1.row.org2", "org1.partial"):
            message = transport.latest().get(key)
            if message is not None and ".row." in key:
                message, _ = row_and_share(message)
            sent = None if message is None else parse(message)
            if isinstance(sent, RowMessage | Partial) and message is not None:
                assert seen.setdefault((key, sent.number), digest(message)) == digest(message)
    last = len(STEPS)
    with Agent.open(base / "org1" / "agent.sqlite", name="org1") as agent:
        own = agent.past_release(last)
        assert own.count == agent.observed == 2 * (last - 1)  # it died before it learnt, the first time
    total = total_of([own, *(member.agent.past_release(last) for member in here.members.values())])
    for member in here.members.values():
        assert not member.refusals
        assert member.progress.opened == last
        opened = part_of(member).total
        assert opened is not None
        values = as_integers(from_bytes(opened.values))
        assert (values[:-1] * member._share.step).tolist() == total.packed.tolist()
        assert values[-1] == total.count
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
