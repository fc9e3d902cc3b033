"""What a member asks of a real server, what it receives, and what it may do there."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from fedfairx.errors import TransportRefused, TransportUnavailable
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport.nats_subjects import inbox_of, news_of, stream_of_bucket, subject_of
from fedfairx.federation.transport.protocol import alive_key
from member_helpers import secure_terms
from nats_server import NatsServer, free_port, nats_server, require_nats, wait_until

pytestmark = pytest.mark.process

nats = pytest.importorskip("nats")

from fedfairx.federation.transport.nats import NatsTransport, make_bucket  # noqa: E402
from fedfairx.federation.transport.nats.stream import AT_ONCE  # noqa: E402

FEDERATION = "0123456789abcdef0123456789abcdef"
NEVER = 1e6
KEYS = [f"a{number:02d}" for number in range(60)]


class Asked:
    """Counts requests, and how many of them wait for their answers at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.subjects: list[str] = []
        self.waiting = self.most = 0
        real = NatsTransport._ask

        async def ask(end: NatsTransport, subject: str, content: bytes) -> Any:
            if end._agent != "near":
                return await real(end, subject, content)
            self.subjects.append(subject)
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            try:
                return await real(end, subject, content)
            finally:
                self.waiting -= 1

        monkeypatch.setattr(NatsTransport, "_ask", ask)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def end_of(server: NatsServer, agent: str, **options: Any) -> NatsTransport:
    options = {"poll": NEVER, "deadline": 5.0} | options
    return NatsTransport(server.url, federation=FEDERATION, agent=agent, **options)


def cut(end: NatsTransport) -> None:
    """Break the connection, as a network does; the client connects again."""
    connection = end._client._transport._io_writer.transport
    end._loop.call_soon_threadsafe(connection.abort)


def latest(end: NatsTransport) -> dict[str, bytes] | None:
    """What has arrived; None while there is no connection."""
    try:
        return end.latest()
    except TransportUnavailable:
        return None


def test_at_a_start_all_is_asked_for_at_once(tmp_path: Path, asked: Asked) -> None:
    with nats_server(tmp_path, federation=FEDERATION) as server, ExitStack() as stack:
        far = stack.enter_context(closing(end_of(server, "far")))
        for key in KEYS:
            far.publish(key, key.encode(), replacing=None)
        near = stack.enter_context(closing(end_of(server, "near")))
        assert near.latest() == {key: key.encode() for key in KEYS}
        assert asked.most == AT_ONCE
        gets = [subject for subject in asked.subjects if ".MSG.GET." in subject]
        assert len(gets) == len(KEYS)
        assert len(asked.subjects) <= len(KEYS) + 4


def test_after_a_reconnection_only_what_is_new_is_asked_for(tmp_path: Path, asked: Asked) -> None:
    with nats_server(tmp_path, federation=FEDERATION) as server, ExitStack() as stack:
        far = stack.enter_context(closing(end_of(server, "far")))
        for key in KEYS:
            far.publish(key, key.encode(), replacing=None)
        near = stack.enter_context(closing(end_of(server, "near")))
        near.latest()
        asked.subjects.clear()
        cut(near)
        for key in KEYS[:3]:
            far.publish(key, b"new", replacing=key.encode())
        wait_until(lambda: latest(near) == far.latest() and asked.subjects, what="connected again")
        wait_until(lambda: not asked.waiting)
        assert len(asked.subjects) <= 3 + 3  # the stream twice, its last message, and the three new ones


@pytest.mark.parametrize("looked", [20, 22])
def test_a_hub_put_back_to_after_our_last_look_or_before(looked: int, tmp_path: Path) -> None:
    """What came after message 20 is of another history, which is longer when we connect again.

    After our last look the hub had 20 messages, or 22.
    """
    with nats_server(tmp_path, federation=FEDERATION) as server:
        with closing(end_of(server, "far")) as far:
            for key in KEYS[:20]:
                far.publish(key, key.encode(), replacing=None)
        server.kill()
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        server.start()
        with closing(end_of(server, "near", poll=NEVER if looked == 20 else 0.05)) as near:
            near.latest()
            near.publish("lost", b"1", replacing=None)
            near.publish("a00", b"2", replacing=b"a00")
            wait_until(lambda: near._streams[0]._reached[0] == looked)
            server.kill()
            shutil.rmtree(tmp_path / "store")
            shutil.copytree(tmp_path / "copy", tmp_path / "store")
            elsewhere = NatsServer(tmp_path, port=free_port()).start()  # where `near` does not look
            with closing(end_of(elsewhere, "far")) as far:
                for key in ("b", "a00", "c", "d"):
                    far.publish(key, b"other", replacing=far.latest().get(key))
                later = far.latest()
            elsewhere.kill()
            server = NatsServer(tmp_path, port=server.port).start()
            try:
                wait_until(lambda: latest(near) == later)
            finally:
                server.kill()


def test_a_row_reaches_the_member_that_it_is_for_and_nobody_else(tmp_path: Path, asked: Asked) -> None:
    with nats_server(tmp_path, federation=FEDERATION) as server, ExitStack() as stack:
        make_bucket(server.url, federation=FEDERATION, rows=True)

        def end(name: str, **options: Any) -> NatsTransport:
            return stack.enter_context(closing(end_of(server, name, rows=True, **options)))

        sender, near, other = end("sender"), end("near"), end("other")
        for each in (sender, near, other):
            each.latest()
        for number in range(3):
            before = None if number == 0 else b"%d" % (number - 1)
            for name in ("near", "other"):
                sender.publish(f"sender.row.{name}", b"%d" % number, replacing=before)
        sender.publish("sender", b"for all", replacing=None)
        everybody = {"sender": b"for all"}
        wait_until(lambda: near.latest() == everybody | {"sender.row.near": b"2"})
        wait_until(lambda: other.latest() == everybody | {"sender.row.other": b"2"})
        cut(near)
        asked.subjects.clear()
        for name in ("near", "other"):
            sender.publish(f"sender.row.{name}", b"3", replacing=b"2")
        wait_until(lambda: latest(near) == everybody | {"sender.row.near": b"3"})
        wait_until(lambda: asked.subjects and not asked.waiting)
        again = end("near", poll=0.05)  # a second start finds the same
        assert again.latest() == near.latest()


def test_a_row_that_was_missed_is_found_by_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nats_server(tmp_path, federation=FEDERATION) as server, ExitStack() as stack:
        make_bucket(server.url, federation=FEDERATION, rows=True)
        sender = stack.enter_context(closing(end_of(server, "sender", rows=True)))
        near = stack.enter_context(closing(end_of(server, "near", rows=True, poll=0.05)))
        near.latest()
        monkeypatch.setattr(near._streams[1], "receive", lambda *_: True)  # news is lost
        sender.publish("sender.row.near", b"1", replacing=None)
        sender.publish("sender.row.other", b"1", replacing=None)
        wait_until(lambda: near.latest() == {"sender.row.near": b"1"})


def test_who_has_no_bucket_for_rows_sends_none(tmp_path: Path) -> None:
    with (
        nats_server(tmp_path, federation=FEDERATION) as server,
        closing(end_of(server, "near")) as near,
        pytest.raises(TransportRefused, match="must not be for one member"),
    ):
        near.publish("near.row.far", b"1", replacing=None)


# --- what members may do, by the configuration that `federate init` makes --------------------------------


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Roster]]:
    require_nats()
    base, port = tmp_path_factory.mktemp("federation") / "made", free_port()
    names = dict.fromkeys(["org1", "org2", "org3", "org4"])
    roster = create_federation(base, secure_terms(), names, hosts=["127.0.0.1"], port=port)
    server = NatsServer.of(base / "hub" / "nats-server.conf", port)
    try:
        server.start().make_bucket_in(base / "hub")
        yield base, roster
    finally:
        server.kill()


@pytest.mark.parametrize("key", [alive_key("org2"), "org2.row.org1", "org2.row.org3", "org2.accepted"])
def test_a_member_can_t_write_anothers_sign_of_life_or_row(founded: tuple[Path, Roster], key: str) -> None:
    with closing(MemberFolder.read(founded[0] / "org1").transport()) as end:
        end.latest()
        with pytest.raises(TransportRefused, match=r"denies agent 'org1'.*[Pp]ermissions [Vv]iolation"):
            end.publish(key, b"forged", replacing=None)
    with closing(MemberFolder.read(founded[0] / "org2").transport()) as end:
        assert key not in end.latest()


def refused(founded: tuple[Path, Roster], work: Any, times: int = 1) -> list[str]:
    """What the server refuses, so many times, of the work of org1 with a client of its own."""
    place, errors = MemberFolder.read(founded[0] / "org1"), []

    async def failed(error: Exception) -> None:
        errors.append(str(error).lower())

    async def run() -> None:
        client = await nats.connect(
            place.servers, tls=place.tls(), inbox_prefix=inbox_of("org1"), error_cb=failed
        )
        await work(client)
        await client.flush()  # its answer comes after all errors
        while len(errors) < times:
            await asyncio.wait_for(client.flush(), 5.0)
        await client.close()

    asyncio.run(asyncio.wait_for(run(), 10.0))
    return [error for error in errors if "permissions violation" in error]


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("verb", ["CREATE", "DURABLE.CREATE"])
def test_a_member_can_t_have_the_server_write_for_it(
    founded: tuple[Path, Roster], rows: bool, verb: str
) -> None:
    """By a consumer it could have its own messages, with headers of its choice, delivered as news."""
    federation = founded[1].federation
    stream = stream_of_bucket(federation, rows=rows)
    config = {"deliver_subject": news_of(federation, "org2.alive"), "ack_policy": "none"}
    more = ".one" if verb == "DURABLE.CREATE" else ""

    async def work(client: Any) -> None:
        content = json.dumps({"stream_name": stream, "config": config}).encode()
        await client.publish(f"$JS.API.CONSUMER.{verb}.{stream}{more}", content)

    (error,) = refused(founded, work)
    assert "consumer" in error


def test_a_member_can_t_write_news_nor_hear_others_rows(founded: tuple[Path, Roster]) -> None:
    federation = founded[1].federation

    async def work(client: Any) -> None:
        await client.publish(news_of(federation, "org2.alive"), b"forged")
        await client.publish(news_of(federation, "org2.row.org1", rows=True), b"forged")
        await client.publish(subject_of(federation, "org2.alive"), b"forged")
        for key in ("*.*.org2", "org3.row.org2", ">"):
            await client.subscribe(news_of(federation, key, rows=True))

    assert len(refused(founded, work, times=6)) == 6
