"""A member of a federation: send the agent's releases, receive and verify those of its peers.

The outbox is the agent's latest release: releases are cumulative, so it contains older ones that were never
delivered. It is published until the transport holds it, and again if the transport has lost it. While the
transport is unavailable the agent goes on deciding; afterwards it receives the latest of every peer at once.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedfairx.agent.agent import Agent
from fedfairx.errors import (
    InvalidInput,
    LedgerMismatch,
    MessageRefused,
    PrivacyError,
    TransportUnavailable,
)
from fedfairx.federation.exchange.alive import ATTEMPTS
from fedfairx.federation.exchange.connection import Connection
from fedfairx.federation.exchange.envelope import Codec, SignedCodec
from fedfairx.federation.exchange.seen import Seen
from fedfairx.federation.transport.protocol import Conflict, Transport, alive_key, named_by
from fedfairx.privacy import Release


class Member(Connection):
    """Connects `agent` to its peers by a `transport`, with envelopes by `seal`.

    Call `exchange` after a release, when the transport's `watch` calls, and at intervals. Threads may share a
    member.

    ignored: number of messages older than what is held.
    """

    def __init__(
        self, agent: Agent, transport: Transport, seal: Codec, *, clock: Callable[[], float] = time.time
    ) -> None:
        require_seen(agent)
        super().__init__(agent, transport, seal, clock)
        self._seal: Codec = seal
        self.ignored = 0
        self._came: dict[str, float] = {}
        spent = agent.privatizer.spent
        if spent > agent.released:  # the ledger is ahead of a newly made agent
            agent.release(spent)
        self._seen = Seen(agent, seal.roster)
        self._join(seal)
        self._release: Release | None = agent.held.get(agent.name)
        self._message = None if self._release is None else seal.close(self._release)
        self._there: bytes | None = None  # our message in the transport, as far as we know
        self._noted: bytes | None = None  # our message that the ledger counts as sent
        self._shared = 0  # number of our release that is in the shared statistics

    # --- sending -------------------------------------------------------------------------------------

    @property
    def halted(self) -> str | None:
        """Why sending is halted; None while it is not. A durable agent that is opened again stays halted."""
        return self._seen.halted

    @property
    def waiting(self) -> bool:
        """Whether the transport lacks the latest release."""
        sealed = 0 if self._release is None else self._release.number
        lacks = self._message is not None and self._there != self._message
        return self.agent.released > sealed or lacks

    def send(self, release: Release | None = None) -> bool:
        """Publish the latest release if the transport lacks it; False if the transport is unavailable.

        Raises `LedgerMismatch` if another release was sent with this agent's key, under this number or a
        later one: this agent was restored from an old copy, or runs twice, and must send nothing.
        """
        with self._lock:
            self._seal_latest(release)
            if self.halted is not None:
                raise LedgerMismatch(self.halted)
            if self.waiting:
                try:
                    self._publish()
                except TransportUnavailable as error:
                    self.away = str(error)
                    return False
                self.away = None
            self._acknowledge()
            return True

    @property
    def message(self) -> bytes | None:
        """The agent's latest release in its envelope; None before the first."""
        with self._lock:
            self._seal_latest()
            return self._message

    def _seal_latest(self, release: Release | None = None) -> None:
        """Update the outbox from the agent, which may release without this member.

        In a transaction, which waits until a release is on disk, or fails while it may not be.
        """
        with self.agent.transaction():
            latest = release or self.agent.held.get(self.agent.name)
        if latest is not None and latest != self._release:
            self._release, self._message = latest, self._seal.close(latest)

    def _publish(self) -> None:
        assert self._message is not None
        for attempt in range(ATTEMPTS):
            try:
                self.transport.publish(self.agent.name, self._message, replacing=self._there)
            except Conflict as conflict:
                if attempt == ATTEMPTS - 1:
                    raise TransportUnavailable(
                        "another writer keeps publishing under this agent's name"
                    ) from conflict
                self._judge(conflict.held)
                self._there = conflict.held
            else:
                self._there = self._message
                return

    def _judge(self, message: bytes | None) -> None:
        """Classify the message stored under our name: older or invalid (overwrite it), or newer (halt)."""
        if message is None or message == self._looked_at.get(self.agent.name):  # invalid, and seen before
            return
        try:
            theirs = self._seal.open(self.agent.name, message)
        except MessageRefused as error:
            self._refuse_release(self.agent.name, message, error)
            return
        if self.halted is None:
            why = contradiction(self.agent, self._release, theirs)
            if why is None:
                return
            with self.agent.transaction():
                self._seen.halt(why)
        raise LedgerMismatch(str(self.halted))

    def _acknowledge(self) -> None:
        """Note in the ledger, if there is one, that the latest release has arrived, and so all before it.

        An earlier process may have ended between publishing it and noting that.
        """
        if self._there in (None, self._noted) or self._there != self._message:
            return
        stream = self.agent.privatizer.stream
        if stream is not None:
            stream.acknowledge()
        self._noted = self._there

    # --- receiving -----------------------------------------------------------------------------------

    def receive(self, *, strict: bool = False) -> list[str]:
        """Receive the releases of the peers; return the names of those with a new one.

        Refused messages are counted and skipped; with `strict` they are raised.
        """
        with self._lock:
            return self._take(self._look(), strict=strict)

    def _look(self) -> Mapping[str, bytes]:
        """All messages in the transport, ours included; none while it is unavailable."""
        try:
            messages = self.transport.latest()
            self.away = None
        except TransportUnavailable as error:
            self.away = str(error)
            return {}
        self._seal_latest()
        self._look_at_ours(messages.get(self.agent.name))
        return messages

    def take(self, messages: Mapping[str, bytes]) -> list[str]:
        """`receive` for messages that an external engine delivers.

        This agent's own latest among them acknowledges it.
        """
        with self._lock:
            self._seal_latest()
            own = messages.get(self.agent.name)
            if own is not None:
                self._look_at_ours(own)
                if not self.waiting:
                    self._acknowledge()
            alive = messages.get(alive_key(self.agent.name))
            if alive is not None and isinstance(self._seal, SignedCodec):
                with contextlib.suppress(MessageRefused):  # it may be of an earlier key
                    self.signs.stored(self._seal.open_sign_of_life(self.agent.name, alive))
            return self._take(messages, strict=False)

    def _take(self, messages: Mapping[str, bytes], *, strict: bool) -> list[str]:
        own, releases = self.agent.name, self.agent.held
        limits = None if self._seal.limits is None else self._seal.limits.check
        come: dict[str, Release] = {}
        for name in sorted(messages):
            message = messages[name]
            peer = None if self._seal.roster is None else named_by(name)
            if own in (name, peer) or self._looked_at.get(name) == message or self.left(name):
                continue
            self.rejected.pop(name, None)
            if peer is not None:
                self._take_sign(peer, message)
                continue
            try:
                release = self._seal.open(name, message)
                come |= self.agent.accepted({name: release}, limits=limits, seen=self._seen.releases)
                self.ignored += name in releases and release.number < releases[name].number
            except MessageRefused as error:
                if strict:
                    raise
                self._refuse_release(name, message, error)
        senders = self._absorb(come, messages, strict=strict)
        self._looked_at.update((name, messages[name]) for name in messages if name != own)
        return senders

    def left(self, name: str) -> bool:
        """Whether a message under this name is of a former member: it stays at the transport and is no news.

        All signs of life of others than members are taken for such.
        """
        roster, peer = self._seal.roster, named_by(name)
        if roster is None or (peer or name) in roster.members:
            return False
        return peer is not None or name in self._seen.releases

    def _look_at_ours(self, message: bytes | None) -> None:
        """Note which of our messages the transport holds; send the latest again if it was lost."""
        if message == self._message:
            self._there = message
            self.rejected.pop(self.agent.name, None)
            return
        self._there = None
        with contextlib.suppress(LedgerMismatch):  # `send` raises it; receiving goes on
            self._judge(message)
            self._there = message

    def _absorb(self, come: dict[str, Release], messages: Mapping[str, bytes], *, strict: bool) -> list[str]:
        """Absorb releases together, or one by one if together they are refused."""
        if not come and self._shared == self.agent.released:
            return []
        groups = [come]
        while groups:
            group = groups.pop(0)
            try:
                with self.agent.transaction():
                    self.agent.absorb(group)
                    self._seen.keep(group)
            except MessageRefused as error:
                if strict or not group:
                    raise
                if len(group) == 1:
                    (name,) = group
                    self._refuse_release(name, messages[name], error)
                    del come[name]
                else:
                    groups = [{name: group[name]} for name in sorted(group)]
        self._shared = self.agent.released
        now = self.clock()
        self._came.update((name, now) for name in come)
        for name in come:
            self.signs.saw(name, now)
        return sorted(come)

    def _refuse_release(self, name: str, message: bytes, error: MessageRefused) -> None:
        self._refuse(name, error.reason)
        self._looked_at[name] = message

    # --- both ----------------------------------------------------------------------------------------

    def exchange(self) -> bool:
        """Send the outbox and receive; False if the transport is unavailable.

        Sending comes first: peers wait for it, and absorbing theirs may take long.
        """
        with self._lock:
            messages = self._look()
            try:
                sent = self.send()
            finally:
                self._take(messages, strict=False)
            return sent and self.away is None

    def follow(self, seal: Codec) -> None:
        """Switch to a later version of the roster.

        Refused messages are verified again, ours is signed again, and releases of peers who left are dropped.
        """
        with self._lock:
            self._join(seal)
            self._seal = seal
            self._looked_at.clear()
            self.rejected.clear()
            self._message = None if self._release is None else seal.close(self._release)

    def _join(self, seal: Codec) -> None:
        """Drop releases of agents that are not in the roster, and refuse any run but the terms' own."""
        with self.agent.transaction():
            self._seen.keep(self.agent.held)
            if seal.roster is not None:
                self._seen.admit(seal.roster)
                self.agent.drop_peers(self.agent.held.keys() - seal.roster.members.keys())
                self.agent.bound = seal.roster.federation

    @property
    def peers(self) -> dict[str, Peer]:
        """The peers of which something was accepted or refused, by name.

        It does not take the lock, which may be held during a call of the transport.
        """
        return peers_of(self.agent, self.refusals, self._came, self.signs.last)


@dataclass(frozen=True)
class Peer:
    """The latest release of another member.

    release: its number, with secure aggregation the round of its latest row; 0 if none came yet.
    records: the number of records in it; 0 with secure aggregation, where only that of all is known.
    came: when it came, in seconds since 1970; None if before this start.
    alive: the member's last sign of life, in seconds since 1970; None if there was none.
    silent: whether it has given none for five minutes, or longer among many, while ours came through.
    refused: messages of the member that were refused since this start.
    weight: the share of its records that counts, 0 to 1; None before any came.
    reason: why it has this weight.
    """

    release: int = 0
    records: int = 0
    came: float | None = None
    alive: float | None = None
    silent: bool = False
    refused: int = 0
    weight: float | None = None
    reason: str | None = None


def require_seen(agent: Agent) -> None:
    """Refuse an agent whose releases nobody may see, because only their sum has enough noise."""
    stream = agent.privatizer.stream
    if stream is not None and stream.mechanism.share is not None:
        raise InvalidInput(
            f"agent must not be of secure aggregation, got {agent.name!r}: its releases hold a share of the "
            "noise and are never sent by themselves"
        )


def contradiction(agent: Agent, ours: Release | None, theirs: Release) -> str | None:
    """Why an agent with the latest release `ours` must halt when `theirs` is published under its name.

    None if `theirs` is a release that this agent has made. A private agent remembers all of its own; for one
    that is not private any earlier number counts as its own.
    """
    last = 0 if ours is None else ours.number
    if theirs.number == last:
        same = theirs == ours
    else:
        same = theirs.number < last and (not agent.private or _again(agent, theirs.number) == theirs)
    if same:
        return None
    return (
        f"peers hold release {theirs.number} of {agent.name!r} with other content than this agent's, which "
        f"has made {last}: this agent is an old copy, or a second instance runs. Sending is halted. Stop the "
        "second instance, or restore the latest copy; without one, start again under a new name and a new "
        "key, with a new ledger and a new budget"
    )


def _again(agent: Agent, number: int) -> Release | None:
    """Repeat a past release, which costs no budget; None if it is no longer available."""
    try:
        return agent.past_release(number)
    except PrivacyError:
        return None


def peers_of(
    agent: Agent,
    refusals: Mapping[tuple[str, str], int],
    came: Mapping[str, float],
    alive: Mapping[str, float],
) -> dict[str, Peer]:
    """The peers that were heard or refused, by name; `refusals` by sender and reason."""
    refused: Counter[str] = Counter()
    for (name, _), times in list(refusals.items()):
        refused[name] += times
    releases, peers = agent.held, {}
    for name in sorted({*releases, *refused, *list(alive)} - {agent.name}):
        number, count = (releases[name].number, releases[name].count) if name in releases else (0, 0)
        peers[name] = Peer(number, count, came.get(name), alive.get(name), refused=refused[name])
    return peers
