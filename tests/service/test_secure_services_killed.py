"""Services with secure aggregation over NATS with TLS, under load: they and their hub are killed at random.

Each total that a member has learnt from is the sum of all members' rows, exactly. No acknowledged reward is
missing in the rows. A member that is away stops totals and not decisions, and the others say who it is.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from test_killed_service import Told, load

from fedfairx.agent.agent import Agent
from fedfairx.agent.exchange import TOTAL
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import create_federation
from fedfairx.privacy import Release
from fedfairx.privacy.release import total_of
from fedfairx.storage.journal import Event
from fedfairx.util.formatting import text_table
from member_service import sync
from nats_server import NatsServer, free_port
from service_helpers import Running, until

pytestmark = [pytest.mark.process, pytest.mark.long]

PATIENCE = 60.0  # seconds that anything may take; the machine may be busy

#: What has just been done, or is about to be, when a service kills itself after its restart.
STEPS = (
    "fedfairx.federation.aggregation.records:Stores.send",
    "fedfairx.federation.aggregation.records:Stores.open",
    "fedfairx.federation.aggregation.records:Stores.keep_total",
    "before:fedfairx.federation.aggregation.records:Stores.keep_total",
    "before:fedfairx.agent.agent:Agent.absorb",
    "fedfairx.federation.transport.nats.client:NatsTransport.publish",
)


class World:
    """Services of a federation, their hub, and a customer of each service."""

    def __init__(self, base: Path, count: int, *, seed: int, every: int, pause: float) -> None:
        self.base, self.every, self.pause = base, every, pause
        self.random, self.counts = random.Random(seed), Counter[str]()
        self.names = [f"org{number:02d}" for number in range(1, count + 1)]
        rounds = Rounds(begin=int(time.time()), first=every, ratio=1, count=1_000)
        terms = Terms(
            dimension=3, agents=count, horizon=5_000, epsilon=2.0, aggregation="secure", rounds=rounds
        )
        port = free_port()
        self.roster = create_federation(base, terms, dict.fromkeys(self.names), port=port, confirm=True)
        self.hub = NatsServer.of(base / "hub" / "nats-server.conf", port)
        self.services = {name: Running.member(base / name, start=False) for name in self.names}
        self.told = {name: Told() for name in self.names}
        self.loads: dict[str, tuple[threading.Thread, threading.Event]] = {}

    def start_hub(self, *, emptied: bool = False) -> None:
        if emptied:
            shutil.rmtree(self.base / "hub" / "jetstream")
        self.hub.start()
        if emptied or not self.loads:
            self.hub.make_bucket_in(self.base / "hub")

    def start(self, name: str, *, die: str = "") -> None:
        """Start a service and its customer."""
        self.services[name].start(die=die)
        stop, seed = threading.Event(), self.random.getrandbits(32)
        arguments = (self.services[name].url, self.told[name], stop, seed)
        thread = threading.Thread(target=load, args=arguments, kwargs={"pause": self.pause})
        thread.start()
        self.loads[name] = thread, stop

    def kill(self, name: str) -> None:
        """kill -9; customers notice."""
        self.services[name].kill()
        self.loads.pop(name)[0].join()

    def close(self) -> None:
        for thread, stop in self.loads.values():
            stop.set()
            thread.join()
        for running in self.services.values():
            if hasattr(running, "url") and not running.gone():
                running.stop()
        self.hub.kill()

    # --- what services say ---------------------------------------------------------------------------

    @property
    def running(self) -> list[str]:
        return [*self.loads]

    def sync(self, name: str) -> dict[str, Any]:
        with httpx.Client(base_url=self.services[name].url, timeout=PATIENCE, verify=False) as http:
            return dict(sync(http))

    def page(self, name: str) -> str:
        with httpx.Client(base_url=self.services[name].url, timeout=PATIENCE, verify=False) as http:
            return http.get("/federation").text

    def opened(self, name: str) -> int:
        return int(self.sync(name)["aggregation"]["opened"])

    @property
    def due(self) -> int:
        assert self.roster.terms.rounds is not None
        return self.roster.terms.rounds.number(time.time())

    def await_total(self, after: int) -> None:
        """Wait until all have a total of a round after this one."""
        for name in self.names:
            until(lambda name=name: self.opened(name) > after, seconds=PATIENCE)  # type: ignore[misc]

    def await_decisions(self) -> None:
        """All customers of running services get decisions."""
        before = {name: len(self.told[name].decisions) for name in self.running}
        for name, count in before.items():
            until(lambda name=name, count=count: len(self.told[name].decisions) > count, seconds=PATIENCE)  # type: ignore[misc]

    # --- faults --------------------------------------------------------------------------------------

    def fault(self, kind: str) -> None:
        """One of a kind, at a random moment: of a round, or just after its time."""
        self.counts[kind] += 1
        if self.random.random() < 0.5:
            time.sleep(self.every - time.time() % self.every)
            time.sleep(0.3 * self.random.random())
        else:
            time.sleep(self.every * self.random.random())
        openers = [*self.roster.openers]
        others = [name for name in self.names if name not in openers]
        match kind:
            case "member":
                self.away(self.random.sample(others, 1))
            case "opener":
                self.away(self.random.sample(openers, 1))
            case "several":
                self.away(self.random.sample(self.names, max(2, len(self.names) // 3)))
            case "member back at once":
                self.again(self.random.choice(others))
            case "opener back at once":
                self.again(self.random.choice(openers))
            case "opener at a step":
                self.dies(self.random.choice(openers), self.random.choice(STEPS))
            case "hub":
                self.without_hub()
            case "hub emptied":
                self.without_hub(emptied=True)
            case "hub restored":
                self.restore_hub()
            case "hub and opener":
                victim = self.random.choice(openers)
                self.hub.kill()
                self.kill(victim)
                self.start(victim)
                self.start_hub()

    def again(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def dies(self, name: str, step: str) -> None:
        """It is killed, comes back, kills itself at a step, and comes back again."""
        self.kill(name)
        with suppress(AssertionError):  # it may be gone before it listens
            self.start(name, die=step)
        until(self.services[name].gone, seconds=PATIENCE)
        if name in self.loads:
            self.loads.pop(name)[0].join()
        self.start(name)

    def away(self, names: list[str]) -> None:
        """Members are away: there are no totals, decisions go on, and the others say who is waited for."""
        for name in names:
            self.kill(name)
        witness = self.random.choice(self.running)
        wanted = dict.fromkeys(sorted(names), "row")
        until(lambda: self.sync(witness)["aggregation"]["waits_for"] == wanted, seconds=PATIENCE)
        due = self.due
        text = f"waits for {', '.join(f'{name} (row)' for name in sorted(names))}."
        until(lambda: text in self.page(witness), seconds=PATIENCE)
        self.await_decisions()
        until(lambda: self.due > due, seconds=PATIENCE)
        for name in self.running:
            now = self.sync(name)
            assert now["aggregation"]["opened"] <= min(now["peers"][each]["release"] for each in names) < due
        for name in names:
            self.start(name)

    def without_hub(self, *, emptied: bool = False) -> None:
        """The hub is away: members say so, and decisions go on."""
        self.hub.kill()
        for name in self.running:
            until(lambda name=name: self.sync(name)["trouble"] is not None, seconds=PATIENCE)  # type: ignore[misc]
        self.await_decisions()
        self.start_hub(emptied=emptied)

    def restore_hub(self) -> None:
        """The hub is put back from a copy that lacks a round."""
        store, copy = self.base / "hub" / "jetstream", self.base / "copy"
        self.hub.kill()
        shutil.copytree(store, copy)
        self.start_hub()
        self.await_total(self.due)
        self.hub.kill()
        shutil.rmtree(store)
        copy.rename(store)
        self.start_hub()

    # --- what is in the databases ----------------------------------------------------------------------

    def check(self, last: int) -> int:
        """Compare all totals with the rows, and the rows with the rewards; return how many totals there are.

        last: a round that ended after the last reward.
        """
        assert self.roster.terms.share is not None
        step, totals, records = self.roster.terms.share.step, dict[int, Release](), 0
        with ExitStack() as stack:
            opened = {name: Agent.open(self.base / name / "data" / "agent.sqlite") for name in self.names}
            agents = {name: stack.enter_context(agent) for name, agent in opened.items()}
            for name, agent in agents.items():
                agent.verify()
                kept = {row.id: row.reward for row in agent.journal.decisions(status="rewarded")}
                assert self.told[name].rewards.items() <= kept.items()
                assert agent.past_release(last).count == agent.observed == len(kept)
                records += len(kept)
                for total in totals_of(agent):
                    assert totals.setdefault(total.number, total) == total, name
            for number, total in totals.items():
                assert total == total_of([agent.past_release(number) for agent in agents.values()])
                assert np.array_equal(np.rint(total.packed / step) * step, total.packed)
        assert totals[last].count == records
        return len(totals)


def totals_of(agent: Agent) -> list[Release]:
    """The totals that an agent has learnt from, from its log."""
    events = [step for step in agent.journal.steps() if isinstance(step, Event) and step.kind == "absorb"]
    return [Release.from_bytes(bytes.fromhex(json.loads(event.body)[TOTAL])) for event in events]


def survive(base: Path, count: int, faults: list[str], *, seed: int, every: int, pause: float) -> str:
    """Run services through these faults in a random order; return what happened, in a table."""
    here, began = World(base, count, seed=seed, every=every, pause=pause), time.monotonic()
    waits: list[float] = []
    with ExitStack() as stack:
        stack.callback(here.close)
        here.start_hub()
        for name in here.names:
            here.start(name)
        here.await_total(0)
        for kind in here.random.sample(faults, len(faults)):
            here.fault(kind)
            back = time.monotonic()
            here.await_total(here.due - 1)
            waits.append(time.monotonic() - back)
        for thread, stop in here.loads.values():
            stop.set()
            thread.join()
        here.await_total(here.due)
        last = min(here.opened(name) for name in here.names)
        for name in here.names:
            until(lambda name=name: here.sync(name)["trouble"] is None, seconds=PATIENCE)  # type: ignore[misc]
            assert here.sync(name)["refusals"] == {}, name
    checked = here.check(last)
    assert not [text for one in here.told.values() for text in one.wrong]
    rows = [
        ("services, of which openers", f"{count}, {len(here.roster.openers)}"),
        ("seconds, rounds", f"{time.monotonic() - began:.0f}, {last}"),
        *((f"killed: {kind}", times) for kind, times in sorted(here.counts.items())),
        ("decisions acknowledged", sum(len(one.decisions) for one in here.told.values())),
        ("rewards acknowledged, all in the last total", sum(len(one.rewards) for one in here.told.values())),
        ("totals, each the sum of all rows", checked),
        ("longest wait for a total after a return, s", f"{max(waits):.1f}"),
    ]
    return text_table((f"seed {seed}", ""), rows)


def test_killed_services_and_hub_lose_nothing(tmp_path: Path) -> None:
    faults = ["member", "opener back at once", "opener at a step", "hub emptied"]
    print(survive(tmp_path / "federation", 3, faults, seed=1, every=1, pause=0.05))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_services_and_their_hub_are_killed_thirty_times(tmp_path: Path, seed: int) -> None:
    """`pytest -s -m slow` of this file shows the table."""
    kinds = {
        "member": 4,
        "opener": 4,
        "several": 2,
        "member back at once": 5,
        "opener back at once": 5,
        "opener at a step": 4,
        "hub": 2,
        "hub emptied": 1,
        "hub restored": 1,
        "hub and opener": 2,
    }
    faults = [*Counter(kinds).elements()]
    print(survive(tmp_path / "federation", 10, faults, seed=seed, every=3, pause=0.1))
