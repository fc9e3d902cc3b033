"""A convener and an opener that lie about everything can't have a record shown in two epochs.

The convener signs any roster, its opener any closing, and both tell every honest member what they like in any
order. Honest members follow the protocol: they close, accept what they may, send what counts as not shown,
and open what they may. The attackers have won if a leaf that an honest opener has opened in one epoch was
sent as if for the first time in a later one and is opened there too.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pytest

from aggregation_helpers import FEDERATION, Crashes, any_total, people, place_of
from fedfairx.errors import InvalidInput, MessageRefused, PrivacyError
from fedfairx.federation.aggregation import messages
from fedfairx.federation.aggregation.agreement import Agreement, opener_key, shown
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import (
    Acceptance,
    Closing,
    OpenerKey,
    Partial,
    digest,
    parse,
    sign,
)
from fedfairx.federation.aggregation.opener import Opener
from fedfairx.federation.aggregation.records import Stores
from fedfairx.federation.aggregation.sender import Sender
from fedfairx.federation.aggregation.settlement import Settlement, settle
from fedfairx.federation.roster.signing_keys import signed_by

HONEST, LIAR, SYBIL = ["org01", "org02", "org03", "org04"], "org00", "org05"
KNOWN = [LIAR, *HONEST]  # whom operators have confirmed; one may collude
REFUSALS = (PrivacyError, MessageRefused, InvalidInput)


class Attack:
    """The attackers' random choices, and what honest members make of them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.keys, disks = people(6, Crashes())
        self.stores = {name: Stores(name, *disks[name]) for name in self.keys}
        self.epochs: list[tuple[Epoch, Settlement | None]] = []
        self.views: dict[tuple[bytes, str], Agreement] = {}
        self.rows: dict[bytes, dict[int, dict[str, bytes]]] = {}  # by epoch, round and sender
        self.free: dict[tuple[bytes, str], dict[bytes, int]] = {}  # what was shown of each epoch before
        self.opened_late = 0
        self.diligence = self.chance.choice([0.1, 0.5, 1.0])  # how often honest openers get to open
        self.propose(None)

    def some(self) -> tuple[Epoch, Settlement | None]:
        """One of the last epochs."""
        return self.chance.choice(self.epochs[-2:])

    def worked_in(self) -> Epoch:
        """The last epoch in which somebody has sent, or sometimes any."""
        used = [epoch for epoch, _ in self.epochs if self.rows[epoch.digest]]
        return used[-1] if used and self.chance.random() < 0.8 else self.chance.choice(self.epochs)[0]

    def member_of(self, epoch: Epoch) -> list[str]:
        return [name for name in HONEST if name in epoch.members]

    # --- what the attackers choose ---------------------------------------------------------------------

    def propose(self, settlement: Settlement | None) -> None:
        """A new epoch, the first one or one after an epoch that is settled so."""
        number = 1 + max((epoch.number for epoch, _ in self.epochs), default=0)
        names = self.chance.sample(KNOWN, self.chance.choice([3, 4, 5]) if settlement else 5)
        names += [SYBIL] if self.chance.random() < 0.3 else []
        openers = self.chance.sample([name for name in names if name != SYBIL], 2)
        if settlement is None:
            openers = [LIAR, "org01"]
        keys: dict[str, bytes] = {}
        for name in openers:
            message = parse(opener_key(FEDERATION, number, key=self.keys[name], stores=self.stores[name]))
            assert isinstance(message, OpenerKey)
            keys[name] = message.key
        epoch = Epoch(
            federation=FEDERATION,
            roster=f"{number}",
            number=number,
            members={name: self.keys[name].public for name in names},
            openers=keys,
            honest=2,
            entries=1,
            rounds=4,
            settlement=b"" if settlement is None else settlement.digest,
        )
        self.epochs.append((epoch, settlement))
        self.rows[epoch.digest] = {}

    def lie(self) -> None:
        """Settle an epoch as is convenient, in two ways that have different ends, and go on from both."""
        epoch = self.worked_in()
        rows = self.rows[epoch.digest]
        ends = [0, *(number for number in rows if {*rows[number]} == {*epoch.members})]
        for end in self.chance.sample([min(ends), max(ends), self.chance.choice(ends)], 2):
            closings: dict[str, bytes] = {}
            for name in epoch.openers:
                if name == LIAR:
                    closings[name] = self.false_closing(epoch, end)
                elif held := self.stores[name].opened(epoch.digest).closing:
                    closings[name] = held
            if self.chance.random() < 0.1:
                closings.pop(self.chance.choice([*epoch.openers]), None)  # it is called missing
            missing = [name for name in epoch.openers if name not in closings]
            self.propose(settle(epoch, closings, plausible=any_total, missing=missing))

    def false_closing(self, epoch: Epoch, end: int) -> bytes:
        signed = b""
        if end:
            rows = self.rows[epoch.digest][end]
            digests = tuple(digest(rows[name]) for name in epoch.members)
            signed = sign(Partial(epoch.digest, LIAR, end, digests, bytes(8)), self.keys[LIAR])
        return sign(Closing(epoch.digest, LIAR, signed, ()), self.keys[LIAR])

    # --- what honest members do ------------------------------------------------------------------------

    def view(self, epoch: Epoch, settlement: Settlement | None, name: str) -> Agreement:
        if (epoch.digest, name) not in self.views:
            self.views[epoch.digest, name] = Agreement(epoch, self.stores[name], settlement=settlement)
        return self.views[epoch.digest, name]

    def close(self) -> None:
        epoch, settlement = self.chance.choice(self.epochs)
        for name in epoch.openers:
            if name in HONEST and self.accepted(epoch, name):
                Opener(self.view(epoch, settlement, name), self.keys[name]).close()

    def accepted(self, epoch: Epoch, name: str) -> bool:
        return any(each.digest == epoch.digest for each in self.stores[name].accepted(FEDERATION))

    def accept(self) -> None:
        epoch, settlement = self.some()
        names = [*self.member_of(epoch)]
        names += [] if settlement is None else [name for name in settlement.closings if name in HONEST]
        names = self.chance.sample([*dict.fromkeys(names)], len({*names}))
        for name in names if self.chance.random() < 0.6 else names[:1]:
            try:
                self.view(epoch, settlement, name).accept(self.keys[name], confirmed=KNOWN)
            except (PrivacyError, InvalidInput):
                continue

    def tell(self) -> None:
        """Everybody hears all acceptances of an epoch; the attackers sign whatever they are asked for."""
        epoch, _ = self.some()
        signed = [sign(Acceptance(epoch.digest, name), self.keys[name]) for name in (LIAR, SYBIL)]
        signed += [view.signed for (of, _), view in self.views.items() if of == epoch.digest and view.signed]
        for name in HONEST:
            if (epoch.digest, name) in self.views:
                for each in signed:
                    try:
                        self.views[epoch.digest, name].take(each)
                    except MessageRefused:
                        continue

    def send(self) -> None:
        epoch, settlement = self.some()
        last = max(self.rows[epoch.digest], default=1)
        number = min(self.chance.choice([last, last, last + 1]), epoch.rounds)
        rows = self.rows[epoch.digest].setdefault(number, {})
        for name in epoch.members:
            row, place = np.array([7]), place_of(name, number)
            if name in HONEST:
                agreement = self.view(epoch, settlement, name)
            else:
                fake = SimpleNamespace(epoch=epoch, name=name, stores=self.stores[name])
                fake.require_begun = lambda: None
                agreement = fake  # type: ignore[assignment]
            before = {each.digest: shown(self.stores[name], each) for each, _ in self.epochs}
            sender = Sender(agreement, self.keys[name])
            try:
                message = sender.send(number, row, place=place, opened=0)
            except PrivacyError:
                continue
            rows.setdefault(name, message)
            if name in HONEST:
                self.free.setdefault((epoch.digest, name), before)

    def open(self) -> None:
        epoch, settlement = self.chance.choice(self.epochs)
        for name in epoch.openers:
            for number, rows in self.rows[epoch.digest].items():
                if name in HONEST and self.chance.random() < self.diligence:
                    opener = Opener(self.view(epoch, settlement, name), self.keys[name])
                    try:
                        opener.open(number, rows)
                    except REFUSALS:
                        continue

    def complete(self) -> None:
        of, settlement = self.chance.choice(self.epochs)
        if settlement is None:
            return
        before = settlement.epoch
        rows: Mapping[str, bytes] = self.rows[before.digest].get(settlement.last, {})
        for name in before.openers:
            if name in HONEST and (before.digest, name) in self.views:
                try:
                    Opener(self.views[before.digest, name], self.keys[name]).complete(settlement, rows)
                    self.opened_late += 1
                except REFUSALS:
                    continue
        assert of.number > before.number

    def run(self) -> None:
        """Epoch by epoch: agree, work, end it in several ways; and at any time anything else."""
        for _ in range(5):
            steps = [self.accept, self.tell] * 4
            steps += [self.send, self.open, self.open] * self.chance.randint(1, 5)
            steps += [self.close] * self.chance.randint(0, 2) + [self.lie]
            steps += [self.accept, self.tell, self.complete] * 3
            for step in steps:
                step()
                if self.chance.random() < 0.2:
                    self.chance.choice([self.accept, self.tell, self.complete, self.send, self.open])()

    # --- who has won -----------------------------------------------------------------------------------

    def opened(self, epoch: Epoch) -> int:
        """The last round of an epoch that an honest opener has opened."""
        openers = [name for name in epoch.openers if name in HONEST]
        return max((self.stores[name].opened(epoch.digest).number for name in openers), default=0)

    def check(self) -> int:
        """How many times a member has gone on sending after an epoch; no leaf of it may be shown twice."""
        carried = 0
        for later, _ in self.epochs:
            for name in self.member_of(later):
                told = self.free.get((later.digest, name))
                if told is None or not self.opened(later):
                    continue
                for earlier, _ in self.epochs:
                    sent = len(self.stores[name].sent(earlier.digest).digests)
                    if earlier.number < later.number and sent:
                        assert min(self.opened(earlier), sent) <= told[earlier.digest]
                        carried += told[earlier.digest] < sent
        return carried


@pytest.mark.long
def test_no_leaf_is_shown_in_two_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "signed_by", functools.cache(signed_by))
    epochs, carried, late = 0, 0, 0
    for seed in range(30):
        attack = Attack(seed)
        attack.run()
        epochs += sum(attack.opened(epoch) > 0 for epoch, _ in attack.epochs)
        carried += attack.check()
        late += attack.opened_late
    # Later epochs do begin, leaves are carried into them, and openers do complete rounds.
    assert min(epochs - 30, carried, late) > 10
