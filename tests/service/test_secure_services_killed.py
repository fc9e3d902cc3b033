"""Services with secure aggregation over NATS with TLS, under load, with faults at random.

Services and their hub are killed and stopped, connections are cut, and members join and leave meanwhile.
Each total that a member has learnt from is the sum of all members' rows, exactly. No acknowledged reward is
missing from its owner, and each is in rows of one epoch. A member that is away stops totals and not
decisions, and the openers say who it is.
"""

from __future__ import annotations

import random
import re
import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from test_killed_service import Told, load

from fedfairx.agent.agent import Agent
from fedfairx.agent.exchange import TOTAL
from fedfairx.core.statistics import pack, packed_size
from fedfairx.federation.aggregation.records import Record, record_in
from fedfairx.federation.aggregation.shares import as_integers, from_bytes
from fedfairx.federation.exchange.secure_member import record_store
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import amend_federation, create_federation
from fedfairx.federation.setup.member_folder import SETTINGS, MemberFolder
from fedfairx.privacy import Release
from fedfairx.privacy.release import total_of
from fedfairx.steps import Absorbed, EpochBegun
from fedfairx.util.formatting import text_table
from member_service import sync
from nats_server import NatsServer, Relay, free_port
from service_helpers import Running, until

pytestmark = [pytest.mark.process, pytest.mark.long]

PATIENCE = 60.0  # seconds that anything may take; the machine may be busy

#: What has just been done, or is about to be, when a service kills itself after its restart.
STEPS = (
    "fedfairx.federation.exchange.secure_member:SecureMember._make_row",
    "fedfairx.federation.aggregation.records:SqlStore.write",
    "before:fedfairx.federation.aggregation.records:FileStore.write",
    "fedfairx.federation.aggregation.records:FileStore.write",
    "before:fedfairx.agent.agent:Agent.absorb",
    "fedfairx.federation.transport.nats.client:NatsTransport.publish",
)
#: The same for a service that comes back while the roster changes.
STEPS_OF_CHANGE = (
    "before:fedfairx.agent.agent:Agent.begin_epoch",
    "fedfairx.agent.agent:Agent.begin_epoch",
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
        self.services: dict[str, Running] = {}
        self.relays: dict[str, Relay] = {}
        self.told: dict[str, Told] = {}
        self.loads: dict[str, tuple[threading.Thread, threading.Event]] = {}
        for name in self.names:
            self.prepare(name)

    def prepare(self, name: str) -> None:
        """Give a member its way to the hub, which can be cut, and its service, which does not run yet."""
        relay = self.relays[name] = Relay(self.hub.port)
        file = self.base / name / SETTINGS
        servers = f'servers = ["tls://127.0.0.1:{relay.port}"]'
        file.write_text(re.sub("^servers = .*$", servers, file.read_text(), flags=re.MULTILINE))
        self.services[name], self.told[name] = Running.member(self.base / name, start=False), Told()

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
                running.resume()
                running.stop()
            running.close()
        for relay in self.relays.values():
            relay.close()
        self.hub.resume()
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
        """The last round of the roster's epoch whose total a member knows; 0 in another epoch."""
        now = self.sync(name)["aggregation"]
        return int(now["opened"]) if now["epoch"] == self.roster.version else 0

    @property
    def due(self) -> int:
        assert self.roster.rounds is not None
        return self.roster.rounds.number(time.time())

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
            case "stopped":
                self.stop_for_a_while(self.services[self.random.choice(self.names)], 2.0)
            case "hub stopped":
                self.stop_for_a_while(self.hub, 2.0 * self.every)
            case "cut off":
                self.cut_off(self.random.sample(self.names, max(1, len(self.names) // 3)))
            case "joins" | "leaves" | "other openers":
                self.change(kind)
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
        self.dies_again(name, step)

    def dies_again(self, name: str, step: str) -> None:
        service = self.services[name]
        with suppress(AssertionError):  # it may be gone before it listens
            self.start(name, die=step)
        until(service.gone, seconds=PATIENCE)
        if name in self.loads:
            self.loads.pop(name)[0].join()
        self.start(name)

    def stop_for_a_while(self, process: Running | NatsServer, longest: float) -> None:
        """It stands still, and goes on as if nothing had been."""
        process.pause()
        time.sleep(longest * self.random.random())
        process.resume()

    def cut_off(self, names: list[str]) -> None:
        """Members lose their connections, and get no new ones for a while; decisions go on."""
        for name in names:
            self.relays[name].cut()
        for name in names:
            until(lambda name=name: self.sync(name)["trouble"] is not None, seconds=PATIENCE)  # type: ignore[misc]
        self.await_decisions()
        for name in names:
            self.relays[name].restore()

    def change(self, kind: str) -> None:
        """The roster changes, while one member is killed at a step of that.

        A member that leaves is cut off before the others have begun the epoch without it, or after that.
        """
        names, count = [*self.names], len(self.roster.openers)
        full = len(names) > self.roster.terms.agents
        leaves = [self.random.choice(names)] if kind == "leaves" else []
        joins = [f"org{len(self.services) + 1:02d}"] if kind == "joins" or (leaves and not full) else []
        staying = [name for name in names if name not in leaves]
        openers = self.random.sample(staying, count) if kind == "other openers" else []
        victim = self.random.choice(staying)
        self.kill(victim)
        changed = {"add": dict.fromkeys(joins), "remove": leaves, "openers": openers, "confirm": True}
        self.roster = amend_federation(self.base, **changed)  # type: ignore[arg-type]
        self.names = [*self.roster.members]
        late = bool(leaves) and not joins and self.random.random() < 0.5
        if not late:
            self.hub.reload()
        for name in joins:
            self.prepare(name)
            self.start(name)
        self.dies_again(victim, self.random.choice(STEPS_OF_CHANGE))
        self.await_total(0)
        if late:
            self.hub.reload()
        for name in leaves:
            self.kill(name)

    def away(self, names: list[str]) -> None:
        """Members are away: there are no totals, decisions go on, and openers say who is waited for."""
        for name in names:
            self.kill(name)
        last, wanted = self.due, dict.fromkeys(sorted(names), "row")  # no row of theirs is of a later round
        text = f"waits for {', '.join(f'{name} (row)' for name in sorted(names))}."
        openers = [name for name in self.running if name in self.roster.openers]
        if openers:  # they get the rows
            witness = self.random.choice(openers)
            until(lambda: self.sync(witness)["aggregation"]["waits_for"] == wanted, seconds=PATIENCE)
            until(lambda: text in self.page(witness), seconds=PATIENCE)
        self.await_decisions()
        until(lambda: self.due > last, seconds=PATIENCE)
        for name in self.running:
            now = self.sync(name)
            assert (
                now["aggregation"]["opened"] <= min(now["peers"][each]["release"] for each in names) <= last
            )
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

    def check(self, last: int) -> Checked:
        """Compare all totals with the rows, and the rows with the rewards.

        last: a round of the last epoch that ended after the last reward.
        """
        assert self.roster.terms.share is not None
        step = self.roster.terms.share.step
        books = [Book(self.base / name, self.told[name]) for name in self.services]
        epochs = {digest for book in books for digest in book.runs}
        rows = {each: [book.rows(each) for book in books if each in book.runs] for each in epochs}
        totals: dict[tuple[bytes, int], Release] = {}
        for total, digest in (one for book in books for one in book.totals):
            assert totals.setdefault((digest, total.number), total) == total
        for (digest, number), total in totals.items():
            assert total == total_of([each[number] for each in rows[digest]])
            assert np.array_equal(np.rint(total.packed / step) * step, total.packed)
        for book in books:
            for past in book.past:  # that it has learnt from, also of epochs that it was not in
                total = totals[past.epoch, past.round]
                assert past.members == len(rows[past.epoch])
                values = [*np.rint(total.packed / step).astype(np.int64), total.count]
                assert values == as_integers(from_bytes(past.values)).tolist()
        ends = {digest: max(number for each, number in totals if each == digest) for digest, _ in totals}
        now = next(book.record.part for book in books if book.folder.name == self.names[0])
        assert now is not None
        assert now.epoch.number == self.roster.version
        assert [*now.epoch.members] == self.names
        assert ends[now.epoch.digest] >= last
        for book in books:
            if book.folder.name in self.names:
                assert book.record.begun[-1] == now.epoch.digest
                assert book.rows(now.epoch.digest)[last].count == book.counts(now.epoch.digest)
        kept = sum(len(book.rewarded) for book in books)
        return Checked(len(totals), len(ends), kept, sum(totals[each].count for each in ends.items()))


class Checked(NamedTuple):
    """totals, epochs: the number of totals, and of epochs with one.

    records, known: the number of rewards of all members, and of those in the last total of an epoch.
    """

    totals: int
    epochs: int
    records: int
    known: int


class Book:
    """What a member's database holds, after its service has ended."""

    def __init__(self, folder: Path, told: Told) -> None:
        self.folder = folder
        with Agent.open(folder / "data" / "agent.sqlite") as agent:
            agent.verify()
            decisions = {row.id: row for row in agent.journal.decisions(status="rewarded")}
            entries = list(agent.journal.entries())
            log = agent.journal.log
            federation = MemberFolder.read(folder).roster.federation
            self.record: Record = record_in(record_store(log, agent.name, federation))
            read = log.database.read
            self._leaves = read("SELECT record, run, leaf FROM ledger_records")
            self._releases = read("SELECT run, number, message FROM ledger_releases")
            positions = read("SELECT run, frozen, total FROM ledger_positions")
        assert self.record.halted == ""
        self.rewarded = {record: row.reward for record, row in decisions.items()}
        assert told.rewards.items() <= self.rewarded.items()
        records = [record for record, _, _ in self._leaves]
        assert sorted(records) == sorted(self.rewarded)  # each in one leaf of one epoch
        for run, frozen, total in positions:  # the last row of each epoch, without its noise
            within = [
                decisions[record] for record, each, leaf in self._leaves if each == run and leaf <= frozen
            ]
            exact = np.zeros(packed_size(4))
            for row in within:
                context = np.asarray(row.contexts[row.action])
                exact += pack(np.outer(context, context), row.reward * context)
            assert np.frombuffer(total, "<f8") == pytest.approx(exact, rel=0, abs=1e-9)
        runs = [1, *(each.step.run for each in entries if isinstance(each.step, EpochBegun))]
        runs = runs[len(runs) - len(self.record.begun) :]  # the first may have served for nothing
        assert {run for run, _, _ in self._releases} <= {*runs}
        self.runs = dict(zip(self.record.begun, runs, strict=True))
        digests, run = {run: digest for digest, run in self.runs.items()}, 1
        self.totals: list[tuple[Release, bytes]] = []  # that it has learnt from, with their epochs
        for step in (each.step for each in entries):
            if isinstance(step, EpochBegun):
                run = step.run
            elif isinstance(step, Absorbed):
                self.totals.append((step.releases[TOTAL], digests[run]))
        part = self.record.part
        assert part is not None
        self.past = [*self.record.past, *([] if part.total is None else [part.total])]

    def rows(self, epoch: bytes) -> dict[int, Release]:
        """Its rows of an epoch, by round; each counts the records that the ledger has in its leaves."""
        held = [(number, message) for run, number, message in self._releases if run == self.runs[epoch]]
        rows = {number: Release.from_bytes(bytes(message)) for number, message in held if message is not None}
        for number, row in rows.items():
            assert row.count == self.counts(epoch, number)
        return rows

    def counts(self, epoch: bytes, number: int | None = None) -> int:
        """How many of its records are in an epoch, by default also in the open leaf."""
        leaves = [leaf for _, run, leaf in self._leaves if run == self.runs[epoch]]
        return sum(number is None or leaf <= number for leaf in leaves)


def survive(base: Path, count: int, faults: list[str], *, seed: int, every: int, pause: float) -> str:
    """Run services through these faults, in this order; return what happened, in a table."""
    here, began = World(base, count, seed=seed, every=every, pause=pause), time.monotonic()
    waits: list[tuple[float, str]] = []
    with ExitStack() as stack:
        stack.callback(here.close)
        here.start_hub()
        for name in here.names:
            here.start(name)
        here.await_total(0)
        for kind in faults:
            here.fault(kind)
            back = time.monotonic()
            here.await_total(here.due - 1)
            waits.append((time.monotonic() - back, kind))
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
    for name, service in here.services.items():
        assert "Traceback" not in service.said, (name, service.said)
    rows = [
        ("services, of which openers", f"{count}, {len(here.roster.openers)}"),
        ("seconds, rounds", f"{time.monotonic() - began:.0f}, {last}"),
        *((f"fault: {kind}", times) for kind, times in sorted(here.counts.items())),
        ("decisions acknowledged", sum(len(one.decisions) for one in here.told.values())),
        ("rewards acknowledged", sum(len(one.rewards) for one in here.told.values())),
        ("rewards kept, of which in totals", f"{checked.records}, {checked.known}"),
        ("totals, each the sum of all rows; of epochs", f"{checked.totals}, {checked.epochs}"),
        ("longest wait for a total after a fault, s", "{:.1f} ({})".format(*max(waits))),
    ]
    return text_table((f"seed {seed}", ""), rows)


def test_services_and_hub_lose_nothing_by_faults(tmp_path: Path) -> None:
    faults = ["opener at a step", "member", "leaves", "cut off", "hub emptied"]
    print(survive(tmp_path / "federation", 3, faults, seed=1, every=1, pause=0.05))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_services_and_their_hub_have_thirty_faults(tmp_path: Path, seed: int) -> None:
    """`pytest -s -m slow` of this file shows the table."""
    kinds = {
        "member": 2,
        "opener": 2,
        "several": 2,
        "member back at once": 3,
        "opener back at once": 3,
        "opener at a step": 4,
        "stopped": 2,
        "cut off": 2,
        "joins": 1,
        "leaves": 2,
        "other openers": 1,
        "hub": 1,
        "hub stopped": 1,
        "hub emptied": 1,
        "hub restored": 1,
        "hub and opener": 2,
    }
    faults = [*Counter(kinds).elements()]
    random.Random(seed).shuffle(faults)
    assert len(faults) == 30
    print(survive(tmp_path / "federation", 10, faults, seed=seed, every=3, pause=0.1))
