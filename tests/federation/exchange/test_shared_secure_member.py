"""A secure member whose agent several processes share, while two of them have its vault.

One was believed to be dead, or an operator gave it to both. What the database has decides which of them acts.
Here a process is a log of its own, with connections of its own: addresses that differ are different logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from fedfairx.errors import StorageUnavailable
from fedfairx.federation.aggregation.machine import PATIENCE
from fedfairx.federation.aggregation.messages import RowMessage, digest, parse, row_and_share
from fedfairx.federation.aggregation.records import MemoryStore, ValueStore, record_in
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.transport import MemoryTransport
from member_helpers import work
from secure_helpers import NAMES, SecureWorld, part_of, secure_world

pytestmark = pytest.mark.long


@pytest.fixture
def address(postgres: Any) -> Iterator[str]:
    lent = postgres.lend()
    yield lent
    postgres.take_back(lent)


def process(address: str, here: SecureWorld, number: int, vault: ValueStore) -> SecureMember:
    """A process of org1."""
    place = f"{address}&application_name=process{number}"
    agent = here.roster.terms.open_agent("org1", place, members=len(here.roster.members), shared=True)
    return SecureMember(
        agent,
        here.transport,
        here.seal("org1"),
        here.keys["org1"],
        confirmed=here.confirmed_keys,
        vault=vault,
        clock=lambda: here.now,
    )


def rows_at(transport: Any) -> dict[tuple[bytes, int], bytes]:
    """The digests of org1's rows that a transport holds, by epoch and round."""
    found = {}
    for place, message in transport.latest().items():
        if place.startswith("org1.row."):
            signed, _ = row_and_share(message)
            row = parse(signed)
            assert isinstance(row, RowMessage)
            found[row.epoch, row.number] = digest(signed)
    return found


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_process_left_in_an_earlier_epoch_makes_no_row_there(address: str, rounds: int) -> None:
    """Its hub keeps the news from it. Its records have moved into the later epoch and are in rows there.

    rounds: of the later epoch. After one its vault is as after a crash; after two it is an old one.
    """
    here, vault = secure_world(), MemoryStore()
    here.start_all(NAMES[1:])
    one = here.members["org1"] = process(address, here, 1, vault)
    here.turn()
    here.round(1)
    two = process(address, here, 2, MemoryStore(vault.value))
    work(two.agent, 3)
    two.exchange()
    early = part_of(two).epoch.digest
    past, two.transport = here.transport.latest(), MemoryTransport()
    here.amend()
    here.turn()
    for number in range(1, rounds + 1):
        here.round(number)
    stored = record_in(one._record)
    assert one.agent.past_release(rounds).count == 3
    assert stored.part is not None
    assert stored.part.epoch.number == 2
    now = here.transport.latest()
    for place in past:
        alive = place.endswith(".alive")
        two.transport.publish(place, now[place] if alive else past[place], replacing=None)
    here.now += 10.0
    assert here.roster.rounds is not None
    with pytest.raises(StorageUnavailable, match="another process has acted as 'org1'"):
        two.exchange()
    two.exchange()
    assert (early, 1) in rows_at(two.transport) or rounds == 1  # its last one there
    assert all(number == 1 for epoch, number in rows_at(two.transport) if epoch == early)
    assert one.agent.released == rounds
    assert (two.halted is not None) == (rounds == 2)
    if rounds == 2:
        assert record_in(one._record) == stored
        here.round(3)
        here.check_total(3)
    for each in (one, two):
        each.agent.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_two_processes_with_one_vault_make_each_row_once(address: str, seed: int) -> None:
    """In any order, and while the roster changes. When one of them has ended, the other goes on."""
    here, vault, random = secure_world(), MemoryStore(), np.random.default_rng(seed)
    here.start_all(NAMES[1:])
    both = [process(address, here, number, vault) for number in (1, 2)]
    seen: dict[tuple[bytes, int], bytes] = {}
    refused = 0

    def turn() -> None:
        nonlocal refused
        members = [*both, *(here.members[name] for name in NAMES[1:])]
        for place in random.permutation(5):
            work(members[place].agent, 1, seed=int(random.integers(1_000)))
            try:
                members[place].exchange()
            except StorageUnavailable:
                refused += 1
            members[place].show_life()
            for row, content in rows_at(here.transport).items():
                assert seen.setdefault(row, content) == content

    for number in range(1, 9):
        if number == 5:
            here.amend()
            for each in both:
                with suppress(StorageUnavailable):
                    here.follow("org1", each)
                here.follow("org1", each)  # again, as a service does
        for _ in range(6):
            turn()
        here.now += 10.0
    assert refused
    both[1].agent.close()
    one = here.members["org1"] = both[0]
    with suppress(StorageUnavailable):
        one.exchange()
    here.turn()
    here.now += PATIENCE
    here.turn(times=8)
    assert one.halted is None
    assert one.progress.epoch == 2
    assert one.progress.opened > 0
    assert here.check_opened() == len(NAMES)
    one.agent.verify()
    rows = one.agent.journal.log.database.read("SELECT record FROM ledger_records")
    assert len({*rows}) == len(rows) == one.agent.observed
    one.agent.close()
