"""A hub of three servers, set up as docs/howto/found-a-federation.md says, and killed under traffic."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedfairx.cli.main import main
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import SETTINGS, MemberFolder
from fedfairx.privacy import SimulatedNoise
from member_helpers import NAMES, terms, work
from nats_server import BINARY, NatsServer, free_port, require_nats, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

nats = pytest.importorskip("nats")

HOWTO = Path(__file__).resolve().parents[3] / "docs" / "howto" / "found-a-federation.md"
HOSTS = [f"hub{number}.example.org" for number in (1, 2, 3)]


def block(kind: str) -> str:
    """What the how-to has its reader write."""
    part = HOWTO.read_text().partition("## A hub of three servers")[2]
    (text,) = re.findall(rf"```{kind}\n(.*?)```", part.partition("\n## ")[0], re.DOTALL)
    return textwrap.dedent(text)


class Hub:
    """Three servers on this machine: "localhost" with ports of its own stands for each host of the how-to."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.ports = {host: (free_port(), free_port()) for host in HOSTS}
        first, _ = self.ports[HOSTS[0]]
        names = dict.fromkeys(NAMES)
        create_federation(base, terms(), names, hosts=["localhost", *HOSTS], port=first)
        for name in ("hub", *NAMES):
            file = base / name / SETTINGS
            file.write_text(re.sub("servers = .*\n", self.here(block("toml")), file.read_text()))
        self.servers = [self._server(number, host) for number, host in enumerate(HOSTS, 1)]

    def here(self, text: str) -> str:
        for host, (port, route) in self.ports.items():
            text = text.replace(f"{host}:4222", f"localhost:{port}").replace(
                f"{host}:6222", f"localhost:{route}"
            )
        return text

    def _server(self, number: int, host: str) -> NatsServer:
        folder, (port, route) = self.base / f"machine{number}", self.ports[host]
        shutil.copytree(self.base / "hub", folder)
        config = folder / "nats-server.conf"
        own = self.here(block("text")).replace('"hub1"', f'"hub{number}"')
        own = own.replace("0.0.0.0:6222", f"127.0.0.1:{route}")
        text = re.sub('listen: "0.0.0.0:.*"', f'listen: "127.0.0.1:{port}"', config.read_text())
        config.write_text(text + own)
        return NatsServer.of(config, port)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    require_nats()
    hub = Hub(tmp_path / "federation")
    try:
        for server in hub.servers:
            server.start()
        bucket = ["federate", "bucket", str(hub.base / "hub"), "--replicas", "3"]
        wait_until(lambda: main(bucket) == 0, seconds=60, what="a leader of the three")
        yield hub
    finally:
        for server in hub.servers:
            server.kill()


def test_one_server_is_lost_and_then_two_and_nothing_else(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("hub", "org1"):
        assert main(["federate", "check", str(hub.base / name)]) == 0, capsys.readouterr().out
    with ExitStack() as stack:
        members: list[Member] = []
        for number, name in enumerate(NAMES):
            place = MemberFolder.read(hub.base / name)
            agent = place.roster.terms.agent(name, noise=SimulatedNoise(7, agent=number), seed=number)
            member = place.member(agent)
            assert isinstance(member, Member)
            stack.callback(member.close)
            stack.callback(member.watch(every=0.2))
            members.append(member)

        def traffic(times: int) -> None:
            for _ in range(times):
                for number, member in enumerate(members):
                    work(member.agent, 1, seed=number)
                    member.agent.release()
                    member.wake()

        def everybody_has_all() -> bool:
            made = {each.agent.name: (each.agent.released, each.agent.observed) for each in members}
            return all(
                {name: (peer.release, peer.records) for name, peer in each.peers.items()}
                == {name: numbers for name, numbers in made.items() if name != each.agent.name}
                for each in members
            )

        traffic(3)
        wait_until(everybody_has_all, seconds=60)
        for server in hub.servers:  # each in turn, and so the leader, too
            server.kill()
            traffic(3)
            wait_until(everybody_has_all, seconds=60, what="two of three go on")
            server.start()
            traffic(3)
            wait_until(everybody_has_all, seconds=60)
        for server in hub.servers[:2]:
            server.kill()
        traffic(3)
        wait_until(lambda: all(member.away for member in members), seconds=60)  # one of three is not enough
        traffic(3)
        for server in hub.servers[:2]:
            server.start()
        wait_until(everybody_has_all, seconds=120, what="all three are back")
        wait_until(lambda: not any(member.away or member.waiting for member in members), seconds=60)
        for member in members:
            assert (member.agent.released, member.halted, member.refusals) == (27, None, {})


def test_a_member_can_not_join_as_a_server(hub: Hub) -> None:
    """Its certificate is of the authority that the servers trust."""
    folder = hub.base / "org1"
    own = hub.here(block("text")).replace('"hub1"', '"hub4"').replace("0.0.0.0:6222", "127.0.0.1:-1")
    own = own.replace("hub.crt", "tls.crt").replace("hub.key", "tls.key")
    (folder / "rogue.conf").write_text(f'listen: "127.0.0.1:-1"\n{own}')
    with (folder / "log").open("w") as log:
        rogue = subprocess.Popen([str(BINARY), "-c", "rogue.conf"], cwd=folder, stderr=log)
    try:
        wait_until(lambda: "Authorization Violation" in (folder / "log").read_text())
    finally:
        rogue.kill()
        rogue.wait()
    logs = "".join((server.folder / "log").read_text() for server in hub.servers)
    assert "authentication error" in logs
    assert "hub4" not in logs
