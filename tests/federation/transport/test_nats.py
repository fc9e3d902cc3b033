"""Over a real nats-server: what happens when it dies, and who is let in."""

from __future__ import annotations

import asyncio
import gc
import shutil
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path

import pytest

from fedfairx.cli.main import main
from fedfairx.errors import TransportRefused, TransportUnavailable
from fedfairx.federation.roster import certificates
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.setup.create import amend_federation, create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.setup.renew import renew_certificates
from fedfairx.federation.transport import Conflict
from fedfairx.federation.transport.nats_subjects import stream_of_bucket, subject_of
from fedfairx.privacy import SimulatedNoise
from member_helpers import World, released, terms, work, world
from nats_server import NatsServer, free_port, nats_cluster, nats_server, require_nats, wait_until

pytestmark = pytest.mark.process

nats = pytest.importorskip("nats")

from fedfairx.federation.roster.signing_keys import SigningKey  # noqa: E402
from fedfairx.federation.transport.nats import NatsTransport, client, tls_context  # noqa: E402

FEDERATION = "0123456789abcdef0123456789abcdef"


def opened(servers: str | list[str], agent: str, **options: object) -> NatsTransport:
    return NatsTransport(servers, federation=FEDERATION, agent=agent, **options)  # type: ignore[arg-type]


def raw(coroutine: object) -> object:
    return asyncio.run(coroutine)  # type: ignore[arg-type]


# --- servers that die --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[None]]:
    """What happens when one of three servers is killed, while other tests run: most of it is waiting."""
    require_nats()
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_kill_one_of_three, tmp_path_factory.mktemp("cluster"))


def _kill_one_of_three(folder: Path) -> None:
    with nats_cluster(folder) as servers, ExitStack() as stack:
        urls = [server.url for server in servers]
        wait_until(lambda: _made(servers[0]), seconds=40, what="a leader")
        one, two = (stack.enter_context(_closing(opened(urls, name, deadline=1.0))) for name in ("a", "b"))
        wait_until(lambda: _published(one, "a", b"0", None), seconds=40)
        leader = _leader(urls)
        servers[leader].kill()  # the worst of the three
        for number in range(1, 6):
            message, before = b"%d" % number, b"%d" % (number - 1)
            wait_until(lambda m=message, b=before: _published(one, "a", m, b), seconds=40)
        wait_until(lambda: _latest(two).get("a") == b"5", seconds=40)


def _made(server: NatsServer) -> bool:
    try:
        server.make_bucket(FEDERATION, replicas=3, deadline=1.0)
    except (TransportUnavailable, TransportRefused):  # the three have not found each other yet
        return False
    return True


def _leader(urls: list[str]) -> int:
    async def ask() -> int:
        client = await nats.connect(urls)
        info = await client.jetstream().stream_info(stream_of_bucket(FEDERATION))
        await client.close()
        assert info.config.num_replicas == 3
        return int(info.cluster.leader.removeprefix("n"))

    return int(raw(ask()))  # type: ignore[call-overload]


def test_three_servers_begin(one_of_three: Future[None]) -> None:
    """Their end is the last test here."""
    assert not one_of_three.done() or one_of_three.exception() is None


def test_the_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    with nats_server(tmp_path, federation=FEDERATION) as server, ExitStack() as stack:
        one, two = (
            stack.enter_context(_closing(opened(server.url, name, deadline=0.3))) for name in ("a", "b")
        )
        wait_until(lambda: _published(one, "a", b"one", None))
        wait_until(lambda: _latest(two).get("a") == b"one")
        told: list[float] = []
        two.watch(lambda: told.append(time.monotonic()))
        server.kill()
        with pytest.raises(TransportUnavailable):
            one.publish("a", b"two", replacing=b"one")
        with pytest.raises(TransportUnavailable):
            two.latest()
        server.start()
        wait_until(lambda: _published(one, "a", b"two", b"one"))
        wait_until(lambda: _latest(two).get("a") == b"two")
        assert told  # its watch has survived, too
        told.clear()
        wait_until(lambda: _published(one, "a", b"three", b"two"))
        wait_until(lambda: bool(told) and _latest(two).get("a") == b"three")


@pytest.mark.long
def test_a_server_that_hangs_is_noticed_within_five_seconds_and_one_that_dies_makes_no_noise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Hanging, it accepts connections and answers nothing. Decisions go on, and then everything arrives."""
    base, port = tmp_path / "made", free_port()
    roster = create_federation(base, terms(), {"org1": None}, hosts=["127.0.0.1"], port=port)
    place = MemberFolder.read(base / "org1")
    server = NatsServer.of(base / "hub" / "nats-server.conf", port).start()
    with caplog.at_level("INFO", logger="asyncio"):
        server.make_bucket_in(base / "hub")
        member = place.member(roster.terms.agent("org1", noise=SimulatedNoise(1)))
        released(member)
        stop = member.watch(every=0.5)
        try:
            assert server.process is not None
            took = []
            while not took or (min(took) > 5.0 and len(took) < 3):  # other processes may have the cores
                wait_until(
                    lambda: member.signs.ours is not None and member.away is None and not member.waiting
                )
                server.process.send_signal(signal.SIGSTOP)
                began = time.monotonic()
                wait_until(lambda: member.away is not None)
                assert "does not answer" in str(member.away)
                work(member.agent, 20)
                member.agent.release()
                took.append(time.monotonic() - began)
                server.process.send_signal(signal.SIGCONT)
            assert min(took) < 5.0, took
            wait_until(lambda: member.away is None and not member.waiting)
            assert member.agent.observed == 5 + 20 * len(took)
            server.kill()
            wait_until(lambda: member.away is not None)
            server.start()
            wait_until(lambda: member.away is None)
        finally:
            stop()
            member.transport.close()
            server.kill()
    assert caplog.messages == []  # asyncio complained whenever a connection with TLS ended


def test_an_answer_that_comes_as_its_call_runs_out_of_time_makes_no_noise() -> None:
    """Python's `wait_for` then forgets that it was cancelled, and the client raises what the answer says."""
    said: list[str] = []

    async def meet() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))

        async def asking() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise OSError("wrong last sequence") from None

        transport = object.__new__(NatsTransport)
        transport._violated = asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(transport._permitted(asking()), 0.01)
        gc.collect()

    asyncio.run(meet())
    assert said == []


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    """The member's has expired, and the hub does not let it in; nothing but the file is replaced."""
    base, port = tmp_path / "made", free_port()
    roster = create_federation(base, terms(), {"org1": None}, hosts=["127.0.0.1"], port=port, days=0)
    renew_certificates(base, only=["hub"])
    server = NatsServer.of(base / "hub" / "nats-server.conf", port).start()
    server.make_bucket_in(base / "hub")
    key = (base / "org1" / "tls.key").read_bytes()
    try:
        with _closing(identified((base, f"tls://127.0.0.1:{port}", roster), "org1", deadline=0.3)) as end:
            assert "can't be reached" in _why(end)
            wait_until(lambda: "certificate has expired" in (base / "hub" / "log").read_text())
            renew_certificates(base, only=["org1"])
            wait_until(lambda: _why(end) == "")
            wait_until(lambda: _published(end, "org1", b"one", None))
    finally:
        server.kill()
    assert (base / "org1" / "tls.key").read_bytes() == key


def _expired(base: Path, _: pytest.MonkeyPatch) -> None:
    renew_certificates(base, only=["hub"], days=0)


def _of_another_authority(base: Path, _: pytest.MonkeyPatch) -> None:
    create_federation(base.parent / "other", terms(), {"org1": None}, hosts=["127.0.0.1"])
    for file in ("hub.crt", "hub.key"):
        shutil.copy(base.parent / "other" / "hub" / file, base / "hub" / file)


def _from_tomorrow_on(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As members see the hub's certificate whose clocks are a day behind."""

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(days=1)

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Tomorrow)
        renew_certificates(base, only=["hub"])


@pytest.mark.long
@pytest.mark.parametrize("spoil", [_expired, _of_another_authority, _from_tomorrow_on])
def test_a_hub_whose_certificate_does_not_verify_until_it_is_replaced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    """A member that runs and one that starts both say why, and then connect. Commands answer meanwhile."""
    base, port = tmp_path / "made", free_port()
    roster = create_federation(base, terms(), dict.fromkeys(("org1", "org2")), hosts=["127.0.0.1"], port=port)
    founded = base, f"tls://127.0.0.1:{port}", roster
    server = NatsServer.of(base / "hub" / "nats-server.conf", port).start()
    try:
        server.make_bucket_in(base / "hub")
        ends = identified(founded, "org2", deadline=0.5)
        with _closing(identified(founded, "org1", deadline=0.5)) as runs, _closing(ends):
            for end in (runs, ends):
                wait_until(lambda end=end: _why(end) == "")
            wait_until(lambda: _published(runs, "org1", b"one", None))
            server.kill()
            right = {name: (base / "hub" / name).read_bytes() for name in ("hub.crt", "hub.key", "tls.crt")}
            spoil(base, monkeypatch)
            server.start()
            with _closing(identified(founded, "org2", deadline=0.5)) as starts:
                for end in (runs, starts, ends):
                    wait_until(lambda end=end: "certificate verify failed" in _why(end))
                assert not _published(ends, "org2", b"zero", None)
                ends.close()
                assert not ends._thread.is_alive()
                assert not asyncio.all_tasks(ends._loop)
                assert _returned(["federate", "check", str(base / "org1")]) == 1
                assert "certificate verify failed" in capsys.readouterr().out
                assert _returned(["federate", "bucket", str(base / "hub")]) == 2
                assert "certificate verify failed" in capsys.readouterr().err
                server.kill()
                for name, content in right.items():
                    (base / "hub" / name).write_bytes(content)
                server.start()
                wait_until(lambda: _published(runs, "org1", b"two", b"one"))
                wait_until(lambda: _published(starts, "org2", b"one", None))
                for end in (runs, starts):
                    wait_until(lambda end=end: _latest(end) == {"org1": b"two", "org2": b"one"})
    finally:
        server.kill()


def _returned(command: list[str]) -> int | None:
    """The exit code of a command; None if it does not end."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(command)), daemon=True)
    thread.start()
    thread.join(20.0)
    return codes[0] if codes else None


def test_a_server_that_comes_later_than_its_agents(tmp_path: Path) -> None:
    require_nats()
    server = NatsServer(tmp_path)
    end = opened(server.url, "a", deadline=0.3)
    try:
        with pytest.raises(TransportUnavailable, match="can't be reached"):
            end.latest()
        server.start()
        wait_until(lambda: "has no bucket" in _why(end))  # a member can't make it
        server.make_bucket(FEDERATION)
        wait_until(lambda: _published(end, "a", b"one", None))
        assert end.latest() == {"a": b"one"}
    finally:
        end.close()
        server.kill()


def test_a_message_that_was_missed_is_found_by_looking(tmp_path: Path) -> None:
    with nats_server(tmp_path, federation=FEDERATION) as server, ExitStack() as stack:
        one = stack.enter_context(_closing(opened(server.url, "a")))
        two = stack.enter_context(_closing(opened(server.url, "b", poll=0.2)))
        one.publish("a", b"one", replacing=None)
        wait_until(lambda: two.latest() == {"a": b"one"})

        async def deaf() -> None:
            for subscription in list(two._client._subs.values()):
                if subscription.subject.startswith("ffx_news"):
                    await subscription.unsubscribe()

        asyncio.run_coroutine_threadsafe(deaf(), two._loop).result(5)
        one.publish("a", b"two", replacing=b"one")
        wait_until(lambda: two.latest() == {"a": b"two"})


def test_messages_up_to_the_limit(tmp_path: Path) -> None:
    with nats_server(tmp_path, federation=FEDERATION) as server, _closing(opened(server.url, "a")) as end:
        large = b"x" * (2**20 - 2**12)
        end.publish("a", large, replacing=None)
        with _closing(opened(server.url, "b")) as other:
            assert other.latest() == {"a": large}
        with pytest.raises(TransportRefused, match="at most"):
            end.publish("a", large + b"x", replacing=large)


def test_a_stream_that_was_lost_begins_anew(tmp_path: Path) -> None:
    """The hub's disk is gone: revisions begin at 1 again, and what agents send is seen all the same."""
    hub = nats_server(tmp_path, federation=FEDERATION)
    with hub as server, _closing(opened(server.url, "a", deadline=2.0, poll=0.3)) as end:
        end.publish("a", b"1", replacing=None)
        for number in range(2, 6):
            end.publish("a", b"%d" % number, replacing=b"%d" % (number - 1))
        server.kill()
        shutil.rmtree(tmp_path / "store")
        server.start()
        wait_until(lambda: "has no bucket" in _why(end))
        server.make_bucket(FEDERATION)
        wait_until(lambda: _published(end, "a", b"5", None))
        assert _latest(end) == {"a": b"5"}
        with _closing(opened(server.url, "b", deadline=2.0)) as other:
            wait_until(lambda: _published(other, "b", b"one", None))
            wait_until(lambda: _latest(end) == _latest(other) == {"a": b"5", "b": b"one"})


# --- what a member could do to the others ------------------------------------------------------------------


def test_nobody_can_remove_what_others_have_sent(tmp_path: Path) -> None:
    with nats_server(tmp_path, federation=FEDERATION) as server, _closing(opened(server.url, "a")) as end:
        end.publish("a", b"one", replacing=None)

        async def attack() -> list[str]:
            client = await nats.connect(server.url)
            js, stream = client.jetstream(), stream_of_bucket(FEDERATION)
            refused = []
            attempts = (
                lambda: js.publish(subject_of(FEDERATION, "b"), b"x", headers={"Nats-Rollup": "all"}),
                lambda: js.purge_stream(stream),
                lambda: js.delete_msg(stream, 1),
            )
            for attempt in attempts:
                try:
                    await attempt()
                except nats.errors.Error as error:
                    refused.append(type(error).__name__)
            await client.close()
            return refused

        assert len(raw(attack())) == 3  # type: ignore[arg-type]
        assert end.latest() == {"a": b"one"}


def test_a_bucket_that_could_lose_messages_is_refused(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:

        async def prepare() -> None:
            client = await nats.connect(server.url)
            await client.jetstream().create_key_value(bucket=f"ffx_{FEDERATION}", ttl=60)
            await client.close()

        raw(prepare())
        with (
            _closing(opened(server.url, "a", deadline=0.1)) as end,
            pytest.raises(TransportRefused, match=r"max_age must be 0, got 60.*federate bucket"),
        ):
            wait_until(lambda: "not connected yet" not in _why(end))
            end.latest()


# --- TLS and permissions, as `federate init` makes them ----------------------------------------------------


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, Roster]]:
    require_nats()
    base, port = tmp_path_factory.mktemp("federation") / "made", free_port()
    roster = create_federation(base, terms(), {"org1": None, "org2": None}, hosts=["127.0.0.1"], port=port)
    server = NatsServer.of(base / "hub" / "nats-server.conf", port)
    try:
        server.start().make_bucket_in(base / "hub")
        yield base, f"tls://127.0.0.1:{port}", roster
    finally:
        server.kill()


def identified(
    founded: tuple[Path, str, Roster], agent: str, *, as_: str | None = None, deadline: float = 3.0
) -> NatsTransport:
    base, url, roster = founded
    folder = base / agent
    return NatsTransport(
        url, federation=roster.federation, agent=as_ or agent, tls=tls_of(folder), deadline=deadline
    )


def tls_of(folder: Path, *, trusting: Path | None = None) -> Callable[[], ssl.SSLContext]:
    files = {"certificate": folder / "tls.crt", "key": folder / "tls.key"}
    return partial(
        tls_context, ca=str((trusting or folder) / "authority.crt"), **{k: str(v) for k, v in files.items()}
    )


def test_members_with_their_certificates_learn_from_each_other(founded: tuple[Path, str, Roster]) -> None:
    base, _, roster = founded
    keys = {name: SigningKey.read(base / name / "agent.key") for name in roster.members}
    here = World(roster, SigningKey.read(base / "convener" / "federation.key"), keys, None)  # type: ignore[arg-type]
    with ExitStack() as stack:
        members = {}
        for name in roster.members:
            here.transport = stack.enter_context(_closing(identified(founded, name)))
            members[name] = here.member(name)
        for number in range(3):
            for member in members.values():
                released(member, seed=number)
        for name, member in members.items():
            other = "org2" if name == "org1" else "org1"
            wait_until(lambda m=member, o=other: bool(m.receive()) or m.agent.held.get(o) is not None)
            wait_until(lambda m=member, o=other: m.exchange() and m.agent.held[o].number == 3)
            assert not member.refusals


def test_members_go_on_while_their_hub_is_killed(tmp_path: Path) -> None:
    """kill -9 of the hub in the middle of a run: every decision is made, and in the end everybody has all."""
    here = world()
    with nats_server(tmp_path, federation=here.roster.federation) as server, ExitStack() as stack:
        members = []
        for name in here.keys:
            end = NatsTransport(server.url, federation=here.roster.federation, agent=name, deadline=0.1)
            here.transport = stack.enter_context(_closing(end))
            members.append(here.member(name))
        stops = [member.watch(every=0.2) for member in members]
        for number in range(9):
            if number == 3:
                server.kill()
            if number == 6:
                server.start()
            for index, member in enumerate(members):
                work(member.agent, 3, seed=10 * number + index)
                member.send(member.agent.release())
        everybody = [[9, 9]] * 3
        wait_until(lambda: [[p.release for p in m.peers.values()] for m in members] == everybody, seconds=40)
        for stop in stops:
            stop()
        for member in members:
            assert member.agent.observed == 27
            assert {peer.records for peer in member.peers.values()} == {27}
            assert len(member.peers) == 2
            assert not member.refusals


def test_a_hub_that_is_lost_while_a_member_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nats-py then writes to a connection that was closed twice, at which asyncio's TLS fails."""
    require_nats()
    base, port = tmp_path / "federation", free_port()
    roster = create_federation(base, terms(), {"org1": None, "org2": None}, hosts=["127.0.0.1"], port=port)
    hub = NatsServer.of(base / "hub" / "nats-server.conf", port)
    require, lost = client.Stream.require, threading.Event()

    async def after_a_loss(stream: client.Stream) -> None:
        if not lost.is_set():
            hub.kill()
            while stream._ask.__self__._client.is_connected:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            lost.set()
        await require(stream)

    monkeypatch.setattr(client.Stream, "require", after_a_loss)
    try:
        hub.start().make_bucket_in(base / "hub")
        with _closing(identified((base, f"tls://127.0.0.1:{port}", roster), "org1", deadline=1.0)) as end:
            assert lost.wait(10)
            wait_until(lambda: end._client is None)  # it was given up
            hub.start()
            wait_until(lambda: _published(end, "org1", b"one", None))
    finally:
        hub.kill()


def test_a_member_can_t_write_under_anothers_name(founded: tuple[Path, str, Roster]) -> None:
    with _closing(identified(founded, "org1")) as end:
        end.latest()
        began = time.monotonic()
        with pytest.raises(TransportRefused, match=r"denies agent 'org1'.*[Pp]ermissions [Vv]iolation"):
            end.publish("org2", b"mine", replacing=end.latest().get("org2"))
        assert time.monotonic() - began < 2.5  # told, not only timed out
        end.latest()  # and it goes on


def test_who_comes_under_anothers_name_hears_nothing(founded: tuple[Path, str, Roster]) -> None:
    with (
        _closing(identified(founded, "org1", as_="org2", deadline=0.1)) as end,  # org1's certificate
        pytest.raises(TransportRefused, match=r"[Pp]ermissions [Vv]iolation"),
    ):
        wait_until(lambda: "ermissions" in _why(end))
        end.latest()


def test_a_client_without_a_certificate_is_refused(founded: tuple[Path, str, Roster]) -> None:
    base, url, roster = founded
    bare = ssl.create_default_context(cafile=str(base / "hub" / "authority.crt"))
    with (
        _closing(
            NatsTransport(url, federation=roster.federation, agent="org1", tls=lambda: bare, deadline=0.1)
        ) as end,
        pytest.raises(TransportUnavailable),
    ):
        wait_until(lambda: "client didn't provide a certificate" in (base / "hub" / "log").read_text())
        end.latest()


def test_who_was_taken_off_the_hub_does_not_knock_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_PAUSE", 0.01)  # of whoever may come again
    base, port = tmp_path / "made", free_port()
    roster = create_federation(base, terms(), dict.fromkeys(("org1", "org2")), hosts=["127.0.0.1"], port=port)
    server = NatsServer.of(base / "hub" / "nats-server.conf", port).start()
    server.make_bucket_in(base / "hub")
    try:
        with _closing(identified((base, f"tls://127.0.0.1:{port}", roster), "org2", deadline=1.0)) as end:
            assert end.latest() == {}
            amend_federation(base, remove=["org2"])
            assert server.process is not None
            server.process.send_signal(signal.SIGHUP)  # nats-server --signal reload
            wait_until(lambda: "Authorization Violation" in _why(end))
            time.sleep(20 * client._PAUSE)
            assert (base / "hub" / "log").read_text().count("authentication error") <= 2
    finally:
        server.kill()


def _why(end: NatsTransport) -> str:
    try:
        end.latest()
    except (TransportUnavailable, TransportRefused) as error:
        return str(error)
    return ""


def test_a_certificate_of_another_authority_is_refused(
    founded: tuple[Path, str, Roster], tmp_path: Path
) -> None:
    base, url, roster = founded
    create_federation(tmp_path / "other", terms(), {"org1": None})
    context = tls_of(tmp_path / "other" / "org1", trusting=base / "hub")
    with (
        _closing(
            NatsTransport(url, federation=roster.federation, agent="org1", tls=context, deadline=0.1)
        ) as end,
        pytest.raises(TransportUnavailable),
    ):
        wait_until(lambda: "signed by unknown authority" in (base / "hub" / "log").read_text())
        end.latest()


def test_a_hub_that_is_not_the_federations_is_not_spoken_to(
    founded: tuple[Path, str, Roster], tmp_path: Path
) -> None:
    _, url, roster = founded
    folder = tmp_path / "other" / "org1"
    create_federation(tmp_path / "other", terms(), {"org1": None})
    context = tls_of(folder)
    with (
        _closing(
            NatsTransport(url, federation=roster.federation, agent="org1", tls=context, deadline=0.1)
        ) as end,
        pytest.raises(TransportUnavailable, match="certificate verify failed"),
    ):
        wait_until(lambda: "not connected yet" not in _why(end))
        end.latest()


def test_one_of_three_servers_is_killed(one_of_three: Future[None]) -> None:
    one_of_three.result()


# --- helpers -----------------------------------------------------------------------------------------------


class _closing:  # noqa: N801 (as contextlib's, but typed)
    def __init__(self, transport: NatsTransport) -> None:
        self.transport = transport

    def __enter__(self) -> NatsTransport:
        return self.transport

    def __exit__(self, *_: object) -> None:
        self.transport.close()


def _published(end: NatsTransport, agent: str, message: bytes, before: bytes | None) -> bool:
    try:
        end.publish(agent, message, replacing=before)
    except (TransportUnavailable, TransportRefused, Conflict):
        return False
    return True


def _latest(end: NatsTransport) -> dict[str, bytes]:
    try:
        return end.latest()
    except TransportUnavailable:
        return {}
