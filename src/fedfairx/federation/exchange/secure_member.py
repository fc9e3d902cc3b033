"""A member of a federation with secure aggregation: it sends rows at public times and learns their totals.

It delivers the messages of `aggregation.participant`. The transport keeps only the latest of each kind
(`transport.protocol.AGGREGATION`): rows are cumulative, so a round that not all members have sent, or that an
opener has missed, is superseded by a later one. A member that was away takes up at the round that is due. The
rounds that it has missed have empty leaves and noise of their own, so that row k is of round k for everybody.

A row is in the ledger, and with its shares in the database, before it is sent. While a member or an opener is
away there are no new totals. Decisions go on with the last one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.core.statistics import packed_size
from fedfairx.errors import (
    InvalidInput,
    LedgerMismatch,
    MessageRefused,
    PrivacyError,
    StateError,
    TransportUnavailable,
)
from fedfairx.federation.aggregation.agreement import (
    Agreement,
    epoch_of,
    opener_key,
    read_opener_key,
)
from fedfairx.federation.aggregation.messages import Partial, Row, parse, read
from fedfairx.federation.aggregation.participant import Participant
from fedfairx.federation.aggregation.records import FileRecords, MemoryRecords, Records, SqlRecords, Stores
from fedfairx.federation.aggregation.shares import Integers
from fedfairx.federation.exchange.alive import AHEAD, ATTEMPTS, SILENT, SignsOfLife
from fedfairx.federation.exchange.background import Wakeup, in_turn, repeat
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Peer
from fedfairx.federation.exchange.seen import Seen
from fedfairx.federation.roster.signing_keys import SigningKey
from fedfairx.federation.transport.protocol import (
    ACCEPTED,
    OPENER,
    PARTIAL,
    ROW,
    Conflict,
    Transport,
    aggregation_key,
    alive_key,
)
from fedfairx.privacy import Release
from fedfairx.privacy.mechanisms.noise_share import RANGE_BITS
from fedfairx.storage.privacy_ledger import LogDatabase

ROWS_KEPT = 4, 64  # the least and most of each member's latest rows that an opener keeps for those to come
IN_TIME = SILENT + AHEAD  # seconds since a peer's last sign of life by our clock, if that is right
LEAVES = 64  # missed rounds that are made up for in one transaction, for which decisions wait


@dataclass(frozen=True)
class Progress:
    """How far the rounds are, and who is waited for.

    due: the last round whose time has come; 0 before the first.
    sent: the last round of which this member has made its row.
    opened: the last round whose total is known; 0 before the first.
    records: number of all members' records in it.
    next_time: when the next round begins, in seconds since 1970; None after the last.
    unconfirmed: why this member's operator has to confirm members; empty once that is done.
    keys, acceptances: openers without a key, and members that have not accepted the roster, before the start.
    rows, partials: members without a row of the round that is due, or with one of a round that is far from
        due; then openers without their part of it.
    """

    due: int = 0
    sent: int = 0
    opened: int = 0
    records: int = 0
    next_time: int | None = None
    unconfirmed: str = ""
    keys: tuple[str, ...] = ()
    acceptances: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    partials: tuple[str, ...] = ()

    @property
    def waits_for(self) -> dict[str, str]:
        """Whom the next total waits for, and for what of theirs."""
        found: dict[str, str] = {}
        for what in ("keys", "acceptances", "rows", "partials"):
            for name in getattr(self, what):
                found.setdefault(name, what[:-1])
        return found


@dataclass
class _Latest:
    """Numbers of the latest verified row of each member, and partial of each opener."""

    rows: dict[str, int] = field(default_factory=dict)
    partials: dict[str, int] = field(default_factory=dict)


class SecureMember:
    """Connects `agent` to the other members by a `transport`; `key` is the member's signing key.

    Call `exchange` when the transport's `watch` calls, and at intervals. Threads may share a member.

    confirmed: returns the members that this member's operator has confirmed by name.
    vault: an opener's records outside of all backups; None for other members.

    refusals: number of refused messages, by sender and reason.
    rejected: why the message that the transport holds now is refused, by its name there.
    away: why the transport is unavailable; None while it is not.
    signs: the signs of life of the peers.
    progress: how far the rounds are, as of the last exchange.

    Guarantees:
    - Nothing of a row but encrypted shares and a digest leaves this member.
    - A row is durable, in the ledger and with its shares, before it is sent. A round has one row.
    - Nothing is sent before all members have accepted the roster, nor before this member's operator has
      confirmed as many of them as the claim needs.
    """

    def __init__(
        self,
        agent: Agent,
        transport: Transport,
        seal: SignedCodec,
        key: SigningKey,
        *,
        confirmed: Callable[[], Collection[str]],
        vault: Records | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        roster, stream = seal.roster, agent.privatizer.stream
        share, rounds = roster.terms.share, roster.terms.rounds
        if share is None or rounds is None or stream is None or stream.mechanism.share != share:
            raise InvalidInput("agent must be one of the roster's terms, with secure aggregation")
        self.agent, self.transport, self.clock = agent, transport, clock
        self.signs = SignsOfLife()
        self.away: str | None = None
        self.rejected: dict[str, str] = {}
        self.progress = Progress()
        self._seal, self._key, self._confirmed = seal, key, confirmed
        self._share, self._rounds, self._stream = share, rounds, stream
        self._limits = seal.limits
        self._noisiest = 1 + int(np.argmax(stream.mechanism.sd(np.arange(1, rounds.count + 1))))
        self._refused: Counter[tuple[str, str]] = Counter()
        self._looked_at: dict[str, bytes] = {}
        self._latest = _Latest()
        self._lock = threading.RLock()
        self._wakeup = Wakeup()
        self._there: dict[str, bytes] = {}  # our messages in the transport, as far as we know
        self._row = b""  # our latest one; empty before the first
        self._noted = b""  # our row that the ledger counts as sent
        self._unconfirmed = ""
        self._alone = False  # whether rounds would be passed over by our clock alone
        self._without_key = roster.openers
        self._participant: Participant | None = None
        self._records, self._vault = _records_of(agent), vault
        self._stores = Stores(agent.name, self._records, vault)
        made = agent.privatizer.spent
        if made > agent.released:  # the ledger is ahead of a newly made agent
            agent.release(made)
        with agent.transaction():
            Seen(agent, roster).admit(roster)
            agent.bound = roster.federation
        held = agent.held.get(TOTAL) or agent.held.get(OTHERS)
        self._absorbed = 0 if held is None else held.number
        self._keys = self._stored_keys()
        if agent.name in roster.openers and agent.name not in self._keys:
            self._keys[agent.name] = opener_key(
                roster.federation, roster.version, key=key, stores=self._stores
            )

    # --- the agreement -------------------------------------------------------------------------------

    @property
    def _keys_place(self) -> str:
        return f"{self.agent.name}/{self._seal.roster.federation}/{self._seal.roster.version}/keys"

    def _stored_keys(self) -> dict[str, bytes]:
        """The signed keys of all openers, once this member has accepted them; before that none."""
        held = self._records.get(self._keys_place)
        if held is None or not self._stores.accepted(self._seal.roster.federation):
            return {}
        return msgspec.msgpack.decode(held, type=dict[str, bytes])

    def _agree(self, messages: Mapping[str, bytes]) -> None:
        """Accept the epoch once all openers' keys are here and the operator has confirmed enough members."""
        roster = self._seal.roster
        keys = {name: self._opener_key(name, messages) for name in roster.openers}
        self._without_key = tuple(name for name, signed in keys.items() if not signed)
        if self._without_key:
            return
        width = packed_size(self.agent.dimension + (self._stream.centring is not None))
        try:
            epoch = epoch_of(
                roster, keys, entries=width + 1, rounds=self._rounds.count, honest=self._share.honest
            )
            agreement = Agreement(epoch, self._stores)
            self._keep_keys(keys)
            agreement.accept(self._key, confirmed=self._confirmed())
        except (PrivacyError, InvalidInput, StateError) as error:
            self._unconfirmed = str(error)
            return
        self._keys, self._unconfirmed = keys, ""
        self._participant = Participant(agreement, self._key, plausible=self._plausible)
        for message in self._participant.outbox():
            self._participant.receive(message)

    def _keep_keys(self, keys: Mapping[str, bytes]) -> None:
        """Store the openers' keys before they are accepted."""
        content = msgspec.msgpack.encode(keys)
        if self._records.get(self._keys_place) != content:
            self._records.put({self._keys_place: content})

    def _opener_key(self, name: str, messages: Mapping[str, bytes]) -> bytes:
        """The signed key of an opener; empty if it has not come, or is refused."""
        place = aggregation_key(name, OPENER)
        message = self._keys.get(name) or messages.get(place, b"")
        if not message or (self._looked_at.get(place) == message and place in self.rejected):
            return b""
        self._looked_at[place] = message
        self.rejected.pop(place, None)
        try:
            read_opener_key(self._seal.roster, name, message)
        except MessageRefused as error:
            self._refused[name, error.reason] += 1
            self.rejected[place] = error.reason
            return b""
        return message

    # --- sending -------------------------------------------------------------------------------------

    def _make_row(self) -> None:
        """Make the row of the round that is due, if it is new. Rounds that were missed get empty leaves."""
        part, self._alone = self._participant, False
        if part is None or not part.agreement.complete or part.sender.halted:
            return
        due = self._rounds.number(self.clock())
        if due <= part.sender.last or due < self.agent.released:  # the clock may have gone back
            return
        if due > max(part.sender.last, *self._latest.rows.values(), 0) + 1 and not self._in_time:
            self._alone = True
            return
        while self.agent.released < due:
            with self.agent.transaction():
                for _ in range(min(LEAVES, due - self.agent.released)):
                    self.agent.release()
        row = self._integers(self.agent.past_release(due))
        try:
            part.send(due, row, place=self._stream.ledger.place(due))
        except LedgerMismatch:
            if not part.sender.halted:
                raise

    @property
    def _in_time(self) -> bool:
        """Whether a peer's clock agrees with ours, by its last sign of life."""
        return any(self.clock() - moment <= IN_TIME for moment in self.signs.last.values())

    def _integers(self, release: Release) -> Integers:
        """A row as integers: the statistics in steps of the grid, and the number of records."""
        steps = np.rint(release.packed / self._share.step)
        if not np.array_equal(steps * self._share.step, release.packed):
            raise PrivacyError(f"row {release.number} must lie on the grid of the terms")
        return np.append(steps.astype(np.int64), np.int64(release.count))

    def _outbox(self) -> dict[str, bytes]:
        """Our messages at the transport as they should be, by kind."""
        own, part = self.agent.name, self._participant
        found: dict[str, bytes] = {}
        if own in self._seal.roster.openers:
            found[OPENER] = self._keys[own]
        if part is not None:
            found[ACCEPTED] = part.agreement.signed
            if part.sender.last:
                (found[ROW],) = part.sender.messages(part.sender.last)  # the latest, as it was recorded
            if part.opener is not None and part.opener.partial:
                found[PARTIAL] = part.opener.partial
        return found

    def _publish(self, messages: Mapping[str, bytes]) -> None:
        outbox = self._outbox()
        self._row = outbox.get(ROW, b"")
        for kind, message in outbox.items():
            place = aggregation_key(self.agent.name, kind)
            held: bytes | None = messages.get(place)
            for _ in range(ATTEMPTS):
                if held == message or (kind == ROW and self.halted is not None):
                    break
                try:
                    self.transport.publish(place, message, replacing=held)
                    held = message
                except Conflict as taken:  # an earlier process has left it, or a second instance runs
                    held = taken.held
                    self._receive(place, held)
            if held == message:
                self._there[kind] = message
                if kind == ROW and self._noted != message:  # an earlier process may not have noted it
                    self._stream.acknowledge()
                    self._noted = message
            else:
                self._there.pop(kind, None)

    @property
    def waiting(self) -> bool:
        """Whether the transport lacks our latest row."""
        return self._there.get(ROW, b"") != self._row

    @property
    def halted(self) -> str | None:
        """Why no row is sent any more; None while rows are."""
        return None if self._participant is None else self._participant.sender.halted or None

    @property
    def trouble(self) -> str:
        """Why no row is sent now, or why this opener can't open totals; empty if all is well."""
        if self._alone:
            return (
                "rounds were passed over by all members, or the clock here is ahead: no row is sent before a "
                f"peer gives a sign of life that is at most {IN_TIME:.0f} s old by the clock here"
            )
        return "" if self._participant is None else self._participant.trouble

    # --- receiving -----------------------------------------------------------------------------------

    def _take(self, messages: Mapping[str, bytes]) -> None:
        for name in self._seal.roster.members:
            self._take_sign(name, messages.get(alive_key(name)))
            for kind in (ACCEPTED, ROW, PARTIAL):
                place = aggregation_key(name, kind)
                self._receive(place, messages.get(place))

    def _take_sign(self, name: str, message: bytes | None) -> None:
        place = alive_key(name)
        if message is None or name == self.agent.name or self._looked_at.get(place) == message:
            return
        self._looked_at[place] = message
        self.rejected.pop(place, None)
        try:
            self.signs.take(name, self._seal.open_sign_of_life(name, message), now=self.clock())
        except MessageRefused as error:
            self._refused[name, error.reason] += 1
            self.rejected[place] = error.reason

    def _receive(self, place: str, message: bytes | None) -> None:
        """Hand a message to the participant, once."""
        part = self._participant
        if part is None or message is None or self._looked_at.get(place) == message:
            return
        self._looked_at[place] = message
        self.rejected.pop(place, None)
        before = Counter(part.refusals)
        part.receive(message)
        for _, reason in part.refusals - before:
            self.rejected[place] = reason
        self._note(message)

    @property
    def _rows_kept(self) -> int:
        """How many of each member's rows an opener keeps: members' clocks may differ by `AHEAD` seconds."""
        now, (least, most) = self.clock(), ROWS_KEPT
        within = self._rounds.number(now + AHEAD) - self._rounds.number(now - AHEAD)
        return min(max(within, least), most)

    def _note(self, message: bytes) -> None:
        """Note the round of a row or partial, by which members are waited for."""
        assert self._participant is not None
        epoch, numbers = self._participant.epoch, self._latest.rows
        sent: Row | Partial | None = None
        with contextlib.suppress(MessageRefused):
            match parse(message):
                case Row():
                    sent = read(message, Row, epoch)
                case Partial():
                    sent, numbers = read(message, Partial, epoch), self._latest.partials
        if sent is not None:
            numbers[sent.name] = max(sent.number, numbers.get(sent.name, 0))

    # --- totals --------------------------------------------------------------------------------------

    def _release_of(self, number: int, values: Integers) -> Release:
        """A total of rows as a release."""
        steps, count = values[:-1].astype(np.float64), int(values[-1])
        return Release(number, steps * self._share.step, count, self._stream.mechanism.digest())

    def _plausible(self, values: Integers) -> bool:
        """Whether records of all members within the terms' bounds, and noise, can have this total."""
        inside = bool((np.abs(values.astype(np.float64)) < 2.0**RANGE_BITS).all())
        if not inside or values[-1] < 0:
            return False
        total = self._release_of(self._noisiest, values)
        opened = replace(total, packed=self._stream.opened(total.packed, total.count))
        try:
            self._limits.check(TOTAL, opened)
        except MessageRefused:
            return False
        return True

    def _absorb(self) -> None:
        """Learn from the last total, in the place of the one before."""
        total = None if self._participant is None else self._participant.total
        if total is None or total.number <= self._absorbed:
            return
        try:
            with self.agent.transaction():
                self.agent.absorb({TOTAL: self._release_of(total.number, total.values)})
        except MessageRefused as error:
            self._refused["?", error.reason] += 1
        self._absorbed = total.number

    # --- both ----------------------------------------------------------------------------------------

    def exchange(self) -> bool:
        """Make the row that is due, send and receive; False if the transport is unavailable."""
        with self._lock:
            try:
                messages = self.transport.latest()
                if self._participant is None:
                    self._agree(messages)
                self._take(messages)
                if self._participant is not None:
                    self._participant.keep_rows(self._rows_kept)
                self._make_row()
                self._publish(messages)
                self.away = None
            except TransportUnavailable as error:
                self.away = str(error)
            finally:
                self._absorb()
                self.progress = self._progress()
            return self.away is None

    def _progress(self) -> Progress:
        part, now = self._participant, self.clock()
        due, next_time = self._rounds.number(now), self._rounds.next_time(now)
        if part is None:
            why, keys = self._unconfirmed, self._without_key
            return Progress(due, next_time=next_time, unconfirmed=why, keys=keys)
        total = part.total
        reached = Progress(
            due=due,
            sent=part.sender.last,
            opened=0 if total is None else total.number,
            records=0 if total is None else int(total.values[-1]),
            next_time=next_time,
        )
        if not part.agreement.complete:
            return replace(reached, acceptances=tuple(part.agreement.missing))
        if reached.opened >= due:
            return reached
        rows = self._latest.rows | {self.agent.name: reached.sent}
        future = self._rounds.number(now + AHEAD)  # a row from beyond was sent by a wrong clock
        without = tuple(name for name in part.epoch.members if not due <= rows.get(name, 0) <= future)
        if without:
            return replace(reached, rows=without)
        partials = self._latest.partials
        if part.opener is not None:
            partials = partials | {self.agent.name: part.opener.last}
        return replace(
            reached, partials=tuple(name for name in part.epoch.openers if partials.get(name, 0) < due)
        )

    def show_life(self) -> None:
        """Renew this member's sign of life at the transport."""
        sign = self._seal.close_sign_of_life
        self.signs.renew(self.transport, self.agent.name, sign, now=self.clock())

    def watch(self, *, every: float = 1.0, after: Callable[[], None] | None = None) -> Callable[[], None]:
        """Call `exchange` in a thread, on news and every `every` seconds; return a function that stops it.

        After each exchange it calls `after`, and rests so that it takes at most a fifth of a core.
        """

        def failed(why: str) -> None:
            self.away = why

        work = in_turn((self.exchange, self.show_life), failed, after)
        return repeat(work, self.transport, self._wakeup, every=every, name=self.agent.name)

    @property
    def message(self) -> None:
        """None: there is no release that an external engine could carry."""
        return

    @property
    def sign_of_life(self) -> bytes:
        """A sign of life of now."""
        return self._seal.close_sign_of_life(self.clock())

    def follow(self, seal: SignedCodec) -> None:
        """Take the roster again, which must be the one in use."""
        seal.roster.require_follows(self._seal.roster)

    def wake(self) -> None:
        """Have the thread of `watch` exchange at once; return without waiting for it."""
        self._wakeup.skip_rest()

    def close(self) -> None:
        """Close the transport, and release an opener's vault."""
        self.transport.close()
        self.close_vault()

    def close_vault(self) -> None:
        """Let another process open an opener's vault."""
        if isinstance(self._vault, FileRecords):
            self._vault.close()

    @property
    def refusals(self) -> Counter[tuple[str, str]]:
        part, found = self._participant, Counter(dict(self._refused))
        found.update({} if part is None else dict(part.refusals))
        return found

    @property
    def peers(self) -> dict[str, Peer]:
        """The other members, by name, with the round of their latest row; their records are not known."""
        alive, rows = dict(self.signs.last), dict(self._latest.rows)
        refused: Counter[str] = Counter()
        for (name, _), times in self.refusals.items():
            refused[name] += times
        others = [name for name in self._seal.roster.members if name != self.agent.name]
        return {name: Peer(rows.get(name, 0), 0, None, refused[name], alive.get(name)) for name in others}


def _records_of(agent: Agent) -> Records:
    """Records in the agent's database, in the transactions of its ledger; in memory where it has none."""
    if not agent.durable:
        return MemoryRecords()
    return SqlRecords(LogDatabase(agent.journal.log), "aggregation")
