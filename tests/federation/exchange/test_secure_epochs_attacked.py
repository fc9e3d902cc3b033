"""A hub, an opener and a convener that lie together about the end of an epoch."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from fedfairx.federation.aggregation.agreement import opener_key
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import Closing, Partial, Row, digest, parse, sign
from fedfairx.federation.aggregation.records import MemoryRecords, Stores
from fedfairx.federation.aggregation.shares import add, numbers_of, to_bytes, unseal
from fedfairx.federation.exchange.closings import Closed, read_closed
from fedfairx.federation.transport.protocol import Watchers
from member_helpers import work
from secure_helpers import SecureWorld, secure_world

pytestmark = pytest.mark.long

LIAR, HONEST, ANN, BEN = ALL = ("org1", "org2", "org3", "org4")  # two openers, two other members


class View:
    """What a hostile hub shows one member: everybody's latest message, or another one, or none."""

    def __init__(self, hub: dict[str, bytes]) -> None:
        self.hub, self.instead, self.watchers = hub, dict[str, bytes | None](), Watchers()

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:  # noqa: ARG002
        self.hub[agent] = message

    def latest(self) -> dict[str, bytes]:
        return {name: each for name, each in {**self.hub, **self.instead}.items() if each is not None}

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        return self.watchers.add(notify)

    def close(self) -> None:
        pass


def exchange(here: SecureWorld, *names: str, times: int = 4) -> None:
    for _ in range(times):
        for name in names:
            here.members[name].exchange()
            here.members[name].show_life()


def partial_of_liar(here: SecureWorld, epoch: Epoch, rows: dict[str, bytes], secret: bytes) -> bytes:
    """The liar's true share of a round that the honest opener has not opened."""
    place, shares, number = [*epoch.openers].index(LIAR), [], 0
    for name in epoch.members:
        row = parse(rows[name])
        assert isinstance(row, Row)
        number = row.number
        share = unseal(secret, row.shares[place], epoch.label("share", number, name, LIAR))
        shares.append(numbers_of(share, epoch.entries, last=epoch.is_last(LIAR)))
    digests = tuple(digest(rows[name]) for name in epoch.members)
    total = to_bytes(add(shares, epoch.entries))
    return sign(Partial(epoch.digest, LIAR, number, digests, total), here.keys[LIAR])


@pytest.mark.parametrize("roster_for", [(HONEST,), ALL], ids=["honest opener alone", "everybody"])
def test_an_opener_that_has_accepted_an_early_end_completes_no_later_round(
    roster_for: tuple[str, ...],
) -> None:
    """Otherwise members carry leaves into the next epoch, and the old one shows them as well."""
    hub: dict[str, bytes] = {}
    views = {name: View(hub) for name in ALL}
    here = secure_world()
    for name in ALL:
        here.transport = views[name]
        here.start(name)
    members = here.members
    exchange(here, *ALL)
    for number in (1, 2, 3, 4, 5):
        if number == 4:  # from here on openers do not get the rows of one member
            for name in (LIAR, HONEST):
                views[name].instead[f"{ANN}.row"] = hub[f"{ANN}.row"]
        for place, name in enumerate(ALL):
            work(members[name].agent, 3, seed=10 * number + place)
        assert here.roster.rounds is not None
        here.now = float(here.roster.rounds.times[number - 1])
        exchange(here, *ALL)
    part, stored = members[ANN]._participant, members[ANN]._stored(1)
    honest = members[HONEST]._participant
    assert part is not None
    assert stored is not None
    assert honest is not None
    assert honest.opener is not None
    rows = {name: hub[f"{name}.row"] for name in ALL}
    secret = members[LIAR]._stores.secret(here.roster.federation, 1)
    assert secret is not None
    assert (honest.opener.last, {parse(each).number for each in rows.values()}) == (3, {5})  # type: ignore[union-attr]

    # All accept that epoch 1 ends at round 3. The honest opener is not shown that the others have.
    views[HONEST].instead |= {f"{name}.accepted": None for name in (LIAR, ANN, BEN)}
    here.amend()
    exchange(here, *ALL)
    assert [members[name].progress.epoch for name in ALL] == [2, 1, 2, 2]

    # Another roster comes, and the liar's second closing of epoch 1, with its partial of round 5.
    here.amend(away=[name for name in ALL if name not in roster_for])
    second = Closing(part.epoch.digest, LIAR, partial_of_liar(here, part.epoch, rows, secret), ())
    closed = Closed(stored.definition, sign(second, here.keys[LIAR]))
    elsewhere = Stores(LIAR, MemoryRecords(), MemoryRecords())
    views[HONEST].instead |= {f"{name}.row": rows[name] for name in (LIAR, ANN, BEN)}
    views[HONEST].instead[f"{LIAR}.closing"] = msgspec.msgpack.encode(closed)
    views[HONEST].instead[f"{LIAR}.opener"] = opener_key(
        here.roster.federation, here.roster.version, key=here.keys[LIAR], stores=elsewhere
    )
    exchange(here, HONEST)
    settlements = [each.settlement for each in members[HONEST]._stores.accepted(here.roster.federation)]
    assert len({*settlements[1:]}) == 2  # it has accepted both ends,
    assert honest.opener.last == 3  # and shows nothing beyond the first
    assert read_closed(HONEST, hub[f"{HONEST}.closing"]).partial == b""
