"""A member is killed at every step of a release: nothing is lost, and no number has two contents."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedfairx.federation.exchange.envelope import Envelope
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.privacy import SimulatedNoise, SqliteLedger
from member_helpers import terms

pytestmark = pytest.mark.process

STEPS = ("frozen", "recorded", "published", "acknowledged", "none")
LIFE = """
import os, signal, sys
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport import SqliteTransport
from fedfairx.privacy import KeyedNoise, SqliteLedger

folder, step = sys.argv[1:]

def dies(owner, method, at):
    real = getattr(owner, method)
    def wrapped(*args, **options):
        answer = real(*args, **options)
        if step == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, method, wrapped)

place = MemberFolder.read(folder)
path = os.path.join(folder, "ledger.sqlite")
with SqliteLedger(path, create=not os.path.exists(path)) as ledger:
    noise = KeyedNoise(b"k" * 32, agent=place.name, run="first")
    member = place.member(place.roster.terms.agent(place.name, noise=noise, ledger=ledger))
    member.exchange()  # what an earlier life could not send
    for at, method in (("frozen", "freeze"), ("recorded", "record"), ("acknowledged", "mark_sent")):
        dies(SqliteLedger, method, at)
    dies(SqliteTransport, "publish", "published")
    for number in range(3):
        member.agent.privatizer.add([0.5, 0.1 * number, 0.2], 0.3, f"{step}-{number}")
        print(f"{step}-{number}", flush=True)  # acknowledged: never to be lost
    member.send(member.agent.release())
"""


def test_killed_at_every_step_of_a_release(tmp_path: Path) -> None:
    base = tmp_path / "federation"
    create_federation(base, terms(), {"org1": None, "org2": None}, transport="sqlite")
    place = MemberFolder.read(base / "org2")
    ear = place.member(place.roster.terms.agent("org2", noise=SimulatedNoise(1)))
    seen: dict[int, bytes] = {}
    acknowledged: list[str] = []
    for step in STEPS:
        done = subprocess.run(
            [sys.executable, "-c", LIFE, str(base / "org1"), step],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (0 if step == "none" else -signal.SIGKILL), done.stderr
        acknowledged += done.stdout.split()
        message = ear.transport.latest().get("org1")
        if message is not None:
            release = Envelope.parse(message).release
            assert seen.setdefault(release.number, release.to_bytes()) == release.to_bytes()
        ear.exchange()
    assert len(acknowledged) == 3 * len(STEPS)
    assert not ear.refusals
    with SqliteLedger(base / "org1" / "ledger.sqlite") as ledger:
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
