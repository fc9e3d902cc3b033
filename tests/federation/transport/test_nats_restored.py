"""A hub whose data goes back in time or is lost, with members running throughout."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport.nats_subjects import stream_of_bucket
from member_helpers import World, work, world
from nats_server import NatsServer, free_port, nats_server, wait_until

pytestmark = pytest.mark.process

nats = pytest.importorskip("nats")

from fedfairx.errors import TransportRefused, TransportUnavailable  # noqa: E402
from fedfairx.federation.transport.nats import NatsTransport, client  # noqa: E402

FEDERATION = "0123456789abcdef0123456789abcdef"
NEVER = 600.0  # seconds between two looks that nothing calls for: what is found here is found without them


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PAUSE", 0.02)  # until a member connects again


@contextmanager
def running(here: World, server: NatsServer) -> Iterator[list[Member]]:
    """All members at one hub, each with its thread."""
    with ExitStack() as stack:
        members = []
        for name in here.keys:
            end = NatsTransport(server.url, federation=here.roster.federation, agent=name, poll=NEVER)
            here.transport = stack.enter_context(closing(end))
            members.append(here.member(name))
        for member in members:
            stack.callback(member.watch(every=0.2))
        yield members


def release(members: list[Member], number: int) -> None:
    """One more release of each, and wait until everybody has all of them."""
    for index, member in enumerate(members):
        work(member.agent, 1, seed=10 * number + index)
        member.agent.release()
        member.wake()
    wait_until(lambda: everybody_has(members, number), what=f"release {number}")


def everybody_has(members: list[Member], number: int) -> bool:
    return all([peer.release for peer in each.peers.values()] == [number] * 2 for each in members)


def at_hub(here: World, server: NatsServer) -> list[int]:
    """The numbers of the releases that a newcomer would find."""
    with closing(NatsTransport(server.url, federation=here.roster.federation, agent="x")) as end:
        messages = end.latest()
    seal = here.seal("org1")
    return [seal.open(name, messages[name]).number for name in sorted(messages.keys() & here.keys.keys())]


def test_a_hub_put_back_from_an_older_copy(tmp_path: Path) -> None:
    here = world()
    with nats_server(tmp_path, federation=here.roster.federation) as server, running(here, server) as members:
        release(members, 1)
        server.kill()
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        server.start()
        for number in (2, 3, 4):
            release(members, number)
        server.kill()
        put_back(tmp_path)
        server.start()
        wait_until(lambda: at_hub(here, server) == [4, 4, 4], what="sent again")
        release(members, 5)
        release(members, 6)
        assert at_hub(here, server) == [6, 6, 6]
        assert all(member.halted is None for member in members)


def test_a_hub_whose_data_is_gone(tmp_path: Path) -> None:
    here = world()
    with nats_server(tmp_path, federation=here.roster.federation) as server, running(here, server) as members:
        for number in (1, 2, 3):
            release(members, number)
        server.kill()
        shutil.rmtree(tmp_path / "store")
        server.start()
        wait_until(lambda: "has no bucket" in str(members[0].away))  # for the hub's operator to make
        server.make_bucket(here.roster.federation)
        wait_until(lambda: at_hub(here, server) == [3, 3, 3], what="sent again")
        release(members, 4)


def test_a_stream_deleted_at_a_running_hub(tmp_path: Path) -> None:
    """No connection is lost, so nothing but the next message tells of it."""
    here = world()
    with nats_server(tmp_path, federation=here.roster.federation) as server, running(here, server) as members:
        for number in (1, 2, 3):
            release(members, number)
        asyncio.run(_delete(server, here.roster.federation))
        work(members[0].agent, 1)
        members[0].agent.release()
        members[0].wake()
        wait_until(lambda: "has no bucket" in str(members[0].away))
        server.make_bucket(here.roster.federation)
        wait_until(lambda: at_hub(here, server) == [4, 3, 3], what="sent again")
        release(members[1:], 4)
        assert at_hub(here, server) == [4, 4, 4]


async def _delete(server: NatsServer, federation: str) -> None:
    client = await nats.connect(server.url)
    assert await client.jetstream().delete_stream(stream_of_bucket(federation))
    await client.close()


def test_a_hub_put_back_that_is_ahead_again_when_a_member_returns(tmp_path: Path) -> None:
    """Its last revision tells nothing then: it is beyond what the member has seen."""
    with nats_server(tmp_path, federation=FEDERATION) as server:
        with closing(_end(server, "b")) as far:
            far.publish("b", b"far", replacing=None)
        server.kill()
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        server.start()
        with closing(_end(server, "a")) as near:
            near.publish("a", b"1", replacing=None)
            near.publish("b", b"lost", replacing=b"far")
            wait_until(lambda: _latest(near) == {"a": b"1", "b": b"lost"})
            server.kill()
            put_back(tmp_path)
            elsewhere = NatsServer(tmp_path, port=free_port()).start()  # where `near` does not look
            with closing(_end(elsewhere, "b")) as far:
                far.publish("c", b"later", replacing=None)
                far.publish("b", b"new", replacing=b"far")  # the revision that "lost" had
                far.publish("d", b"later", replacing=None)
                later = far.latest()
            elsewhere.kill()
            server = NatsServer(tmp_path, port=server.port).start()
            try:
                wait_until(lambda: _latest(near) == later)
            finally:
                server.kill()


def test_a_stream_made_again_that_could_lose_messages_is_refused(tmp_path: Path) -> None:
    hub = nats_server(tmp_path, federation=FEDERATION)
    with hub as server, closing(_end(server, "a", poll=0.1)) as end:
        end.publish("a", b"1", replacing=None)

        async def replace() -> None:
            client = await nats.connect(server.url)
            await client.jetstream().delete_stream(stream_of_bucket(FEDERATION))
            await client.jetstream().create_key_value(bucket=f"ffx_{FEDERATION}", ttl=60)
            await client.close()

        def refused() -> bool:
            try:
                end.latest()
            except TransportRefused as error:
                return "max_age must be 0, got 60" in str(error)
            return False

        asyncio.run(replace())
        wait_until(refused)
        asyncio.run(_delete(server, FEDERATION))
        server.make_bucket(FEDERATION)
        wait_until(lambda: _latest(end) == {})  # and it goes on when somebody has seen to it
        end.publish("a", b"1", replacing=None)


def put_back(folder: Path) -> None:
    shutil.rmtree(folder / "store")
    shutil.copytree(folder / "copy", folder / "store")


def _end(server: NatsServer, agent: str, poll: float = NEVER) -> NatsTransport:
    return NatsTransport(server.url, federation=FEDERATION, agent=agent, deadline=2.0, poll=poll)


def _latest(end: NatsTransport) -> dict[str, bytes] | None:
    try:
        return end.latest()
    except (TransportUnavailable, TransportRefused):
        return None
