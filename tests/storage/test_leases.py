"""Leases: one process has a duty, and another takes it when the lease has run out, by the server's clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fedfairx.storage.leases import SECONDS, Leases
from fedfairx.storage.open_log import open_log
from fedfairx.storage.transaction_log import Log

START = 4_000_000_000  # seconds since 1970


class Process:
    """The leases of a process: a log of its own, since its address is its own."""

    def __init__(self, address: str, number: int, clock: Any) -> None:
        self.log: Log = open_log(f"{address}&application_name=process{number}", shared=True)
        self.log.clock = clock
        self.leases = Leases(self.log)
        self.leases.process = f"process {number}"

    def take(self, *duties: str) -> list[str]:
        """Those of the duties that it has."""
        with self.log.transaction:
            self.leases.take(duties)
        return [duty for duty in duties if self.leases.has(duty)]


class World:
    def __init__(self, address: str, stack: ExitStack) -> None:
        self.now = float(START)
        self.processes = [Process(address, number, self.clock) for number in range(3)]
        for process in self.processes:
            stack.callback(process.log.close)

    def clock(self) -> int:
        return int(self.now * 1e9)

    def until(self, duty: str) -> list[int]:
        log = self.processes[0].log
        return [row[0] for row in log.database.read("SELECT until FROM leases WHERE duty = ?", (duty,))]


@pytest.fixture
def world(postgres: Any) -> Iterator[World]:
    address = postgres.lend()
    with ExitStack() as stack:
        yield World(address, stack)
    postgres.take_back(address)


pytestmark = pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")


def test_one_has_a_duty_and_keeps_it(world: World) -> None:
    one, two, three = world.processes
    assert one.take("a") == ["a"]
    for _ in range(30):
        world.now += 1
        assert two.take("a", "b") == ["b"]
        assert one.take("a", "b") == ["a"]
        assert three.take("a", "b") == []
    for each in world.processes:
        assert each.leases.holders == {"a": "process 0", "b": "process 1"}
        assert [each.leases.holder(duty) for duty in "abc"] == ["process 0", "process 1", ""]


def test_another_takes_it_when_it_has_run_out(world: World) -> None:
    one, two, three = world.processes
    one.take("a")
    world.now += SECONDS - 0.001
    assert two.take("a") == []
    world.now += 0.001
    assert two.take("a") == ["a"]
    assert three.take("a") == []
    assert one.leases.has("a")  # it was stopped, and does not know yet: two have it
    assert one.take("a") == []
    assert one.leases.holder("a") == "process 1"


def test_it_is_written_when_half_of_it_is_over(world: World) -> None:
    (one, *_), first = world.processes, int(START * 1e6)
    one.take("a")
    assert world.until("a") == [first + SECONDS * 1_000_000]
    world.now += SECONDS / 2 - 0.001
    one.take("a")
    assert world.until("a") == [first + SECONDS * 1_000_000]
    world.now += 0.001
    one.take("a")
    assert world.until("a") == [first + SECONDS * 1_500_000]


def test_what_is_given_up_is_free_at_once(world: World) -> None:
    one, two, _ = world.processes
    one.take("a", "b")
    two.leases.give_up(["a"])  # it has no such duty
    one.leases.give_up(["b", "c"])
    assert two.take("a", "b") == ["b"]
    assert one.take("a", "b") == ["a"]


def test_one_that_was_overtaken_gives_up_nothing_of_others(world: World) -> None:
    one, two, three = world.processes
    one.take("a")
    world.now += SECONDS
    two.take("a")
    one.leases.give_up(["a"])
    assert three.take("a") == []
    assert two.take("a") == ["a"]


def test_a_transaction_that_fails_takes_nothing(world: World) -> None:
    one, two, _ = world.processes
    with pytest.raises(ZeroDivisionError), one.log.transaction:
        one.leases.take(["a"])
        raise ZeroDivisionError
    assert two.take("a") == ["a"]
    assert one.take("a") == []
