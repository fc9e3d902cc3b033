"""A member with secure aggregation as a state and a transition.

`step(state, event, now)` returns the next state and the effects that follow, which the caller carries out in
their order: what a message depends on is stored in the database, then in the vault, and then it is published.
There is no clock, no database, no transport and no random number here. `exchange.secure_member` has them.

A record is in one epoch. Each epoch that a member begins is a run of its own in its ledger, with new noise. A
leaf is bound to the run in which it was frozen. `BeginEpoch` moves only the open leaf, which is in no row.
So nothing that is told about another epoch can put a record into two of them.

The phases and their changes are in `TRANSITIONS`, and no others are possible. What is in `State.record` and
`State.vault` survives the process. All else comes again from the transport, the operator and the roster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import msgspec

from fedfairx.errors import FedFairXError, MessageRefused
from fedfairx.federation.aggregation.epoch import Draft, Epoch
from fedfairx.federation.aggregation.messages import (
    HEADERS,
    Acceptance,
    OpenerKey,
    Partial,
    Past,
    PastTotal,
    RowMessage,
    digest,
    key_place,
    parse,
    past_place,
    read,
    read_key,
    row_and_share,
    sign,
    verified,
    with_share,
)
from fedfairx.federation.aggregation.records import Opened, Part, Record, Vault
from fedfairx.federation.aggregation.rows import CANNOT_CONTINUE, make_row, open_round, open_share, read_row
from fedfairx.federation.aggregation.shares import Integers, as_integers, as_ring, from_bytes, public_key_of
from fedfairx.federation.aggregation.shares import to_bytes as bytes_of
from fedfairx.federation.aggregation.total import Plausible, Total, add_up
from fedfairx.federation.roster.signing_keys import SigningKey
from fedfairx.federation.transport.protocol import (
    ACCEPTED,
    LARGEST,
    OPENER,
    PARTIAL,
    PAST,
    ROW,
    aggregation_key,
    row_key,
)

PATIENCE = 600.0  # seconds that a member waits for the total of its last row before it begins the next epoch
CLOCKS = 300.0  # seconds by which members' clocks may differ
EARLIER = 3  # epochs of earlier rosters that a member has accepted and may still begin
KEPT = 4, 64  # the least and most of each member's latest rows or partials that are kept for those to come
_ByRound = Mapping[int, Mapping[str, bytes]]  # messages by round and sender


class Phase(Enum):
    """What a member is doing."""

    JOINING = "joining"
    RUNNING = "running"
    CHANGING = "changing"
    ENDING = "ending"
    HALTED = "halted"


class Transition(NamedTuple):
    """A change of the phase: `why` it happens, and what the member does from then on."""

    before: tuple[Phase, ...]
    why: str
    after: Phase
    does: str


_BEGINS = "begins the epoch: makes rows, opens rounds, learns totals"
_GOES_ON = "goes on in its epoch, and accepts the next"

#: All phases and all changes between them; docs/explanation/secure-aggregation.md shows this table.
TRANSITIONS = (
    Transition((Phase.JOINING,), "all members have accepted its roster's epoch", Phase.RUNNING, _BEGINS),
    Transition((Phase.RUNNING,), "a later roster comes", Phase.CHANGING, _GOES_ON),
    Transition(
        (Phase.CHANGING,), "all members have accepted the next epoch", Phase.ENDING, "makes no new row"
    ),
    Transition((Phase.ENDING,), "another roster or opener's key comes", Phase.CHANGING, _GOES_ON),
    Transition(
        (Phase.ENDING,), "the total of its last row is known, or ten minutes pass", Phase.RUNNING, _BEGINS
    ),
    Transition(
        (Phase.JOINING, Phase.RUNNING, Phase.CHANGING, Phase.ENDING),
        "it sees a row of its own that it has no record of",
        Phase.HALTED,
        "makes no row and opens nothing any more",
    ),
)
_ALLOWED = {(before, each.after) for each in TRANSITIONS for before in each.before}


# --- events and effects -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RosterTaken:
    """The latest roster. `random`: 32 fresh bytes, for an opener's secret key of its epoch."""

    draft: Draft
    random: bytes = field(repr=False)


@dataclass(frozen=True)
class Came:
    """Messages that are new at the transport, by their names there."""

    messages: Mapping[str, bytes]


@dataclass(frozen=True)
class Tick:
    """Time has passed.

    confirmed: keys that the operator has confirmed, by name.
    alive: who has given a sign of life lately.
    """

    confirmed: Mapping[str, str]
    alive: frozenset[str]


@dataclass(frozen=True)
class RowMade:
    """The ledger's row of a round, as `MakeRow` asked for it; `random`: 32 fresh bytes."""

    number: int
    values: Integers = field(repr=False)
    place: bytes = field(repr=False)
    random: bytes = field(repr=False)


Event = RosterTaken | Came | Tick | RowMade


@dataclass(frozen=True)
class BeginEpoch:
    """Begin a run of the ledger for an epoch of this many members, and move the open leaf into it.

    first: whether this is the member's first epoch, for which the ledger's first run serves.
    """

    members: int
    first: bool


@dataclass(frozen=True)
class Absorb:
    """Learn from the total of a round, in the place of the one before."""

    number: int
    values: Integers = field(repr=False)


@dataclass(frozen=True)
class AddPast:
    """Learn from the last total of an epoch that this member was not in."""

    total: PastTotal


@dataclass(frozen=True)
class Store:
    """Write the record to the database, in one transaction with what the agent does."""

    record: Record
    agent: BeginEpoch | Absorb | AddPast | None = None


@dataclass(frozen=True)
class Keep:
    """Write the vault."""

    vault: Vault


@dataclass(frozen=True)
class Publish:
    """Have the transport hold this message under this name, until another one is published there."""

    place: str
    message: bytes = field(repr=False)


@dataclass(frozen=True)
class MakeRow:
    """Freeze leaves up to round `number`, empty ones for missed rounds, and answer with `RowMade`."""

    number: int


@dataclass(frozen=True)
class Refuse:
    """Count a refused message."""

    place: str
    sender: str
    reason: str


Effect = Store | Keep | Publish | MakeRow | Refuse


# --- the state --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemberIdentity:
    """Who the member is. `plausible`: whether integers can be a total of so many members' rows."""

    federation: str
    name: str
    key: SigningKey = field(repr=False)
    plausible: Plausible = field(repr=False)


@dataclass(frozen=True)
class State:
    """The state of a member.

    record, vault: what is stored; nothing else survives the process.
    draft: the epoch of the latest roster; None before the first roster.
    confirmed, alive: as of the last `Tick`.
    heard: the latest message under each name at the transport.
    rows: for an opener, rows of rounds that it has not opened, by round and sender.
    partials: partials of rounds whose total is not known, by round and opener.
    next: the epoch of the roster, once this member accepts it; None in that epoch.
    accepted: who has accepted it.
    since: when all had accepted it, while `ENDING`.
    lacking: openers without a key of the roster's epoch.
    unconfirmed: why this member does not take part; empty if it does.
    trouble: why this opener can't open; empty if it can.
    halted: why it is `HALTED`; empty if it is not.
    """

    identity: MemberIdentity
    phase: Phase
    record: Record
    vault: Vault
    draft: Draft | None = None
    confirmed: Mapping[str, str] = field(default_factory=dict)
    alive: frozenset[str] = frozenset()
    heard: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    rows: _ByRound = field(default_factory=dict, repr=False)
    partials: _ByRound = field(default_factory=dict, repr=False)
    next: Epoch | None = None
    accepted: frozenset[str] = frozenset()
    since: float = 0.0
    lacking: tuple[str, ...] = ()
    unconfirmed: str = ""
    trouble: str = ""
    halted: str = ""

    @property
    def opened(self) -> Opened | None:
        """The last round that this opener has opened in its epoch: the later of database and vault."""
        part = self.record.part
        if part is None:
            return None
        each = [one for one in (part.opened, self.vault.opened) if one and one.epoch == part.epoch.digest]
        return max(each, key=lambda one: one.number, default=None)


def start(
    identity: MemberIdentity, record: Record, vault: Vault | None, *, random: bytes
) -> tuple[State, list[Effect]]:
    """The state of a member when its process starts, from what is stored, and what follows.

    vault: None if there is none, or it is damaged. Then a new one is made, whose id is `random`, unless rows
        were made: a member with rows and without its vault does nothing.
    """
    phase = Phase.JOINING if record.part is None else Phase.RUNNING
    state = State(identity, phase, record, vault or Vault(random, identity.federation, identity.name))
    turn = _Turn(state, 0.0)
    trouble = record.halted or vault_trouble(identity.federation, identity.name, record, vault)
    if trouble:  # it is not stored: an operator may have confused two files, and put that right
        turn.change(phase=Phase.HALTED, halted=trouble)
    else:
        turn.begin()
    return turn.state, turn.effects


def step(state: State, event: Event, now: float) -> tuple[State, list[Effect]]:
    """The next state after an event, and what follows from it, in the order in which it must be done."""
    turn = _Turn(state, now)
    if state.phase is not Phase.HALTED:
        turn.take(event)
    return turn.state, turn.effects


class _Turn:
    """One step under way: the state so far, and the effects so far."""

    def __init__(self, state: State, now: float) -> None:
        self.state, self.now = state, now
        self.effects: list[Effect] = []

    @property
    def name(self) -> str:
        return self.state.identity.name

    @property
    def key(self) -> SigningKey:
        return self.state.identity.key

    @property
    def part(self) -> Part | None:
        return self.state.record.part

    def change(self, **fields: object) -> None:
        self.state = replace(self.state, **fields)  # type: ignore[arg-type]

    def go(self, phase: Phase) -> None:
        before = self.state.phase
        assert (before, phase) in _ALLOWED, f"{before} can't become {phase}"
        self.change(phase=phase)

    def store(self, agent: BeginEpoch | Absorb | AddPast | None = None, **fields: object) -> None:
        """Change the record, durably."""
        self.change(record=msgspec.structs.replace(self.state.record, **fields))
        self.effects.append(Store(self.state.record, agent))

    def keep(self, **fields: object) -> None:
        """Change the vault, durably."""
        self.change(vault=msgspec.structs.replace(self.state.vault, **fields))
        self.effects.append(Keep(self.state.vault))

    def publish(self, kind: str, message: bytes) -> None:
        self.effects.append(Publish(aggregation_key(self.name, kind), message))

    def refuse(self, place: str, error: MessageRefused) -> None:
        """Count a refused message. One of another epoch is none: its sender has another roster, for now."""
        if error.reason != "epoch":
            self.effects.append(Refuse(place, place.partition(".")[0], error.reason))

    def halt(self, why: str) -> None:
        """Stop for good."""
        self.change(halted=f"{why}, and {CANNOT_CONTINUE}")
        self.store(halted=self.state.halted)
        self.go(Phase.HALTED)

    # --- the start -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Finish what a crash has interrupted, and publish what is stored."""
        record, vault = self.state.record, self.state.vault
        if record.vault != vault.id:
            self.keep()  # before the record refers to it
            self.store(vault=vault.id)
        part = self.part
        if part is None:
            return
        if vault.mark != record.mark:  # the process ended between the two
            self.keep(mark=record.mark, epoch=part.epoch.number, round=part.last)
        opened = self.state.opened
        if opened is not None and opened != vault.opened:
            self.keep(opened=opened)
        if opened is not None and opened != part.opened:
            self.store(part=msgspec.structs.replace(part, opened=opened))
        self.forget_secrets()
        self.publish_acceptances()
        self.publish_row(part)
        if opened is not None:
            self.publish_partial(opened)
        self.publish_past()

    # --- events --------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        match event:
            case RosterTaken(draft, random):
                self.take_roster(draft, random)
            case Came(messages):
                self.take_messages(messages)
            case Tick(confirmed, alive):
                keys = {**confirmed, self.name: self.key.public}
                same = keys == self.state.confirmed
                self.change(confirmed=keys, alive=alive)
                if not same:  # after a start, too: messages came before the confirmations
                    self.add_past()
            case RowMade():
                self.take_row_made(event)
        for work in (self.agree, self.open, self.add_totals, self.end_epoch):
            if self.state.phase is not Phase.HALTED:
                work()
        if isinstance(event, Tick):
            self.ask_for_row()

    def take_roster(self, draft: Draft, random: bytes) -> None:
        before = self.state.draft
        if before is not None and draft.number <= before.number:
            return
        self.change(draft=draft, next=None, accepted=frozenset(), lacking=(), unconfirmed="")
        later = self.part is None or draft.number > self.part.epoch.number
        if later and self.state.phase in (Phase.RUNNING, Phase.ENDING):
            self.go(Phase.CHANGING)
        if self.name not in draft.openers:
            return
        secrets = self.state.vault.secrets
        if later and draft.number not in secrets:
            self.keep(secrets={**secrets, draft.number: random})
        secret = self.state.vault.secrets.get(draft.number)
        if secret is not None:  # else it was lost in this epoch
            where = key_place(draft.federation, draft.number)
            self.publish(OPENER, sign(OpenerKey(where, self.name, public_key_of(secret)), self.key))

    def take_messages(self, messages: Mapping[str, bytes]) -> None:
        self.change(heard={**self.state.heard, **messages})
        self.read_messages(messages)
        if any(place.endswith(f".{PAST}") for place in messages):
            self.add_past()

    def read_messages(self, messages: Mapping[str, bytes]) -> None:
        """Take rows and partials of the epoch that this member is in; others are read when needed."""
        for place, message in messages.items():
            name, _, kind = place.partition(".")
            kind, _, opener = kind.partition(".")
            try:
                if kind == ROW and name == self.name:
                    self.compare_own_row(message)
                if self.state.phase is Phase.HALTED:
                    return
                if kind == ROW and opener == self.name:
                    self.take_row(name, message)
                if kind == PARTIAL and name != self.name and self.part is not None:
                    self.take_partial(name, message)
            except MessageRefused as error:
                self.refuse(place, error)

    # --- rows of its own -----------------------------------------------------------------------------

    def compare_own_row(self, message: bytes) -> None:
        """Halt at a row of this federation that is signed with our key and that we have no record of."""
        try:
            signed, _ = row_and_share(message)
            epoch = parse(signed).epoch
            row = verified(signed, RowMessage, epoch=epoch, name=self.name, public=self.key.public)
        except MessageRefused:
            return  # anybody could have made it
        if row.federation != self.state.identity.federation:
            return  # this key was used in another federation, too
        part = self.part
        if part is not None and epoch == part.epoch.digest:
            is_ours = row.number < part.first or part.digest_of(row.number) == digest(signed)
        else:
            is_ours = epoch in self.state.record.begun
        if not is_ours:
            self.halt(
                f"another row of round {row.number} was sent with the key of {self.name!r}: this member was "
                "restored from a backup or runs twice"
            )

    def ask_for_row(self) -> None:
        """Ask for the row of the round that is due, while all members of the epoch show life in it.

        A row whose total never comes is a leaf that the others never get. So members that have gone on to a
        later epoch, which show no acceptance of this one, do not count, and an opener that can't open sends
        nothing.
        """
        part = self.part
        if part is None or self.state.phase not in (Phase.RUNNING, Phase.CHANGING):
            return
        epoch, due = part.epoch, part.rounds.number(self.now)
        if due <= part.last or self.state.trouble or not self.may_take_part(epoch):
            return
        if {*self.accepting(epoch)} & (self.state.alive | {self.name}) == epoch.members.keys():
            self.effects.append(MakeRow(due))

    def may_take_part(self, epoch: Epoch) -> bool:
        """Whether the operator has confirmed enough members of an epoch, and our key is the one in it."""
        ours = epoch.members.get(self.name) == self.key.public
        return ours and not epoch.unconfirmed(self.state.confirmed)

    def take_row_made(self, row: RowMade) -> None:
        """Make the row's message: stored in the database, then in the vault, then published."""
        part, record = self.part, self.state.record
        if part is None or row.number <= part.last or self.state.phase not in (Phase.RUNNING, Phase.CHANGING):
            return
        first = max(part.total_round, part.first)
        digests = part.digests[first - part.first :]
        earlier = digests + (None,) * (row.number - part.last - 1)
        new_row = make_row(
            part.epoch,
            self.name,
            self.key,
            row.number,
            row.values,
            earlier=earlier,
            place=row.place,
            random=row.random,
        )
        mark = digest(new_row.signed)
        part = msgspec.structs.replace(
            part, first=first, digests=(*earlier, mark), row=new_row.signed, shares=dict(new_row.shares)
        )
        self.store(part=part, mark=mark, mark_before=record.mark)
        self.keep(mark=mark, epoch=part.epoch.number, round=row.number)
        self.publish_row(part)

    def publish_row(self, part: Part) -> None:
        """Publish the last row, for each opener with its share; take ours, if we are one."""
        for opener, share in part.shares.items():
            message = with_share(part.row, share)
            self.effects.append(Publish(row_key(self.name, opener), message))
            if opener == self.name:
                self.take_row(self.name, message)

    # --- opening -------------------------------------------------------------------------------------

    def take_row(self, name: str, message: bytes) -> None:
        """As an opener, hold a row until the rows of all members are here."""
        part, opened = self.part, self.state.opened
        if part is None or self.name not in part.epoch.openers or name not in part.epoch.members:
            return
        row, seen = read_row(part.epoch, self.name, name, message)
        if opened is not None and row.number <= opened.number:
            return
        before = self.state.rows.get(row.number, {}).get(name)
        if before is not None and digest(row_and_share(before)[0]) != seen:
            raise MessageRefused(f"{name!r} has sent two rows of a round", reason="two contents")
        self.change(rows=self.with_latest(part, self.state.rows, row.number, name, message))

    def with_latest(self, part: Part, table: _ByRound, number: int, name: str, message: bytes) -> _ByRound:
        """The table with one more message, and of its sender for as many rounds as clocks may be apart."""
        least, most = KEPT
        within = part.rounds.number(self.now + CLOCKS) - part.rounds.number(self.now - CLOCKS)
        by_round = {each: dict(messages) for each, messages in table.items()}
        by_round.setdefault(number, {})[name] = message
        theirs = sorted(each for each, messages in by_round.items() if name in messages)
        for each in theirs[: -min(max(within, least), most)]:
            del by_round[each][name]
        return {each: messages for each, messages in by_round.items() if messages}

    def open(self) -> None:
        """As an opener, open the latest round of which all rows are here, later than the last."""
        part = self.part
        if part is None or self.name not in part.epoch.openers:
            return
        epoch = part.epoch
        private = self.state.vault.secrets.get(epoch.number, b"")
        if not private or public_key_of(private) != epoch.openers[self.name]:
            self.change(trouble=no_key(self.name, epoch.number))
            return
        self.change(trouble="")
        complete = [number for number, rows in self.state.rows.items() if {*rows} == {*epoch.members}]
        for number in sorted(complete, reverse=True):
            if not self.may_take_part(epoch):
                return
            rows = self.state.rows[number]
            try:
                opened = open_round(epoch, self.name, self.key, private, number, rows, self.state.opened)
            except MessageRefused:
                self.drop_refused(part, private, number)
                continue
            self.store(part=msgspec.structs.replace(part, opened=opened))
            self.keep(opened=opened)
            self.change(rows={each: messages for each, messages in self.state.rows.items() if each > number})
            self.publish_partial(opened)
            return

    def publish_partial(self, opened: Opened) -> None:
        """Publish our partial, and take it ourselves."""
        self.publish(PARTIAL, opened.partial)
        self.take_partial(self.name, opened.partial)

    def drop_refused(self, part: Part, private: bytes, number: int) -> None:
        """Drop the rows of a round that can't be opened, so that other rows of it may come."""
        rows = dict(self.state.rows[number])
        for name, message in [*rows.items()]:
            try:
                open_share(part.epoch, self.name, private, number, name, message, self.state.opened)
            except MessageRefused as error:
                self.refuse(row_key(name, self.name), error)
                del rows[name]
        by_round = {**self.state.rows, number: rows}
        self.change(rows={each: rows for each, rows in by_round.items() if rows})

    # --- totals --------------------------------------------------------------------------------------

    def take_partial(self, name: str, message: bytes) -> None:
        part = self.part
        assert part is not None
        partial = read(message, Partial, part.epoch)
        if partial.name != name:
            raise MessageRefused(f"the partial under the name {name!r} is another's", reason="sender")
        if partial.number <= part.total_round:
            return
        partials = self.state.partials.get(partial.number, {})
        if name in partials and digest(partials[name]) != digest(message):
            text = f"{name!r} has signed two partials of round {partial.number}"
            raise MessageRefused(text, reason="two contents")
        self.change(partials=self.with_latest(part, self.state.partials, partial.number, name, message))

    def add_totals(self) -> None:
        """Learn from the latest round of which all partials are here."""
        part = self.part
        if part is None:
            return
        for number in sorted(self.state.partials, reverse=True):
            messages = self.state.partials[number]
            if len(messages) < len(part.epoch.openers):
                continue
            rest = {each: partials for each, partials in self.state.partials.items() if each != number}
            self.change(partials=rest)
            last = aggregation_key([*messages][-1], PARTIAL)
            try:
                total = add_up(part.epoch, messages.values())
            except MessageRefused as error:
                self.refuse(last, error)
                continue
            ours = total.rows[[*part.epoch.members].index(self.name)]
            if part.digest_of(number) != ours:
                self.halt(
                    f"the openers have added up a row of round {number} that {self.name!r} has no record of: "
                    "this member was restored from a backup or runs twice"
                )
                return
            if not self.state.identity.plausible(total.values, len(part.epoch.members)):
                self.refuse(last, MessageRefused(f"the total of round {number} is absurd", reason="absurd"))
                continue
            self.take_total(part, total)
            return

    def take_total(self, part: Part, total: Total) -> None:
        epoch, values = part.epoch, bytes_of(as_ring(total.values))
        past_total = PastTotal(epoch.digest, epoch.number, len(epoch.members), total.number, values)
        self.store(Absorb(total.number, total.values), part=msgspec.structs.replace(part, total=past_total))
        later = {
            number: partials for number, partials in self.state.partials.items() if number > total.number
        }
        self.change(partials=later)

    # --- the agreement -------------------------------------------------------------------------------

    def agree(self) -> None:
        """Accept the epoch of the roster once all openers' keys are there, and note who else has."""
        draft, part = self.state.draft, self.part
        if draft is None or (part is not None and draft.number <= part.epoch.number):
            return
        keys, lacking = self.opener_keys(draft)
        self.change(lacking=lacking)
        epoch = None if lacking else self.confirmed_epoch(draft, keys)
        if epoch != self.state.next:
            self.change(next=epoch)
            self.accept(draft, epoch)
        self.change(accepted=frozenset[str]() if epoch is None else frozenset(self.accepting(epoch)))
        everybody = self.accepted_by_all() is not None
        if everybody and self.state.phase is Phase.CHANGING:
            self.change(since=self.now)
            self.go(Phase.ENDING)
        elif not everybody and self.state.phase is Phase.ENDING:
            self.go(Phase.CHANGING)
        elif everybody and self.state.phase is Phase.JOINING:
            self.begin_epoch()

    def accept(self, draft: Draft, epoch: Epoch | None) -> None:
        """Accept the roster's epoch, durably, or none of its number.

        What was accepted before stays: others may have begun it by our acceptance, and wait for us there.
        """
        before = [each for each in self.state.record.accepted if each.epoch.number < draft.number]
        parts = (*before[-EARLIER:], *([] if epoch is None else [Part(epoch, draft.rounds)]))
        if parts != self.state.record.accepted:
            self.store(accepted=parts)
        self.publish_acceptances()

    def accepted_by_all(self) -> Part | None:
        """The latest epoch after ours that all of its members have accepted, and that is confirmed."""
        for part in reversed(self.state.record.accepted):
            confirmed = not part.epoch.unconfirmed(self.state.confirmed)
            if confirmed and {*self.accepting(part.epoch)} == part.epoch.members.keys():
                return part
        return None

    def opener_keys(self, draft: Draft) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """The X25519 keys of the draft's openers as the transport has them, and who has none.

        An opener with a later roster shows its key of that one. The key that we have accepted stays: others
        may have begun the epoch by our acceptance.
        """
        epochs = [each.epoch for each in self.state.record.accepted if each.epoch.roster == draft.roster]
        keys = {name: key for each in epochs for name, key in each.openers.items()}
        for name in draft.openers:
            if name == self.name:
                keys[name] = public_key_of(self.state.vault.secrets[draft.number])
                continue
            place = aggregation_key(name, OPENER)
            signed, public = self.state.heard.get(place), draft.members[name]
            if signed is not None:
                try:
                    where = {"federation": draft.federation, "number": draft.number}
                    keys[name] = read_key(signed, **where, name=name, public=public)  # type: ignore[arg-type]
                except MessageRefused as error:
                    self.refuse_once(place, error)
        return keys, tuple(name for name in draft.openers if name not in keys)

    def refuse_once(self, place: str, error: MessageRefused) -> None:
        """Refuse a message that would be read again at every step: forget it."""
        self.refuse(place, error)
        if error.reason != "epoch":
            self.change(heard={each: message for each, message in self.state.heard.items() if each != place})

    def confirmed_epoch(self, draft: Draft, keys: Mapping[str, bytes]) -> Epoch | None:
        """The epoch, if its operator has confirmed enough of it; else None, and `unconfirmed` says why."""
        try:
            epoch = draft.epoch(keys)
            why = epoch.unconfirmed(self.state.confirmed)
        except FedFairXError as error:  # such as two openers with one key
            epoch, why = None, str(error)
        self.change(unconfirmed=why)
        return None if why else epoch

    def accepting(self, epoch: Epoch) -> Iterable[str]:
        """Who has accepted an epoch, ourselves included."""
        yield self.name
        for name, public in epoch.members.items():
            place = aggregation_key(name, ACCEPTED)
            message = self.state.heard.get(place)
            if name == self.name or message is None:
                continue
            try:
                for signed in _acceptances(message):
                    if parse(signed).epoch == epoch.digest:
                        verified(signed, Acceptance, epoch=epoch.digest, name=name, public=public)
                        yield name
                        break
            except MessageRefused as error:
                self.refuse_once(place, error)

    def publish_acceptances(self) -> None:
        """Publish which epochs we have accepted, our own too, which others may not have begun."""
        part = self.part
        epochs = [] if part is None else [part.epoch]
        epochs += [each.epoch for each in self.state.record.accepted]
        signed = [sign(Acceptance(each.digest, self.name), self.key) for each in epochs]
        if signed:
            self.publish(ACCEPTED, msgspec.msgpack.encode(signed))

    # --- the change of epochs ------------------------------------------------------------------------

    def end_epoch(self) -> None:
        """Begin the next epoch once the total of our last row is known, or after `PATIENCE` seconds."""
        part = self.part
        if self.state.phase is Phase.ENDING and part is not None:
            waited = self.now - self.state.since
            if part.total_round >= part.last or not 0.0 <= waited < PATIENCE:  # clocks may go back
                self.begin_epoch()

    def begin_epoch(self) -> None:
        """Begin the epoch that all have accepted: in one transaction with the ledger's new run."""
        part, record = self.accepted_by_all(), self.state.record
        assert part is not None
        before, epoch = record.part, part.epoch
        assert before is None or epoch.number > before.epoch.number
        ended = () if before is None or before.total is None else (before.total,)
        self.store(
            BeginEpoch(len(epoch.members), first=before is None),
            part=part,
            accepted=tuple(each for each in record.accepted if each.epoch.number > epoch.number),
            begun=(*record.begun, epoch.digest),
            past=(*ended, *record.past),
        )
        self.forget_secrets()
        self.change(rows={}, partials={}, trouble="")
        self.go(Phase.RUNNING)
        draft = self.state.draft
        if draft is not None and draft.number > epoch.number:
            self.go(Phase.CHANGING)
        else:
            self.change(next=None, accepted=frozenset())
        self.publish_acceptances()
        self.publish_past()
        self.read_messages(self.state.heard)  # that came before
        self.add_past()

    def forget_secrets(self) -> None:
        """Delete an opener's secret keys of the epochs before the one that it is in."""
        part, secrets = self.part, self.state.vault.secrets
        assert part is not None
        remaining = {number: secret for number, secret in secrets.items() if number >= part.epoch.number}
        if remaining != secrets:
            self.keep(secrets=remaining)

    # --- the past ------------------------------------------------------------------------------------

    def publish_past(self) -> None:
        """Publish the totals of earlier epochs that we learn from, the latest first, as many as fit."""
        part, past = self.part, self.state.record.past
        if part is None or not past:
            return
        count, size = 0, HEADERS
        for total in past:
            size += len(msgspec.msgpack.encode(total)) + 8
            if size > LARGEST:
                break
            count += 1
        message = Past(past_place(part.epoch.federation), self.name, past[:count])
        self.publish(PAST, sign(message, self.key))

    def add_past(self) -> None:
        """Learn from totals of epochs that we have not begun, if c + 1 confirmed members sign them alike."""
        part = self.part
        if part is None or self.state.phase is Phase.HALTED:
            return
        signers: dict[PastTotal, set[str]] = {}
        for name, public in part.epoch.members.items():
            place = aggregation_key(name, PAST)
            signed = self.state.heard.get(place)
            if signed is None or name == self.name or self.state.confirmed.get(name) != public:
                continue
            try:
                where = past_place(part.epoch.federation)
                past = verified(signed, Past, epoch=where, name=name, public=public)
            except MessageRefused as error:
                self.refuse_once(place, error)
                continue
            for total in past.totals:
                signers.setdefault(total, set()).add(name)
        for total in sorted(signers, key=lambda each: (each.number, each.round), reverse=True):
            record = self.state.record
            epochs = {*record.begun, *(each.epoch for each in record.past)}
            enough = len(signers[total]) > part.epoch.colluding
            if enough and total.epoch not in epochs and self.is_credible(part.epoch, total):
                totals = sorted((total, *record.past), key=lambda each: each.number, reverse=True)
                self.store(AddPast(total), past=tuple(totals))
                self.publish_past()

    def is_credible(self, epoch: Epoch, total: PastTotal) -> bool:
        """Whether a total has the size of this federation's rows, and can be one of so many members."""
        sizes = len(total.values) == 8 * epoch.entries and 1 <= total.round <= epoch.rounds
        if not sizes or total.members < epoch.honest + epoch.colluding:
            return False
        return self.state.identity.plausible(as_integers(from_bytes(total.values)), total.members)


def _acceptances(message: bytes) -> list[bytes]:
    """The signed acceptances of a member: of the epoch that it is in, and of the next."""
    try:
        return msgspec.msgpack.decode(message, type=list[bytes])
    except (msgspec.MsgspecError, RecursionError):
        raise MessageRefused("the message is not a list of acceptances of this version") from None


def vault_trouble(federation: str, name: str, record: Record, vault: Vault | None) -> str:
    """Why a member can't go on with this record and this vault; empty if it can."""
    if vault is None:
        text = f"the vault of {name!r} is missing or damaged, and its database has rows that were sent"
        return f"{text}: put the vault back; without it {CANNOT_CONTINUE}" if record.mark else ""
    another = (vault.federation, vault.name) != (federation, name)
    unknown = record.vault != vault.id and (record.mark or vault.mark)
    if another or (unknown and record.vault):
        text = f"the vault of {name!r} is another one than its database belongs to"
        return f"{text}: put the right one back; without it {CANNOT_CONTINUE}"
    if unknown or vault.mark not in (record.mark, record.mark_before):
        where = f"row {vault.round} of epoch {vault.epoch}" if vault.mark else "no row"
        return (
            f"the vault of {name!r} knows {where} as the last that was sent, and its database does not: one "
            f"of them was restored from a backup. Put the latest back; without it {CANNOT_CONTINUE}"
        )
    return ""


def no_key(name: str, epoch: int) -> str:
    """The error of an opener that has lost its vault before it sent a row."""
    return (
        f"the vault of {name!r} has no key of epoch {epoch}, so it can't open anything in it: ask the "
        "convener for a later roster"
    )
