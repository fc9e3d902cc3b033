"""A member of a federation with secure aggregation: it sends rows at public times and learns their totals.

It delivers the messages of `aggregation.participant`. The transport keeps only the latest of each kind
(`transport.protocol.AGGREGATION`): rows are cumulative, so a round that not all members have sent, or that an
opener has missed, is superseded by a later one. A member that was away takes up at the round that is due. The
rounds that it has missed have empty leaves and noise of their own, so that row k is of round k for everybody.

A row is in the ledger, and with its shares in the database, before it is sent. While a member or an opener is
away there are no new totals. Decisions go on with the last one.

A later roster ends the epoch. A member then sends nothing more in it, waits for the closings of its openers
(`closings.py`), accepts the next epoch, and begins it once all have accepted. What the last total of the old
epoch holds stays with the agent. Leaves that were shown to nobody go into the first row of the new epoch,
and so do records since the last row. Leaves that count as shown and are in no total are dropped: the agent
still decides from these records, the others never get them. All of that is one transaction.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.errors import (
    InvalidInput,
    LedgerMismatch,
    MessageRefused,
    PrivacyError,
    StateError,
    TransportRefused,
    TransportUnavailable,
)
from fedfairx.federation.aggregation.agreement import Agreement, opener_key, read_opener_key, shown
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import Partial, Row, digest, parse, read, verified
from fedfairx.federation.aggregation.participant import Participant
from fedfairx.federation.aggregation.records import (
    CANNOT_CONTINUE,
    FileRecords,
    MemoryRecords,
    Records,
    SqlRecords,
    Stores,
)
from fedfairx.federation.aggregation.settlement import read_closing
from fedfairx.federation.aggregation.shares import Integers
from fedfairx.federation.aggregation.total import Plausible, Total
from fedfairx.federation.exchange.alive import AHEAD, ATTEMPTS, SILENT, SignsOfLife
from fedfairx.federation.exchange.background import Wakeup, in_turn, repeat
from fedfairx.federation.exchange.closings import (
    Closed,
    ClosedTotal,
    Definition,
    Ended,
    Proved,
    StoredEpoch,
    closed_message,
    closed_totals,
    ended_epochs,
    read_closed,
    settlement_of,
)
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Peer
from fedfairx.federation.exchange.seen import Seen
from fedfairx.federation.roster.limits import Limits
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SigningKey
from fedfairx.federation.transport.protocol import (
    ACCEPTED,
    CLOSING,
    OPENER,
    PARTIAL,
    ROW,
    Conflict,
    Transport,
    aggregation_key,
    alive_key,
)
from fedfairx.privacy import Budget, Privatizer, Release, SimulatedNoise, StreamPrivatizer
from fedfairx.privacy.mechanisms.noise_share import RANGE_BITS
from fedfairx.storage.privacy_ledger import LogDatabase
from fedfairx.storage.transaction_log import Log
from fedfairx.util.arrays import Array

ROWS_KEPT = 4, 64  # the least and most of each member's latest rows that an opener keeps for those to come
IN_TIME = SILENT + AHEAD  # seconds since a peer's last sign of life by our clock, if that is right
_EPOCHS = 256  # definitions of epochs that are verified once
LEAVES_KEPT = 16  # of which no total is known; older ones are put together
LEAVES = 64  # missed rounds that are made up for in one transaction, for which decisions wait


@dataclass(frozen=True)
class Progress:
    """How far the rounds are, and who is waited for.

    epoch: the epoch that this member is in, by the version of its roster; 0 before its first.
    due: the last round of the roster's epoch whose time has come; 0 before the first.
    sent: the last round of which this member has made its row.
    opened: the last round whose total is known; 0 before the first.
    records: number of all members' records in it, without those of closed epochs.
    next_time: when the next round begins, in seconds since 1970; None after the last.
    unconfirmed: why this member has not accepted the roster, mostly whom its operator has to confirm;
        empty if it has.
    closings: openers that have not closed the epoch before. A member that joins may not know who they are;
        then it names all the others.
    keys, acceptances: openers without a key, and members that have not accepted the roster, before the start.
    rows, partials: members without a row of the round that is due, or with one of a round that is far from
        due; then openers without their part of it.
    """

    epoch: int = 0
    due: int = 0
    sent: int = 0
    opened: int = 0
    records: int = 0
    next_time: int | None = None
    unconfirmed: str = ""
    closings: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    acceptances: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    partials: tuple[str, ...] = ()

    def without_names(self) -> Progress:
        """The same without anybody who is waited for: nobody knows that while the transport is away."""
        return replace(self, closings=(), keys=(), acceptances=(), rows=(), partials=())

    @property
    def waits_for(self) -> dict[str, str]:
        """Whom the next total waits for, and for what of theirs."""
        found: dict[str, str] = {}
        for what in ("closings", "keys", "acceptances", "rows", "partials"):
            for name in getattr(self, what):
                found.setdefault(name, what[:-1])
        return found


class _Leaf(msgspec.Struct, frozen=True, array_like=True):
    """Exact sums of the records of a leaf, or of several from round `first` on."""

    first: int
    records: int
    sums: bytes

    @property
    def array(self) -> Array:
        return np.frombuffer(self.sums, dtype="<f8").astype(np.float64)


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
    - A record is in rows of one epoch only, unless all that openers have told this member about the end of
      that epoch says that nobody was shown it there.
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
        share, stream = seal.roster.terms.share, agent.privatizer.stream
        made = None if stream is None else stream.mechanism.share
        if share is None or made is None or replace(made, members=share.members) != share:
            raise InvalidInput("agent must be one of the roster's terms, with secure aggregation")
        self.agent, self.transport, self.clock = agent, transport, clock
        self.signs = SignsOfLife()
        self.away: str | None = None
        self.rejected: dict[str, str] = {}
        self.progress = Progress()
        self._key, self._confirmed, self._share = key, confirmed, share
        self._limits = {share.members: seal.limits}  # of totals, by number of members
        rounds = np.arange(1, seal.roster.terms.releases + 1)
        self._noisiest = 1 + int(np.argmax(self._stream.mechanism.sd(rounds)))
        self._refused: Counter[tuple[str, str]] = Counter()
        self._looked_at: dict[str, bytes] = {}
        self._latest = _Latest()
        self._lock = threading.RLock()
        self._wakeup = Wakeup()
        self._there: dict[str, bytes] = {}  # our messages in the transport, as far as we know
        self._row = b""  # our latest one; empty before the first
        self._noted = b""  # our row that the ledger counts as sent
        self._alone = False  # whether rounds would be passed over by our clock alone
        self._participant: Participant | None = None  # of the epoch that the agent makes rows for
        self._next: Participant | None = None  # of the epoch that was accepted after it
        self._ended: Ended | None = None  # the epoch before that one
        self._closed_epochs: set[bytes] = set()  # digests of those whose totals are known
        self._closing = b""  # what we publish, as an opener of the last epoch that has ended
        self._records, self._vault = _records_of(agent), vault
        self._stores = Stores(agent.name, self._records, vault)
        spent = agent.privatizer.spent
        if spent > agent.released:  # the ledger is ahead of a newly made agent
            agent.release(spent)
        held = agent.held.get(TOTAL) or agent.held.get(OTHERS)
        self._absorbed = 0 if held is None else held.number
        self._take_roster(seal)
        self._closing = self._records.get(self._place("closing")) or b""
        self._begun = self._records.get(self._place("begun")) or b""  # everybody's acceptance of the epoch

    def _take_roster(self, seal: SignedCodec) -> None:
        roster, name = seal.roster, self.agent.name
        assert roster.rounds is not None
        with self.agent.transaction():
            Seen(self.agent, roster).admit(roster)
            self.agent.bound = roster.federation
        self._seal, self._rounds = seal, roster.rounds
        self._rosters = {roster.to_json().encode(): roster}
        self._epochs: dict[bytes, Epoch] = {}  # verified under this roster, by their definition's bytes
        self._unconfirmed, self._without_key = "", roster.openers
        self._without_closing: tuple[str, ...] = ()
        self._keys = self._stored_keys()
        if name in roster.openers and name not in self._keys:
            self._keys[name] = opener_key(
                roster.federation, roster.version, key=self._key, stores=self._stores
            )

    @property
    def _stream(self) -> StreamPrivatizer:
        stream = self.agent.privatizer.stream
        assert stream is not None
        return stream

    # --- the agreement -------------------------------------------------------------------------------

    def _place(self, *parts: object) -> str:
        """The name of a record of this federation."""
        return "/".join(map(str, (self.agent.name, self._seal.roster.federation, *parts)))

    def _stored(self, number: int) -> StoredEpoch | None:
        """What is stored of an epoch, once this member has accepted it; before that nothing."""
        held = self._records.get(self._place(number, "epoch"))
        accepted = {each.number for each in self._stores.accepted(self._seal.roster.federation)}
        if held is None or number not in accepted:
            return None
        return msgspec.msgpack.decode(held, type=StoredEpoch)

    def _stored_keys(self) -> dict[str, bytes]:
        """The signed keys of all openers of the roster, once this member has accepted them."""
        stored = self._stored(self._seal.roster.version)
        return {} if stored is None else dict(stored.definition.keys)

    def _epoch_in(self, definition: Definition) -> Epoch:
        """The epoch of a definition, whose roster is verified; the latest definitions are verified once."""
        place = msgspec.msgpack.encode(definition)
        if place in self._epochs:
            return self._epochs[place]
        roster = self._rosters.get(definition.roster)
        if roster is None:
            roster = Roster.from_json(definition.roster, terms=self._seal.roster.terms)
            self._seal.roster.require_follows(roster)
            self._rosters[definition.roster] = roster
        epoch = self._epochs[place] = definition.epoch(roster)
        if len(self._epochs) > _EPOCHS:
            del self._epochs[next(iter(self._epochs))]
        return epoch

    def _participate(self, stored: StoredEpoch) -> Participant:
        """Accept an epoch, again if it was accepted before, and take part in it."""
        epoch, settlement = self._epoch_in(stored.definition), None
        if stored.before is not None:
            before = self._epoch_in(stored.before)
            settlement = settlement_of(before, stored.closings, self._plausible_among)
        agreement = Agreement(epoch, self._stores, settlement=settlement)
        content, place = msgspec.msgpack.encode(stored), self._place(epoch.number, "epoch")
        if self._records.get(place) != content:
            self._records.put({place: content})
        agreement.accept(self._key, confirmed=self._confirmed())
        part = Participant(agreement, self._key, plausible=self._plausible_among(len(epoch.members)))
        for message in part.outbox():
            part.receive(message)
        self._looked_at.clear()
        return part

    def _resume(self) -> None:
        """Take part where an earlier process did."""
        held = self._records.get(self._place("current"))
        stored = None if held is None else self._stored(int(held))
        if stored is not None:
            self._participant = self._participate(stored)
            self._forget_secrets(self._participant.epoch)
            self._note_closed_epochs()

    def _note_closed_epochs(self) -> None:
        """Note whose messages are no news, also if this member was not in these epochs."""
        proved = self._proved().values()
        self._closed_epochs = {self._epoch_in(each.definition).digest for each in proved}

    def _forget_secrets(self, epoch: Epoch) -> None:
        """Delete an opener's secrets of all epochs before this one, which has begun."""
        for number in range(1, epoch.number):
            if self._stores.secret(epoch.federation, number) is not None:
                self._stores.keep_secret(epoch.federation, number, None)

    def _agree(self, messages: Mapping[str, bytes]) -> None:
        """Close the epoch if the roster is a later one's, settle it, and accept the roster's epoch."""
        roster, part = self._seal.roster, self._participant
        if not self._changing:
            return
        before: Ended | None = None
        if part is not None or roster.version > 1:
            if part is not None:
                self._close(part)
            before = self._ended = self._find_ended(messages)
            self._without_closing = tuple(name for name in roster.members if name != self.agent.name)
            if before is not None and self._follow_others(before):
                return
            if self._follow_begun(messages):
                self._agree(messages)  # closes it
                return
            if before is None:
                return
            self._without_closing = before.waits_for(roster)
            if self._without_closing:
                return
        if self._next is not None and before is not None:
            self._complete(before)
            return
        keys = {name: self._opener_key(name, messages) for name in roster.openers}
        self._without_key = tuple(name for name, signed in keys.items() if not signed)
        if self._without_key:
            return
        try:
            if before is not None:
                self._require_remembered(before, messages)
            accepted = self._participate(self._stored(roster.version) or self._defined(keys, before))
        except (PrivacyError, InvalidInput, StateError, MessageRefused) as error:
            self._unconfirmed = str(error)
            return
        self._keys, self._unconfirmed = keys, ""
        if before is None:
            self._records.put({self._place("current"): str(roster.version).encode()})
            self._participant = accepted
        else:
            self._next = accepted
            self._complete(before)

    def _require_remembered(self, ended: Ended, messages: Mapping[str, bytes]) -> None:
        """Refuse to join if a closed epoch, or the transport, has a row of ours that is not recorded here."""
        own = self.agent.name
        if own in ended.epoch.members:
            return  # then the settlement names its rows
        text = f"{own!r} has sent rows of which it has no record: it was restored from a backup, and "
        for proved in (each for closed in ended.closed.values() for each in closed.earlier):
            for each in closed_totals([proved], self._epoch_in, self._plausible_among).values():
                if own in each.epoch.members and not self._is_recorded(each):
                    raise PrivacyError(text + CANNOT_CONTINUE)
        if self._forgotten(messages.get(aggregation_key(own, ROW), b"")) is not None:
            raise PrivacyError(text + CANNOT_CONTINUE)

    def _forgotten(self, message: bytes) -> Row | None:
        """The row in it, if our key has signed it in an epoch that this member has no record of."""
        try:
            epoch = parse(message).epoch
            row = verified(message, Row, epoch=epoch, name=self.agent.name, public=self._key.public)
        except MessageRefused:
            return None
        return None if epoch in self._accepted() else row

    def _is_recorded(self, closed: ClosedTotal) -> bool:
        """Whether the row of ours in the total of an epoch is one that this member has a record of."""
        sent = self._stores.sent(closed.epoch.digest).digests
        ours = closed.total.rows[[*closed.epoch.members].index(self.agent.name)]
        return ours in sent[closed.total.number - 1 : closed.total.number]

    def _defined(self, keys: Mapping[str, bytes], before: Ended | None) -> StoredEpoch:
        """The epoch of the roster, with the openers' keys and the end of the epoch before."""
        if before is None:
            return StoredEpoch(Definition.of(self._seal.roster, keys))
        settlement = before.settlement(self._seal.roster, self._plausible_among)
        definition = Definition.of(self._seal.roster, keys, settlement.digest)
        return StoredEpoch(definition, before.definition, dict(settlement.closings))

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
            if self._seal.roster.version == 1 or error.reason != "epoch":  # else it has an earlier roster
                self._refused[name, error.reason] += 1
                self.rejected[place] = error.reason
            return b""
        return message

    # --- the end of an epoch -------------------------------------------------------------------------

    def _close(self, part: Participant) -> None:
        """Send and open nothing more in an epoch. An opener says so."""
        try:
            part.close()
        except PrivacyError as error:  # an opener without its vault can't
            part.trouble = str(error)
        stored = self._stored(part.epoch.number)
        if stored is not None and part.opener is not None and part.opener.closing:
            closing, partial = part.opener.closing, part.opener.partial
            before = read_closing(part.epoch, closing).partial
            closed = Closed(stored.definition, closing, b"" if partial == before else partial)
            message = closed_message(closed, [*self._proved().values()][::-1])
            if message != self._closing:
                self._records.put({self._place("closing"): message})
                self._closing = message

    def _find_ended(self, messages: Mapping[str, bytes]) -> Ended | None:
        """The last epoch before the roster's that has ended, with its closings; None if none is known."""
        own, roster, part = self.agent.name, self._seal.roster, self._participant
        found: dict[str, Closed] = {}
        for name in roster.members:
            place = aggregation_key(name, CLOSING)
            message = self._closing if name == own else messages.get(place, b"")
            if not message or (self._looked_at.get(place) == message and place in self.rejected):
                continue
            self._looked_at[place] = message
            self.rejected.pop(place, None)
            try:
                found[name] = read_closed(name, message)
            except MessageRefused as error:
                self._refuse_closing(name, error.reason)
        ended, refused = ended_epochs(found, roster, self._epoch_in)
        for name, reason in refused.items():
            self._refuse_closing(name, reason)
        accepted = self._accepted()
        mine = [each for each in ended if each.epoch.digest in accepted or own not in each.epoch.members]
        last = max(mine, key=lambda each: (each.epoch.number, len(each.closed)), default=None)
        if part is not None and (last is None or last.epoch.number < part.epoch.number):
            stored = self._stored(part.epoch.number)
            assert stored is not None
            return Ended(stored.definition, part.epoch, {})
        return last

    def _end_before(self, following: Participant, ended: Ended | None) -> Ended:
        """The end of the epoch before one that was accepted, with the closings that are here now."""
        stored, settlement = self._stored(following.epoch.number), following.agreement.settlement
        assert stored is not None
        assert stored.before is not None
        assert settlement is not None
        if ended is not None and ended.epoch.digest == settlement.epoch.digest:
            return ended
        return Ended(stored.before, settlement.epoch, {})

    def _refuse_closing(self, name: str, reason: str) -> None:
        self._refused[name, reason] += 1
        self.rejected[aggregation_key(name, CLOSING)] = reason

    def _accepted(self) -> set[bytes]:
        """Digests of all epochs that this member has accepted."""
        return {each.digest for each in self._stores.accepted(self._seal.roster.federation)}

    def _follow_others(self, ended: Ended) -> bool:
        """Begin an epoch that was accepted here and that others have begun and closed already."""
        part, number = self._participant, ended.epoch.number
        if ended.epoch.digest not in self._accepted() or (part is not None and part.epoch.number >= number):
            return False
        stored = self._stored(number)
        if stored is None or stored.before is None:
            return False
        self._begin(self._participate(stored), None, told=ended.closed.values())
        return True

    def _follow_begun(self, messages: Mapping[str, bytes]) -> bool:
        """Begin an epoch that was accepted here, if a member that has begun it shows all acceptances.

        Such a member waits for the closings of the openers, who may not know that the epoch has begun.
        """
        roster, part = self._seal.roster, self._participant
        accepted = {each.number: each.digest for each in self._stores.accepted(roster.federation)}
        if roster.version in accepted:
            return False
        later = {accepted[each]: each for each in accepted if part is None or each > part.epoch.number}
        for name in roster.members if later else ():
            shown_here = _acceptances(messages.get(aggregation_key(name, ACCEPTED), b""))
            with contextlib.suppress(MessageRefused, IndexError):
                stored = self._stored(later.get(parse(shown_here[1]).epoch, 0))
                if stored is not None and stored.before is not None:
                    following = self._participate(stored)
                    for signed in shown_here:
                        following.receive(signed)
                    if following.agreement.complete:
                        self._begin(following, self._ended)
                        return True
        return False

    def _complete(self, ended: Ended) -> None:
        """As an opener that is behind, open the last round of the ended epoch, if its rows are here."""
        part, following = self._participant, self._next
        if part is None or following is None or part.epoch.digest != ended.epoch.digest:
            return
        settlement = following.agreement.settlement
        assert settlement is not None
        with contextlib.suppress(MessageRefused, PrivacyError):  # its rows are gone, or its vault
            part.complete(settlement)
        self._close(part)

    def _begin(self, following: Participant, ended: Ended | None, *, told: Collection[Closed] = ()) -> None:
        """Begin an epoch: hold the last total of the one before, and carry what nobody was shown.

        told: closings of this epoch, if it has ended already. They have the totals of those before.
        """
        part, settlement = self._participant, following.agreement.settlement
        assert settlement is not None
        ended = self._end_before(following, ended)
        total, number = ended.total(settlement, self._plausible_among), following.epoch.number
        was_in = part is not None and part.epoch.digest == ended.epoch.digest
        found = [] if total is None else [Proved(ended.definition, total.partials)]
        closed = told if was_in else (*ended.closed.values(), *told)
        found += [proved for each in closed for proved in each.earlier]
        known = closed_totals(found, self._epoch_in, self._plausible_among)
        totals = {each.epoch.number: each.proved for each in known.values()} | self._proved()
        changes: dict[str, bytes | None] = {self._place("current"): str(number).encode()}
        accepted = following.agreement
        begun = msgspec.msgpack.encode(accepted.acceptances) if accepted.complete else b""
        changes[self._place("begun")] = begun
        leaves: list[tuple[Array, int]] = []
        if part is not None:
            last = shown(self._stores, part.epoch)
            leaves = [(each.array, each.records) for each in self._leaves(part) if each.first > last]
            changes[self._place(part.epoch.number, "leaves")] = None
        mine = None if part is None else self._last_total(part, known)
        if part is not None and mine is not None:
            stored = self._stored(part.epoch.number)
            assert stored is not None
            totals[part.epoch.number] = Proved(stored.definition, mine.partials)
        changes[self._place("totals")] = msgspec.msgpack.encode(dict(sorted(totals.items())))
        others = [
            (self._release_of(each.total.number, each.total.values), len(each.epoch.members))
            for _, each in sorted(known.items())
            if (part is None or each.epoch.number > part.epoch.number)
            and not was_in
            and self.agent.name not in each.epoch.members
        ]
        with self.agent.transaction():  # the records are in its database, too
            if mine is not None and mine.number > self._absorbed:
                self._absorb_release(self._release_of(mine.number, mine.values))
            run = self._new_run(len(following.epoch.members))
            self.agent.begin_epoch(run, leaves=leaves, totals=others)
            self._records.put(changes)
        self._participant, self._next, self._absorbed = following, None, 0
        self._row = self._noted = b""
        self._begun = begun
        self._there.pop(ROW, None)
        self._latest = _Latest()
        self._looked_at.clear()
        self._forget_secrets(following.epoch)
        self._note_closed_epochs()

    def _last_total(self, part: Participant, known: Mapping[int, ClosedTotal]) -> Total | None:
        """The last total of the epoch that it was in, which others may have learnt after it."""
        theirs = known.get(part.epoch.number)
        if theirs is None or theirs.epoch.digest != part.epoch.digest or not self._is_recorded(theirs):
            return part.total
        return max(part.total or theirs.total, theirs.total, key=lambda each: each.number)

    def _proved(self) -> dict[int, Proved]:
        """The last totals of closed epochs that are known here, by the epoch's number."""
        held = self._records.get(self._place("totals"))
        return {} if held is None else msgspec.msgpack.decode(held, type=dict[int, Proved])

    def _new_run(self, members: int) -> Budget | Privatizer:
        """What the agent makes the rows of an epoch with, among this many members."""
        terms, noise = self._seal.roster.terms, self._stream.noise
        if self.agent.durable:
            return terms.budget(members=members)
        if isinstance(noise, SimulatedNoise):
            noise = noise.of_next_run()
        return terms.privatizer(noise, members=members)

    def _leaves(self, part: Participant) -> list[_Leaf]:
        """Leaves of an epoch that may have been shown to nobody, in their order."""
        held = self._records.get(self._place(part.epoch.number, "leaves"))
        return [] if held is None else msgspec.msgpack.decode(held, type=list[_Leaf])

    def _keep_leaf(self, part: Participant) -> None:
        """Before a row is made, store the leaf that it adds, until its total is known."""
        sums, records = self._stream.open_leaf
        leaves = [each for each in self._leaves(part) if each.first > part.totals.number]
        if records:
            leaves.append(_Leaf(self.agent.released + 1, records, sums.astype("<f8").tobytes()))
        while len(leaves) > LEAVES_KEPT:
            one, two = leaves.pop(0), leaves.pop(0)
            both = (one.array + two.array).astype("<f8").tobytes()
            leaves.insert(0, _Leaf(one.first, one.records + two.records, both))
        self._records.put({self._place(part.epoch.number, "leaves"): msgspec.msgpack.encode(leaves)})

    # --- sending -------------------------------------------------------------------------------------

    def _make_row(self) -> None:
        """Make the row of the round that is due, if it is new. Rounds that were missed get empty leaves."""
        part, self._alone = self._participant, False
        if part is None or self._changing or not part.agreement.complete or part.sender.halted:
            return
        due = self._rounds.number(self.clock())
        if due <= part.sender.last or due < self.agent.released:  # the clock may have gone back
            return
        if due > max(part.sender.last, *self._latest.rows.values(), 0) + 1 and not self._in_time:
            self._alone = True
            return
        while self.agent.released < due:
            with self.agent.transaction():
                self._keep_leaf(part)
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
        own, part, accepted = self.agent.name, self._participant, self._next or self._participant
        found: dict[str, bytes] = {}
        if self._closing:  # before the acceptance, after which others may begin
            found[CLOSING] = self._closing
        if own in self._seal.roster.openers:
            found[OPENER] = self._keys[own]
        if accepted is not None:
            found[ACCEPTED] = accepted.agreement.signed
            if self._next is None and self._begun:
                found[ACCEPTED] = self._begun
        if part is not None:
            if part.sender.last:
                (found[ROW],) = part.sender.messages(part.sender.last)  # the latest, as it was recorded
            if part.opener is not None and part.opener.partial and not part.opener.closing:
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
        members, part = self._seal.roster.members, self._participant
        for name in members:
            self._take_sign(name, messages.get(alive_key(name)))
        for name in {**members, **({} if part is None else part.epoch.members)}:
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
        """Hand a message to the participant of its epoch, once."""
        name = place.partition(".")[0]
        if message is not None and place == aggregation_key(name, ACCEPTED):
            message = _acceptance_of(name, message)
        if message is None or self._looked_at.get(place) == message:
            return
        forgotten = self._forgotten(message) if place == aggregation_key(self.agent.name, ROW) else None
        if forgotten is not None and self._participant is not None:
            with contextlib.suppress(LedgerMismatch):  # it sends nothing more
                self._participant.sender.compare(forgotten.number, digest(message))
        part = self._participant_for(name, message)
        if part is None and (self._next is not None or not self._changing):
            self._looked_at[place] = message  # of an epoch that is over
        if part is None:
            return
        self._looked_at[place] = message
        self.rejected.pop(place, None)
        before = Counter(part.refusals)
        part.receive(message)
        for _, reason in part.refusals - before:
            self.rejected[place] = reason
        if part is self._participant:
            self._note(part, message)

    @property
    def _rows_kept(self) -> int:
        """How many of each member's rows an opener keeps: members' clocks may differ by `AHEAD` seconds."""
        now, (least, most) = self.clock(), ROWS_KEPT
        within = self._rounds.number(now + AHEAD) - self._rounds.number(now - AHEAD)
        return min(max(within, least), most)

    def _participant_for(self, name: str, message: bytes) -> Participant | None:
        """Who takes a message; None if it is of an epoch that is over, or that is not accepted here yet."""
        part, following = self._participant, self._next
        try:
            digest = parse(message).epoch
        except MessageRefused:
            return following or part  # which refuses it
        for each in (part, following):
            if each is not None and each.epoch.digest == digest:
                return each
        if self._changing and following is None:
            return None
        over = self._accepted() | self._closed_epochs
        over |= set() if self._ended is None else {self._ended.epoch.digest}
        latest = following or part
        return None if latest is None or digest in over or name not in latest.epoch.members else latest

    @property
    def _changing(self) -> bool:
        """Whether the epoch of the roster has not begun here."""
        part = self._participant
        return part is None or part.epoch.number != self._seal.roster.version

    def _note(self, part: Participant, message: bytes) -> None:
        """Note the round of a row or partial, by which members are waited for."""
        epoch, numbers = part.epoch, self._latest.rows
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

    def _plausible_among(self, members: int) -> Plausible:
        """Whether records of this many members within the terms' bounds, and noise, can have a total."""
        if members not in self._limits:
            self._limits[members] = self._seal.roster.terms.limits_of_totals(members)
        return partial(self._plausible, self._limits[members])

    def _plausible(self, limits: Limits, values: Integers) -> bool:
        inside = bool((np.abs(values.astype(np.float64)) < 2.0**RANGE_BITS).all())
        if not inside or values[-1] < 0:
            return False
        total = self._release_of(self._noisiest, values)
        opened = replace(total, packed=self._stream.opened(total.packed, total.count))
        try:
            limits.check(TOTAL, opened)
        except MessageRefused:
            return False
        return True

    def _absorb(self) -> None:
        """Learn from the last total, in the place of the one before."""
        total = None if self._participant is None else self._participant.total
        if total is None or total.number <= self._absorbed:
            return
        with self.agent.transaction():
            self._absorb_release(self._release_of(total.number, total.values))
        self._absorbed = total.number

    def _absorb_release(self, total: Release) -> None:
        try:
            self.agent.absorb({TOTAL: total})
        except MessageRefused as error:
            self._refused["?", error.reason] += 1

    # --- both ----------------------------------------------------------------------------------------

    def exchange(self) -> bool:
        """Make the row that is due, send and receive; False if the transport is unavailable."""
        with self._lock:
            try:
                messages = self.transport.latest()
                if self._participant is None:
                    self._resume()
                self._take(messages)
                self._agree(messages)
                self._take(messages)
                if self._next is not None and self._next.agreement.complete:
                    self._begin(self._next, self._ended)
                    self._take(messages)  # our own row may be there: then we were restored from a backup
                if self._participant is not None:
                    self._participant.keep_rows(self._rows_kept)
                self._make_row()
                self._publish(messages)
                self.away = None
            except TransportUnavailable as error:
                self.away = str(error)
            except TransportRefused as error:
                self.away = str(error)
                raise
            finally:
                self._absorb()
                reached = self._progress()
                self.progress = reached if self.away is None else reached.without_names()
            return self.away is None

    def _progress(self) -> Progress:
        part, now = self._participant, self.clock()
        due, next_time = self._rounds.number(now), self._rounds.next_time(now)
        if part is None or self._changing:
            return Progress(
                epoch=0 if part is None else part.epoch.number,
                due=due,
                next_time=next_time,
                unconfirmed=self._unconfirmed,
                closings=self._without_closing,
                keys=() if self._without_closing else self._without_key,
                acceptances=() if self._next is None else tuple(self._next.agreement.missing),
            )
        total = part.total
        reached = Progress(
            epoch=part.epoch.number,
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
        sign, members = self._seal.close_sign_of_life, len(self._seal.roster.members)
        self.signs.renew(self.transport, self.agent.name, sign, now=self.clock(), members=members)

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

    def follow(
        self,
        seal: SignedCodec,
        *,
        confirmed: Callable[[], Collection[str]] | None = None,
        vault: Records | None = None,
    ) -> None:
        """Take a later version of the roster, which ends the epoch.

        confirmed: as before unless it is given.
        vault: that of a member which becomes an opener.
        """
        with self._lock:
            seal.roster.require_follows(self._seal.roster)
            if seal.roster.version == self._seal.roster.version:
                return
            self._confirmed = confirmed or self._confirmed
            if self._vault is None and vault is not None:
                self._vault, self._stores = vault, Stores(self.agent.name, self._records, vault)
            self._next = self._ended = None
            self._looked_at.clear()
            self.rejected.clear()
            self._take_roster(seal)

    @property
    def opens(self) -> bool:
        """Whether it has a vault, as openers do."""
        return self._vault is not None

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
        found = Counter(dict(self._refused))
        for part in (self._participant, self._next):
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


def _acceptances(message: bytes) -> list[bytes]:
    """All acceptances in a message: one, or those of all members if its sender has begun the epoch."""
    try:
        return msgspec.msgpack.decode(message, type=list[bytes])
    except msgspec.MsgspecError:
        return [message]


def _acceptance_of(name: str, message: bytes) -> bytes:
    """The acceptance of a message's sender in it."""
    for signed in _acceptances(message):
        with contextlib.suppress(MessageRefused):
            if parse(signed).name == name:
                return signed
    return message


def _records_of(agent: Agent) -> Records:
    """Records in the agent's database, in the transactions of its ledger; in memory where it has none."""
    return stored_records(agent.journal.log) if agent.durable else MemoryRecords()


def stored_records(log: Log) -> Records:
    """The records in the database of a log."""
    return SqlRecords(LogDatabase(log), "aggregation")
