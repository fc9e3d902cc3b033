"""The bucket of a federation at a real hub: who makes it, and which settings are found to be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedfairx.cli.main import main
from fedfairx.errors import TransportRefused, TransportUnavailable
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.setup.verify import inspect
from fedfairx.federation.transport.nats_subjects import stream_of_bucket
from member_helpers import terms
from nats_server import NatsServer, free_port, nats_server, require_nats

pytestmark = pytest.mark.process

nats = pytest.importorskip("nats")

from fedfairx.federation.transport.nats import check_bucket, make_bucket  # noqa: E402
from fedfairx.federation.transport.nats.bucket import new_bucket  # noqa: E402

FEDERATION = "0123456789abcdef0123456789abcdef"
STREAM = stream_of_bucket(FEDERATION)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("hub")) as started:
        yield started


def stream(server: NatsServer, config: Any) -> None:
    """Make a stream in place of the one that is there, as somebody with all permissions could."""

    async def work() -> None:
        client = await nats.connect(server.url)
        js = client.jetstream()
        with suppress(nats.js.errors.NotFoundError):
            await js.delete_stream(STREAM)
        if config is not None:
            await js.add_stream(config)
        await client.close()

    asyncio.run(work())


def check(server: NatsServer, *, replicas: int = 1) -> None:
    check_bucket(server.url, federation=FEDERATION, agent="org1", replicas=replicas)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"max_msgs_per_subject": 5}, "history must be 1, got 5"),
        ({"max_age": 3600.0}, "max_age must be 0, got 3600"),
        ({"max_bytes": 10**6}, "max_bytes must be -1, got 1000000"),
        ({"max_msgs": 9}, "max_msgs must be -1, got 9"),
        ({"max_msg_size": 1000}, "max_msg_size must be 1048576, got 1000"),
        ({"storage": "memory"}, "storage must be file, got memory"),
        ({"discard": "old"}, "discard must be new, got old"),
        ({"deny_delete": False}, "deny_delete must be True, got False"),
        ({"deny_purge": False}, "deny_purge must be True, got False"),
        ({"allow_rollup_hdrs": True, "deny_purge": False}, "allow_rollup_hdrs must be False, got True"),
        ({"republish": None}, "republish must be True, got False"),
        ({"subjects": [f"$KV.ffx_{FEDERATION}.>", "more"]}, "subjects must be"),
    ],
)
def test_every_wrong_setting_is_found_and_named(
    server: NatsServer, change: dict[str, Any], text: str
) -> None:
    stream(server, replace(new_bucket(FEDERATION, replicas=1), **change))
    with pytest.raises(TransportRefused, match=text) as found:
        check(server)
    assert str(found.value).count(" must be ") == len(change)
    assert "`fedfairx federate bucket`" in str(found.value)


def test_making_it_again_corrects_what_can_be_corrected(server: NatsServer) -> None:
    stream(server, None)
    with pytest.raises(TransportRefused, match=f"has no bucket {STREAM}"):
        check(server)
    assert make_bucket(server.url, federation=FEDERATION)
    assert not make_bucket(server.url, federation=FEDERATION)
    check(server)
    with pytest.raises(TransportRefused, match="replicas must be 3, got 1"):
        check(server, replicas=3)
    stream(server, replace(new_bucket(FEDERATION, replicas=1), max_age=60.0, max_msgs_per_subject=9))
    assert make_bucket(server.url, federation=FEDERATION)
    check(server)
    stream(server, replace(new_bucket(FEDERATION, replicas=1), storage="memory"))
    with pytest.raises(TransportRefused, match=r"the hub refuses this: .*storage"):
        make_bucket(server.url, federation=FEDERATION)


def test_only_the_hubs_operator_makes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the permissions of `federate init`, over TLS."""
    require_nats()
    base, port = tmp_path / "federation", free_port()
    roster = create_federation(base, terms(), dict.fromkeys(("org1", "org2")), hosts=["127.0.0.1"], port=port)
    assert main(["federate", "bucket", str(base / "hub")]) == 2
    assert "can't be reached" in capsys.readouterr().err
    assert main(["federate", "bucket", str(base / "org1")]) == 2
    assert "folder must be the hub's folder" in capsys.readouterr().err
    hub = NatsServer.of(base / "hub" / "nats-server.conf", port).start()
    try:
        one = MemberFolder.read(base / "org1")
        assert "has no bucket" in wrong(base / "org1")
        with pytest.raises(TransportRefused, match=r"denies 'hub' permission|can't be reached"):
            make_bucket(one.servers, federation=roster.federation, tls=one.tls, deadline=0.3)
        with pytest.raises((TransportRefused, TransportUnavailable)):
            as_member(one)
        assert "has no bucket" in wrong(base / "org1")
        assert main(["federate", "bucket", str(base / "hub")]) == 0
        assert main(["federate", "bucket", str(base / "hub")]) == 0
        assert "was there already" in capsys.readouterr().out
        for place in ("org1", "hub"):
            assert main(["federate", "check", str(base / place)]) == 0
            assert "its bucket loses no messages" in capsys.readouterr().out
        with pytest.raises((TransportRefused, TransportUnavailable)):
            as_member(one)  # nor can it change the settings
        assert wrong(base / "org1") == ""
    finally:
        hub.kill()
    assert main(["federate", "check", str(base / "org1")]) == 1
    assert "the hub can't be reached now" in capsys.readouterr().out


def as_member(place: MemberFolder) -> None:
    """A member that asks for a bucket with settings of its own, under its own name."""
    from fedfairx.federation.transport.nats import bucket

    async def change(js: Any) -> None:
        config = replace(new_bucket(place.roster.federation, replicas=1), max_age=60.0)
        try:
            await js.add_stream(config)
        except nats.errors.Error:
            await js.update_stream(config)

    bucket._ask(place.servers, place.name, change, tls=place.tls, deadline=0.3)


def wrong(folder: Path) -> str:
    return "; ".join(each.trouble for each in inspect(folder) if not each.fine)
