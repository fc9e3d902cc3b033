"""Secure aggregation over a NATS server with TLS: permissions, totals, a hub that is killed, a new epoch."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fedfairx.errors import TransportRefused, TransportUnavailable
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.setup.create import amend_federation, create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.privacy import SimulatedNoise
from member_helpers import BEGIN, secure_terms, work
from nats_server import NatsServer, free_port, wait_until
from secure_helpers import NAMES, SecureWorld


def connects(place: MemberFolder) -> bool:
    """Whether the hub admits a member."""
    transport = place.transport()
    try:
        transport.latest()
    except (TransportUnavailable, TransportRefused):
        return False
    finally:
        transport.close()
    return True


@pytest.mark.process
@pytest.mark.long
def test_members_with_tls_open_totals_and_survive_their_hub(tmp_path: Path) -> None:
    base, port = tmp_path / "made", free_port()
    names = NAMES[:3]
    roster = create_federation(
        base, secure_terms(agents=3), dict.fromkeys(names), hosts=["127.0.0.1"], port=port
    )
    server = NatsServer.of(base / "hub" / "nats-server.conf", port).start()
    server.make_bucket_in(base / "hub")
    here = SecureWorld(roster, {}, None)  # type: ignore[arg-type]
    try:
        for number, name in enumerate(names):
            place = MemberFolder.read(base / name)
            place.confirm(roster.members)
            member = place.member(roster.terms.agent(name, noise=SimulatedNoise(1, agent=number)))
            assert isinstance(member, SecureMember)
            member.clock = lambda: here.now
            here.members[name] = member
        watching = [member.watch(every=0.2) for member in here.members.values()]

        def opened(number: int) -> None:
            wait_until(lambda: all(one.progress.opened == number for one in here.members.values()))
            here.check_total(number)

        wait_until(lambda: all(one.progress.waits_for == {} for one in here.members.values()))
        work(here.members["org3"].agent, 5)
        here.now = BEGIN + 10.0
        opened(1)
        for key in ("org1.row.org2", "org1.partial", "org3", "org2.accepted"):
            with pytest.raises(TransportRefused, match="permission"):
                held = here.members["org3"].transport.latest().get(key)
                here.members["org3"].transport.publish(key, b"x", replacing=held)
        server.kill()
        wait_until(lambda: all(one.away is not None for one in here.members.values()))
        work(here.members["org2"].agent, 5)
        here.now = BEGIN + 20.0
        server.start()
        opened(2)
        roster = amend_federation(
            base, add={"org4": None}, openers=["org4", "org2"], begin=int(here.now), confirm=True
        )
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)  # nats-server --signal reload
        joined = MemberFolder.read(base / "org4")
        agent = roster.terms.agent("org4", noise=SimulatedNoise(1, agent=4), members=4)
        wait_until(lambda: connects(joined))
        here.members["org4"] = late = joined.member(agent)  # type: ignore[assignment]
        late.clock = lambda: here.now
        watching.append(late.watch(every=0.2))
        for name in names:
            MemberFolder.read(base / name).update(here.members[name])
        wait_until(lambda: all(one.progress.epoch == 2 for one in here.members.values()))
        work(here.members["org1"].agent, 5)
        here.now += 10.0
        opened(1)
        assert not any(one.refusals for one in here.members.values())
        for stop in watching:
            stop()
    finally:
        for member in here.members.values():
            member.close()
        server.kill()
