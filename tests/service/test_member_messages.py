"""What a member's log says when something is wrong that an operator has to mend."""

from __future__ import annotations

import logging
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedfairx.cli.main import main
from fedfairx.federation.setup.create import amend_federation
from fedfairx.federation.transport import SqliteTransport
from fedfairx.federation.transport.protocol import alive_key
from member_service import founded, member_of, sync
from nats_server import NatsServer, free_port
from service_helpers import until

BEHIND = 1000.0  # seconds


def said(caplog: pytest.LogCaptureFixture, name: str, text: str) -> int:
    """How many lines of a member's log have a text."""
    return sum(line.startswith(f"agent {name}: ") and text in line for line in caplog.messages)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[NatsServer]:
    """A running hub, with its bucket."""
    port = free_port()
    founded(tmp_path / "federation", transport="nats", port=port)
    hub = NatsServer.of(tmp_path / "federation" / "hub" / "nats-server.conf", port)
    try:
        hub.start().make_bucket_in(hub.folder)
        yield hub
    finally:
        hub.kill()


@pytest.mark.process
def test_every_log_has_the_remedy_for_a_hub_without_its_bucket(
    hub: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    base, names = hub.folder.parent, ("org1", "org2")
    with caplog.at_level(logging.INFO), ExitStack() as stack:
        for name in names:
            member = stack.enter_context(member_of(base / name))
            until(lambda member=member: sync(member)["trouble"] is None)
        hub.kill()
        for name in names:
            until(lambda name=name: said(caplog, name, "not in touch"), seconds=20)
        shutil.rmtree(hub.folder / "jetstream")
        hub.start()
        for name in names:
            until(lambda name=name: said(caplog, name, "has no bucket"), seconds=20)
            assert said(caplog, name, "`fedfairx federate bucket`, run by the hub's operator") == 1
        hub.make_bucket_in(hub.folder)
        for name in names:
            until(lambda name=name: said(caplog, name, "in touch with the federation again"), seconds=20)


@pytest.mark.process
def test_a_removed_member_is_told_that_it_may_have_been(
    hub: NatsServer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    base = hub.folder.parent
    with caplog.at_level(logging.INFO), member_of(base / "org1") as one, member_of(base / "org2") as two:
        for member in (one, two):
            until(lambda member=member: sync(member)["trouble"] is None)
        amend_federation(base, remove=["org2"])
        assert hub.process is not None
        hub.process.send_signal(signal.SIGHUP)  # nats-server --signal reload
        # The connection may end before the hub's reason is read. The next attempt is seconds later.
        until(lambda: said(caplog, "org2", "may have been removed from the federation"), seconds=60)
        assert not said(caplog, "org1", "removed")
    capsys.readouterr()
    assert main(["federate", "check", str(base / "org2")]) == 1
    assert "may have been removed from the federation; ask the convener" in capsys.readouterr().out
    shutil.copy(base / "roster.json", base / "org2")  # it gets the roster, too
    assert main(["federate", "check", str(base / "org2")]) == 1
    assert "'org2' is not in the roster (version 2), which has org1: it may" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["ours", "theirs"])
def test_whose_clock_is_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str) -> None:
    base = founded(tmp_path / "federation", names=("org1", "org2", "org3"))
    transport = SqliteTransport(base / "transport.sqlite")
    clocks = dict.fromkeys(("org1", "org2", "org3"), 0.0)
    clocks |= {"org1": -BEHIND} if wrong == "ours" else {"org2": BEHIND}

    def clock(name: str) -> float:
        return time.time() + clocks[name]

    with ExitStack() as stack:
        for name in ("org2", "org3"):
            stack.enter_context(member_of(base / name, clock=lambda name=name: clock(name)))
            until(lambda name=name: alive_key(name) in transport.latest(), seconds=20)
        one = stack.enter_context(member_of(base / "org1", clock=lambda: clock("org1")))
        ours, theirs = "the clock here is more than 5 minutes behind", "messages of org2 are refused (clock)"
        if wrong == "ours":
            until(lambda: said(caplog, "org1", f"{ours} that of org2, org3: set it right"), seconds=20)
            assert ours in sync(one)["trouble"]
            assert not said(caplog, "org1", "(clock)")  # nothing is said of the peers
        else:
            until(lambda: said(caplog, "org1", theirs), seconds=20)
            assert ours not in str(sync(one)["trouble"])
            assert not said(caplog, "org1", ours)
        assert not said(caplog, "org3", ours)
    transport.close()
