"""A whole federation with secure aggregation: every total is compared with what it must be.

Members as services run them send their rows over one transport, at the times of a clock that is set here. One
of them misses a round and is there again in the next. The test reads the transport, as whoever carries the
messages can, and adds up what the openers have published. It knows all records, keys and places:

    total of round k = Σ over the members of grid(leaves up to k + share of the noise of round k)

`whole_agents.py` checks each row. A member whose row of round k is of another round, or has a leaf twice,
spoils a total. Then a later roster opens the next epoch, and all records must be in the last total of one of
the two epochs. These checks are exact: they do not fail by chance.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from fedfairx.audit.subject import CheckResult
from fedfairx.federation.aggregation.epoch import Draft
from fedfairx.federation.aggregation.messages import read_key
from fedfairx.federation.aggregation.records import MemoryStore
from fedfairx.federation.aggregation.total import Total, add_up
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.signing_keys import new_signing_key
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.transport import MemoryTransport
from fedfairx.federation.transport.protocol import OPENER, PARTIAL, aggregation_key
from fedfairx.privacy.ledger.ledger import MemoryLedger
from fedfairx.util.arrays import Array
from whole_agents import Findings, Watched
from whole_config import WholeConfig

_ROUNDS = 4
_AWAY = 2  # the round that the last member misses
_TURNS = 4  # exchanges of every member in a round: keys or rows, acceptances or partials, totals


class _Group:
    """All members of a federation of the audited options, with agents that the audit watches."""

    def __init__(self, subject: WholeConfig, findings: Findings, *, seed: int) -> None:
        self.subject, self.now, self.transport = subject, 0.0, MemoryTransport()
        self.convener = new_signing_key()
        keys = {f"member-{number}": new_signing_key() for number in range(subject.agents)}
        terms = Terms(
            dimension=subject.dimension,
            agents=subject.agents,
            horizon=subject.releases,
            options=subject.options,
            rounds=Rounds(begin=0, first=1, ratio=1, count=subject.releases),
        )
        self.keys = keys
        self.roster: Roster = create_roster(
            self.convener, terms, {name: key.public for name, key in keys.items()}
        )
        self.watched: list[Watched] = []
        self.members: list[SecureMember] = []
        for name, key in keys.items():
            noise = subject.keyed(f"{seed}, federation", agent=name)
            agent = subject.agent(noise, MemoryLedger())
            self.watched.append(Watched(subject, findings, agent, noise))
            self.members.append(
                SecureMember(
                    agent,
                    self.transport,
                    SignedCodec(self.roster, name, key),
                    key,
                    confirmed=lambda: self.roster.members,
                    vault=MemoryStore(),
                    clock=lambda: self.now,
                )
            )

    def turn(self, members: Sequence[SecureMember]) -> None:
        for _ in range(_TURNS):
            for member in members:
                member.exchange()
                member.show_life()

    def change_epoch(self) -> int:
        """Open the next epoch, and return by how many records the totals of both differ from those given."""
        self.turn(self.members)  # one that was away is there again: leaves in no total would stay behind
        closed, begin = self.members[0].progress.records, int(self.now)
        self.roster = self.roster.amended(self.convener, self.roster.members, begin=begin)
        for name, member in zip(self.keys, self.members, strict=True):
            member.follow(SignedCodec(self.roster, name, self.keys[name]))
        self.turn(self.members)
        self.now = begin + 1.0  # the first round
        self.turn(self.members)
        records = closed + self.members[0].progress.records
        return abs(records - sum(member.agent.observed for member in self.members))

    def round(self, number: int, *, away: bool = False) -> None:
        """Let the time of a round come; the last member may be away."""
        self.now = float(number)
        self.turn(self.members[: -1 if away else None])
        for watched in self.watched:
            watched.note_made()

    def total(self) -> Total:
        """The total that the transport's messages have."""
        messages = self.transport.latest()
        keys = {
            name: read_key(
                messages.get(aggregation_key(name, OPENER), b""),
                federation=self.roster.federation,
                number=self.roster.version,
                name=name,
                public=self.roster.members[name],
            )
            for name in self.roster.openers
        }
        epoch = Draft.of(self.roster).epoch(keys)
        published = (messages.get(aggregation_key(name, PARTIAL)) for name in self.roster.openers)
        return add_up(epoch, [partial for partial in published if partial is not None])

    def wrong(self, number: int) -> int:
        """How many integers of the total of this round are not the sum of the members' rows of it."""
        total = self.total()
        if total.number != number or any(number not in watched.sent for watched in self.watched):
            return self.subject.size + 1
        expected = np.zeros(self.subject.size + 1, dtype=np.int64)
        for watched in self.watched:
            steps = np.rint(np.ldexp(watched.sums[number - 1], -self.subject.grid)).astype(np.int64)
            expected += np.append(steps, watched.sent[number].count)
        return int((total.values != expected).sum())


def whole_federation(subject: WholeConfig, *, seed: int) -> tuple[tuple[CheckResult, ...], list[Array]]:
    """Run the federation, and return the checks and all draws of its members' noise."""
    findings, compared, wrong, repeated = Findings(), 0, 0, 0
    generator = np.random.default_rng([seed, 4])
    with warnings.catch_warnings(), findings.watching():
        warnings.simplefilter("ignore")  # many records are meant to be clipped
        group = _Group(subject, findings, seed=seed)
        group.round(0)  # keys and acceptances
        for number in range(1, min(subject.releases, _ROUNDS) + 1):
            for watched in group.watched:
                watched.give(*subject.random_records(generator, int(generator.integers(1, 4))))
            group.round(number, away=number == _AWAY)
            if number != _AWAY:
                compared += subject.size + 1
                wrong += group.wrong(number)
        for watched in group.watched:
            watched.compare()
        repeated = group.change_epoch()
    named = {
        f"totals: numbers other than the sum of all rows of a round, of {compared}": wrong,
        f"totals: rows other than grid(truth + share of the noise), of {findings.compared}": findings.numbers,
        "totals: counts other than the number of records": findings.counts,
        "totals: members that could not go on": findings.refused,
        "epochs: records that are not in the totals of one epoch": repeated,
    }
    return tuple(
        CheckResult(name, float(count), "= 0", count == 0) for name, count in named.items()
    ), findings.draws
