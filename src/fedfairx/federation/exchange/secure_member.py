"""A member of a federation with secure aggregation: it sends rows at public times and learns their totals.

`aggregation.machine` says what a member does. This carries events to it and its effects out: it reads the
transport, the clock and the operator's confirmations, makes rows by the agent's ledger, and writes database,
vault and messages in the order that the machine gives.

The transport keeps only the latest message under each name: rows are cumulative, so a round that not all
members have sent, or that an opener has missed, is superseded by a later one. A member that was away takes up
at the round that is due. The rounds that it has missed have empty leaves and noise of their own, so that row
k is of round k for everybody. While a member or an opener is away there are no new totals. Decisions go on
with the last one.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import msgspec
import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.exchange import TOTAL
from fedfairx.errors import (
    InvalidInput,
    MessageRefused,
    PrivacyError,
    StateError,
    TransportRefused,
    TransportUnavailable,
)
from fedfairx.federation.aggregation.epoch import Draft
from fedfairx.federation.aggregation.machine import (
    Absorb,
    AddPast,
    BeginEpoch,
    Came,
    Effect,
    Event,
    Keep,
    MakeRow,
    MemberIdentity,
    Phase,
    Publish,
    Refuse,
    RosterTaken,
    RowMade,
    State,
    Store,
    Tick,
    start,
    step,
)
from fedfairx.federation.aggregation.progress import latest_rows, progress_of
from fedfairx.federation.aggregation.records import (
    FileStore,
    MemoryStore,
    SqlStore,
    ValueStore,
    record_in,
    vault_in,
)
from fedfairx.federation.aggregation.shares import Integers, as_integers, from_bytes
from fedfairx.federation.exchange.alive import AHEAD, ATTEMPTS, silence
from fedfairx.federation.exchange.connection import Connection
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Peer
from fedfairx.federation.exchange.seen import Seen
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SigningKey
from fedfairx.federation.transport.protocol import (
    AGGREGATION,
    PARTIAL,
    ROW,
    Conflict,
    Transport,
    aggregation_key,
    alive_key,
    row_key,
)
from fedfairx.privacy import Budget, Privatizer, Release, SimulatedNoise, StreamPrivatizer
from fedfairx.privacy.mechanisms.noise_share import RANGE_BITS
from fedfairx.storage.transaction_log import Log

LEAVES = 64  # missed rounds that are made up for in one transaction, for which decisions wait


class SecureMember(Connection):
    """Connects `agent` to the other members by a `transport`; `key` is the member's signing key.

    Call `exchange` when the transport's `watch` calls, and at intervals. Threads may share a member.

    confirmed: returns the keys of the members that this member's operator has confirmed, by name.
    vault: a place outside of the agent's database and of all backups.

    progress: how far the rounds are, as of the last exchange.

    Guarantees:
    - Nothing of a row but encrypted shares and digests leaves this member, each share for its opener alone.
    - A row is durable, in the ledger, with its shares in the database and by its digest in the vault, before
      it is sent. A round has one row.
    - Nothing is sent before all members have accepted the epoch, nor before this member's operator has
      confirmed, with their keys, as many of them as the claim needs.
    - A record is in rows of one epoch only.
    """

    def __init__(
        self,
        agent: Agent,
        transport: Transport,
        seal: SignedCodec,
        key: SigningKey,
        *,
        confirmed: Callable[[], Mapping[str, str]],
        vault: ValueStore,
        clock: Callable[[], float] = time.time,
    ) -> None:
        share, stream = seal.roster.terms.share, agent.privatizer.stream
        own = None if stream is None else stream.mechanism.share
        if share is None or own is None or replace(own, members=share.members) != share:
            raise InvalidInput("agent must be one of the roster's terms, with secure aggregation")
        super().__init__(agent, transport, seal, clock)
        self._seal: SignedCodec = seal
        self._share, self._confirmed, self._vault = share, confirmed, vault
        self._limits = {share.members: seal.limits}  # of totals, by number of members
        rounds = np.arange(1, seal.roster.terms.releases + 1)
        self._noisiest = 1 + int(np.argmax(self._stream.mechanism.sd(rounds)))
        federation = seal.roster.federation
        self._identity = MemberIdentity(federation, agent.name, key, self._plausible)
        self._record: ValueStore = MemoryStore()
        if agent.durable:
            self._record = record_store(agent.journal.log, agent.name, federation)
        self._outbox: dict[str, bytes] = {}  # our messages as the transport should hold them
        self._there: dict[str, bytes] = {}  # as it does, as far as we know
        self._noted = b""  # our row that the ledger counts as sent
        self._unreadable = ""  # why confirmations can't be read
        spent = agent.privatizer.spent
        if spent > agent.released:  # the ledger is ahead of a newly made agent
            agent.release(spent)
        self._admit(seal.roster)
        self._state: State | None = None  # None: read it from the stores
        self.progress = progress_of(self._started(), clock())

    def _admit(self, roster: Roster) -> None:
        with self.agent.transaction():
            Seen(self.agent, roster).admit(roster)
            self.agent.bound = roster.federation

    @property
    def _stream(self) -> StreamPrivatizer:
        stream = self.agent.privatizer.stream
        assert stream is not None
        return stream

    # --- the machine ---------------------------------------------------------------------------------

    def _started(self) -> State:
        """The state, read from the stores at first, and after a step that failed."""
        if self._state is None:
            self._looked_at.clear()
            stored = record_in(self._record), vault_in(self._vault)
            state, effects = start(self._identity, *stored, random=secrets.token_bytes(16))
            self._do(state, effects)
            self._step(RosterTaken(Draft.of(self._seal.roster), secrets.token_bytes(32)))
        assert self._state is not None
        return self._state

    def _step(self, event: Event) -> None:
        assert self._state is not None
        self._do(*step(self._state, event, self.clock()))

    def _do(self, state: State, effects: Iterable[Effect]) -> None:
        """Carry out the effects in their order. If one fails, the state is read again from the stores."""
        due = 0
        try:
            for effect in effects:
                match effect:
                    case Store(record, change):
                        with self.agent.transaction():
                            if change is not None:
                                self._change_agent(change)
                            self._record.write(msgspec.msgpack.encode(record))
                    case Keep(vault):
                        self._vault.write(msgspec.msgpack.encode(vault))
                    case Publish(place, message):
                        self._outbox[place] = message
                    case MakeRow(number):
                        due = number
                    case Refuse(place, sender, reason):
                        is_member = sender in self._seal.roster.members
                        self._refuse(sender if is_member else "?", reason, key=place)
        except BaseException:
            self._state = None
            raise
        self._state = state
        if due:
            self._step(self._make_row(due))

    def _change_agent(self, change: BeginEpoch | Absorb | AddPast) -> None:
        match change:
            case BeginEpoch(members, first):
                share = self._stream.mechanism.share
                assert share is not None
                if not first or self.agent.released or share.members != members:
                    self.agent.begin_epoch(self._new_run(members))
                self._drop_published()
            case Absorb(number, values):
                try:
                    self.agent.absorb({TOTAL: self._release_of(number, values)})
                except MessageRefused as error:
                    self._refuse("?", error.reason)
            case AddPast(total):
                values = as_integers(from_bytes(total.values))
                self.agent.add_total(self._release_of(total.round, values), members=total.members)

    def _drop_published(self) -> None:
        """Publish no row and no partial of the epoch before any more."""
        for place in [*self._outbox]:
            _, _, kind = place.partition(".")
            if kind == PARTIAL or kind.startswith(f"{ROW}."):
                del self._outbox[place]

    def _new_run(self, members: int) -> Budget | Privatizer:
        """What the agent makes the rows of an epoch with, among this many members."""
        terms, noise = self._seal.roster.terms, self._stream.noise
        if self.agent.durable:
            return terms.budget(members=members)
        if isinstance(noise, SimulatedNoise):
            noise = noise.of_next_run()
        return terms.privatizer(noise, members=members)

    # --- rows and totals -----------------------------------------------------------------------------

    def _make_row(self, number: int) -> RowMade:
        """The row of a round by the ledger. Rounds that were missed get empty leaves."""
        while self.agent.released < number:
            with self.agent.transaction():
                for _ in range(min(LEAVES, number - self.agent.released)):
                    self.agent.release()
        values = self._integers(self.agent.past_release(number))
        return RowMade(number, values, self._stream.ledger.place(number), secrets.token_bytes(32))

    def _integers(self, release: Release) -> Integers:
        """A row as integers: the statistics in steps of the grid, and the number of records."""
        steps = np.rint(release.packed / self._share.step)
        if not np.array_equal(steps * self._share.step, release.packed):
            raise PrivacyError(f"row {release.number} must lie on the grid of the terms")
        return np.append(steps.astype(np.int64), np.int64(release.count))

    def _release_of(self, number: int, values: Integers) -> Release:
        """A total of rows as a release."""
        steps, count = values[:-1].astype(np.float64), int(values[-1])
        return Release(number, steps * self._share.step, count, self._stream.mechanism.digest())

    def _plausible(self, values: Integers, members: int) -> bool:
        """Whether records of this many members within the terms' bounds, and noise, can have a total."""
        inside = bool((np.abs(values.astype(np.float64)) < 2.0**RANGE_BITS).all())
        if not inside or values[-1] < 0:
            return False
        total = self._release_of(self._noisiest, values)
        opened = replace(total, packed=self._stream.opened(total.packed, total.count))
        try:
            if members not in self._limits:
                self._limits[members] = self._seal.roster.terms.limits_of_totals(members)
            self._limits[members].check(TOTAL, opened)
        except (MessageRefused, InvalidInput):
            return False
        return True

    # --- sending and receiving -----------------------------------------------------------------------

    def exchange(self) -> bool:
        """Make the row that is due, send and receive; False if the transport is unavailable."""
        with self._lock:
            try:
                messages = self.transport.latest()
                self._started()
                self._receive(messages)
                self._step(Tick(self._confirmed_keys(), self._alive()))
                self._publish(messages)
                self.away = None
            except TransportUnavailable as error:
                self.away = str(error)
            except TransportRefused as error:
                self.away = str(error)
                raise
            finally:
                if self._state is not None:
                    reached = progress_of(self._state, self.clock())
                    if self._unreadable:
                        reached = replace(reached, unconfirmed=self._unreadable)
                    self.progress = reached if self.away is None else reached.without_names()
            return self.away is None

    def _receive(self, messages: Mapping[str, bytes]) -> None:
        """Take the messages that are new."""
        own, news = self.agent.name, {}
        for name in self._seal.roster.members:
            sign = messages.get(alive_key(name))
            if name != own and sign is not None and self._looked_at.get(alive_key(name)) != sign:
                self._take_sign(name, sign)
        for name in self._everybody():
            places = [aggregation_key(name, kind) for kind in AGGREGATION if name != own]
            places.append(row_key(name, own))
            for place in places:
                message = messages.get(place)
                if message is not None and self._looked_at.get(place) != message:
                    self.rejected.pop(place, None)
                    news[place] = self._looked_at[place] = message
        if news:
            self._step(Came(news))

    def _everybody(self) -> Iterable[str]:
        """All members of the roster, and of the epoch that this member is in."""
        part = None if self._state is None else self._state.record.part
        return {**self._seal.roster.members, **({} if part is None else part.epoch.members)}

    def _confirmed_keys(self) -> Mapping[str, str]:
        try:
            confirmed, self._unreadable = self._confirmed(), ""
        except (StateError, OSError) as error:
            confirmed, self._unreadable = {}, str(error)
        return confirmed

    def _alive(self) -> frozenset[str]:
        """The members whose last sign of life is not old, by our clock."""
        now, oldest = self.clock(), self._oldest_sign()
        return frozenset(name for name, moment in self.signs.last.items() if now - moment <= oldest)

    def _oldest_sign(self) -> float:
        """Seconds since the last sign of life of a member that is there, if our clock is right."""
        return silence(self.signs.members) + AHEAD

    def _publish(self, messages: Mapping[str, bytes]) -> None:
        for place, message in [*self._outbox.items()]:
            stored: bytes | None = messages.get(place)
            for _ in range(ATTEMPTS):
                if stored == message or self.halted is not None:
                    break
                try:
                    self.transport.publish(place, message, replacing=stored)
                    stored = message
                except Conflict as conflict:  # an earlier process has left it, or a second instance runs
                    stored = conflict.held
                    if stored is not None and self._looked_at.get(place) != stored:
                        self._looked_at[place] = stored
                        self._step(Came({place: stored}))
            if stored == message:
                self._there[place] = message
            else:
                self._there.pop(place, None)
        part = None if self._state is None else self._state.record.part
        if part is not None and part.row != self._noted and not self.waiting:
            self._stream.acknowledge()  # an earlier process may not have noted it
            self._noted = part.row

    def show_life(self) -> None:
        """Renew this member's sign of life, unless it can't send or open: others would make rows for nothing.

        So it shows none while it is halted, lacks an opener's key, or can't use its database or its vault.
        """
        state = self._state
        if state is not None and state.phase is not Phase.HALTED and not state.trouble:
            super().show_life()

    @property
    def waiting(self) -> bool:
        """Whether the transport lacks our latest row."""
        rows = [place for place in [*self._outbox] if f".{ROW}." in place]
        return any(self._there.get(place) != self._outbox.get(place) for place in rows)

    @property
    def halted(self) -> str | None:
        """Why this member makes no row and opens nothing any more; None while it does."""
        state = self._state
        return None if state is None or state.phase is not Phase.HALTED else state.halted

    @property
    def trouble(self) -> str:
        """Why no row is sent now, or why this opener can't open totals; empty if all is well."""
        state, signs = self._state, self.progress.signs
        if state is None:
            return ""
        part = state.record.part
        if part is not None and len(signs) == len(part.epoch.members) - 1:
            return (
                "all other members are away, or the clock here is ahead: no row is made before they give "
                f"signs of life that are at most {self._oldest_sign():.0f} s old by the clock here"
            )
        return state.trouble

    @property
    def message(self) -> None:
        """None: there is no release that an external engine could carry."""
        return

    def follow(self, seal: SignedCodec, *, confirmed: Callable[[], Mapping[str, str]] | None = None) -> None:
        """Take a later version of the roster. Its epoch begins when all members have accepted it.

        confirmed: as before unless it is given.
        """
        with self._lock:
            seal.roster.require_follows(self._seal.roster)
            if seal.roster.version == self._seal.roster.version:
                return
            self._started()
            self._admit(seal.roster)
            self._seal, self._confirmed = seal, confirmed or self._confirmed
            self._looked_at.clear()
            self.rejected.clear()
            self._step(RosterTaken(Draft.of(seal.roster), secrets.token_bytes(32)))

    def close(self) -> None:
        """Close the transport, and let another process open the vault."""
        super().close()
        self.close_vault()

    def close_vault(self) -> None:
        """Let another process open the vault."""
        if isinstance(self._vault, FileStore):
            self._vault.close()

    @property
    def peers(self) -> dict[str, Peer]:
        """The other members, by name, with the round of their latest row; their records are not known."""
        alive, state = dict(self.signs.last), self._state
        rows = {} if state is None else latest_rows(state)
        refused: Counter[str] = Counter()
        for (name, _), times in [*self.refusals.items()]:
            refused[name] += times
        others = [name for name in self._seal.roster.members if name != self.agent.name]
        return {
            name: Peer(rows.get(name, 0), alive=alive.get(name), refused=refused[name]) for name in others
        }


def record_store(log: Log, name: str, federation: str) -> SqlStore:
    """Where a member's record is in the database of a log."""
    return SqlStore(log, f"{name}/{federation}")
