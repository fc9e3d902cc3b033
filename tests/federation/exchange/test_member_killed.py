"""A member is killed at every step of a release: nothing is lost, and no number has two contents."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fedfairx.federation.exchange.envelope import Envelope
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport import SqliteTransport
from fedfairx.privacy import KeyedNoise, SimulatedNoise
from fedfairx.storage.privacy_ledger import StoredLedger
from member_helpers import terms
from stored_ledger import stored_ledger

pytestmark = pytest.mark.process

STEPS = ("frozen", "recorded", "published", "acknowledged", "none")


def dies(owner: Any, method: str) -> None:
    """Let this process be killed when the method first returns."""
    real = getattr(owner, method)

    def wrapped(*args: Any, **options: Any) -> None:
        real(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, method, wrapped)


def live(folder: Path, step: str, output: Path) -> None:
    """A member's life, which a kill ends at `step`."""
    place = MemberFolder.read(folder)
    with stored_ledger(folder / "ledger.sqlite") as ledger, output.open("w") as told:
        noise = KeyedNoise(b"k" * 32, agent=place.name, run="first")
        member = place.member(place.roster.terms.agent(place.name, noise=noise, ledger=ledger))
        member.exchange()  # what an earlier life could not send
        methods = {
            "frozen": (StoredLedger, "freeze"),
            "recorded": (StoredLedger, "record"),
            "published": (SqliteTransport, "publish"),
            "acknowledged": (StoredLedger, "mark_sent"),
        }
        if step in methods:
            dies(*methods[step])
        for number in range(3):
            member.agent.privatizer.add([0.5, 0.1 * number, 0.2, 0.25], 0.3, f"{step}-{number}")
            print(f"{step}-{number}", file=told, flush=True)  # acknowledged: never to be lost
        member.send(member.agent.release())


def ended(folder: Path, step: str, output: Path) -> int:
    """The exit code of a process with this life."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            live(folder, step, output)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_at_every_step_of_a_release(tmp_path: Path) -> None:
    base = tmp_path / "federation"
    create_federation(base, terms(), {"org1": None, "org2": None}, transport="sqlite")
    place = MemberFolder.read(base / "org2")
    ear = place.member(place.roster.terms.agent("org2", noise=SimulatedNoise(1)))
    seen: dict[int, bytes] = {}
    acknowledged: list[str] = []
    for step in STEPS:
        output = tmp_path / step
        assert ended(base / "org1", step, output) == (0 if step == "none" else -signal.SIGKILL)
        acknowledged += output.read_text().split()
        message = ear.transport.latest().get("org1")
        if message is not None:
            release = Envelope.parse(message).release
            assert seen.setdefault(release.number, release.to_bytes()) == release.to_bytes()
        ear.exchange()
    assert len(acknowledged) == 3 * len(STEPS)
    assert not ear.refusals
    with stored_ledger(base / "org1" / "ledger.sqlite") as ledger:
        assert ledger.unsent() == ()
        assert ledger.spent() == len(STEPS)  # each life made its release, the killed ones by the next life
        assert all(ledger.leaf_of(record) is not None for record in acknowledged)
        assert all(ledger.message(number) == content for number, content in seen.items())
        position = ledger.position()
    assert position is not None
    assert position.total_count == len(acknowledged)
    assert position.leaf_count == 0
    assert ear.agent.held["org1"].count == len(acknowledged)
    ear.transport.close()
