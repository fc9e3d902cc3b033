"""One agent's place in a federation: what it sends, what it takes from the others, and what it refused.

The outbox is the agent's own latest release: releases are cumulative, so that an older one that was never
delivered is in it. It is published until the transport holds it, and again if the transport has lost it.
While the transport is away the agent goes on deciding; afterwards it has the latest of everybody at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedfairx.agent.agent import Agent
from fedfairx.errors import FedFairXError, LedgerMismatch, MessageRefused, PrivacyError, TransportUnavailable
from fedfairx.federation.exchange.background import Wakeup, repeat
from fedfairx.federation.exchange.envelope import Codec
from fedfairx.federation.exchange.seen import Seen
from fedfairx.federation.transport.protocol import Conflict, Transport
from fedfairx.privacy import Release

_ATTEMPTS = 3  # at a name that somebody else writes to at the same moment


class Member:
    """`agent` at its end of `transport`, by a `seal`.

    Call `exchange` when there may be something to send or to take: after a release, when the transport's
    `watch` calls, and now and then. Threads may share a member.

    refusals: how many messages were refused, by sender and reason.
    ignored: messages that were older than what is held.
    away: why the transport can't be reached; None while it can.
    halted: why this agent must send nothing any more; None while it may.
    """

    def __init__(
        self, agent: Agent, transport: Transport, seal: Codec, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.agent = agent
        self.transport = transport
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.ignored = 0
        self.away: str | None = None
        self.halted: str | None = None
        self._seal = seal
        self._clock = clock
        self._lock = threading.RLock()
        self._bell = Wakeup()
        self._looked_at: dict[str, bytes] = {}  # the last message of each
        self._came: dict[str, float] = {}
        made = agent.privatizer.spent
        if made > agent.released:  # a ledger knows what an agent that was made anew does not
            agent.release(made)
        self._seen = Seen(agent, seal.roster)
        self._join(seal)
        self._release: Release | None = agent.held.get(agent.name)
        self._message = None if self._release is None else seal.close(self._release)
        self._there: bytes | None = None  # what the transport holds of ours, as far as we know
        self._shared = 0  # our release that decisions come from

    # --- sending -------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether there is something that the transport does not hold yet."""
        sealed = 0 if self._release is None else self._release.number
        return self.agent.released > sealed or self._there != self._message

    def send(self, release: Release | None = None) -> bool:
        """Publish a new release, or the one that waits; False: the transport is away, and it goes on waiting.

        `LedgerMismatch`: somebody with this agent's key has sent another release under this number or a
        later one. It is this agent's own past (it was restored from an old copy) or a second one of it; it
        must send nothing.
        """
        with self._lock:
            self._seal_latest(release)
            if self.halted is not None:
                raise LedgerMismatch(self.halted)
            if not self.waiting:
                return True
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
        """Its own latest release as others get it, sealed; None before the first."""
        with self._lock:
            self._seal_latest()
            return self._message

    def _seal_latest(self, release: Release | None = None) -> None:
        """The outbox follows the agent, which may release where this member does not see it."""
        latest = release or self.agent.held.get(self.agent.name)
        if latest is not None and latest != self._release:
            self._release, self._message = latest, self._seal.close(latest)

    def _publish(self) -> None:
        assert self._message is not None
        for attempt in range(_ATTEMPTS):
            try:
                self.transport.publish(self.agent.name, self._message, replacing=self._there)
            except Conflict as taken:
                if attempt == _ATTEMPTS - 1:
                    raise TransportUnavailable(
                        "somebody else keeps writing under this agent's name"
                    ) from taken
                self._judge(taken.held)
                self._there = taken.held
            else:
                self._there = self._message
                return

    def _judge(self, held: bytes | None) -> None:
        """Classify the message stored under our name: older or invalid (overwrite it), or newer (halt)."""
        if held is None or held == self._looked_at.get(
            self.agent.name
        ):  # nothing, or rubbish that was looked at
            return
        try:
            theirs = self._seal.open(self.agent.name, held)
        except MessageRefused as error:
            self._refuse(self.agent.name, held, error)
            return
        self.halted = self.halted or contradiction(self.agent, self._release, theirs)
        if self.halted is not None:
            raise LedgerMismatch(self.halted)

    def _acknowledge(self) -> None:
        """Into the ledger, if there is one: the latest has arrived, and with it all before."""
        stream = self.agent.privatizer.stream
        if stream is not None:
            stream.acknowledge()

    # --- taking --------------------------------------------------------------------------------------

    def receive(self, *, strict: bool = False) -> list[str]:
        """Take what the others have published; the names of those who had something new.

        What is refused is counted, and hinders nothing else; if `strict`, it is raised.
        """
        with self._lock:
            return self._take(self._look(), strict=strict)

    def _look(self) -> Mapping[str, bytes]:
        """What the transport holds, ours among it; nothing while it is away."""
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
        """`receive` of messages that somebody else has brought.

        This agent's own latest among them says that the others have it.
        """
        with self._lock:
            self._seal_latest()
            own = messages.get(self.agent.name)
            if own is not None:
                self._look_at_ours(own)
                if not self.waiting:
                    self._acknowledge()
            return self._take(messages, strict=False)

    def _take(self, messages: Mapping[str, bytes], *, strict: bool) -> list[str]:
        own, held = self.agent.name, self.agent.held
        limits = None if self._seal.limits is None else self._seal.limits.check
        come: dict[str, Release] = {}
        for name in sorted(messages):
            message = messages[name]
            if name == own or self._looked_at.get(name) == message:
                continue
            try:
                release = self._seal.open(name, message)
                come |= self.agent.accepted({name: release}, limits=limits, seen=self._seen.releases)
                self.ignored += name in held and release.number < held[name].number
            except MessageRefused as error:
                if strict:
                    raise
                self._refuse(name, message, error)
        taken = self._absorb(come, messages, strict=strict)
        self._looked_at.update((name, messages[name]) for name in messages if name != own)
        return taken

    def _look_at_ours(self, message: bytes | None) -> None:
        """What the transport holds of ours: where it has lost it, it waits again."""
        if message == self._message:
            self._there = message
            return
        self._there = None
        with contextlib.suppress(LedgerMismatch):  # `send` raises it; what others say is taken all the same
            self._judge(message)

    def _absorb(self, come: dict[str, Release], messages: Mapping[str, bytes], *, strict: bool) -> list[str]:
        """Into the agent: together, and one by one where together they are refused."""
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
                    self._refuse(name, messages[name], error)
                    del come[name]
                else:
                    groups = [{name: group[name]} for name in sorted(group)]
        self._shared = self.agent.released
        now = self._clock()
        self._came.update((name, now) for name in come)
        return sorted(come)

    def _refuse(self, name: str, message: bytes, error: MessageRefused) -> None:
        self.refusals[name, error.reason] += 1
        self._looked_at[name] = message

    # --- both ----------------------------------------------------------------------------------------

    def exchange(self) -> bool:
        """Send what waits and take what there is; False: the transport is away.

        Sending comes first: the others wait for it, and to take in what they have sent may last.
        """
        with self._lock:
            messages = self._look()
            try:
                sent = self.send()
            finally:
                self._take(messages, strict=False)
            return sent and self.away is None

    def follow(self, seal: Codec) -> None:
        """Go on with the seal of a later roster.

        What was refused is looked at again, ours is signed anew, and what is held of who has left is dropped.
        """
        with self._lock:
            self._join(seal)
            self._seal = seal
            self._looked_at.clear()
            self._message = None if self._release is None else seal.close(self._release)

    def _join(self, seal: Codec) -> None:
        """Who is not in the roster has no say in decisions, and the terms' run is the only one."""
        with self.agent.transaction():
            self._seen.keep(self.agent.held)
            if seal.roster is not None:
                self._seen.admit(seal.roster)
                self.agent.drop_peers(self.agent.held.keys() - seal.roster.members.keys())
                self.agent.bound = seal.roster.federation

    def watch(self, *, every: float = 1.0, after: Callable[[], None] | None = None) -> Callable[[], None]:
        """`exchange` in a thread, when the transport has news and every so many seconds; gives its end.

        After each it calls `after`, and rests a moment, so that it takes a fifth of a core at most.
        """

        def work() -> None:
            try:
                self.exchange()
            except FedFairXError as error:  # also of an agent whose storage is away
                self.away = str(error)  # and it is tried again, for whoever has seen to it
            if after is not None:
                after()

        return repeat(work, self.transport, self._bell, every=every, name=self.agent.name)

    def wake(self) -> None:
        """Have the thread of `watch` exchange at once; it returns before that has happened."""
        self._bell.hurry()

    @property
    def peers(self) -> dict[str, Peer]:
        """The others, by name; not under the lock, which may be held while the transport is waited for."""
        return peers_of(self.agent, self.refusals, self._came)


@dataclass(frozen=True)
class Peer:
    """What a member knows of another: its latest release, when it came, how many messages were refused."""

    number: int
    count: int
    came: float | None  # seconds since the epoch; None for one that was held before
    refused: int
    lag: int  # releases that it is behind this member


def peers_of(
    agent: Agent, refusals: Mapping[tuple[str, str], int], came: Mapping[str, float]
) -> dict[str, Peer]:
    """The others, by name, of whom something is held or was refused; `refusals` are by sender and reason."""
    refused: Counter[str] = Counter()
    for (name, _), times in list(refusals.items()):
        refused[name] += times
    held, own = agent.held, agent.released
    peers = {}
    for name in sorted({*held, *refused} - {agent.name}):
        number, count = (held[name].number, held[name].count) if name in held else (0, 0)
        peers[name] = Peer(number, count, came.get(name), refused[name], max(own - number, 0))
    return peers


def contradiction(agent: Agent, ours: Release | None, theirs: Release) -> str | None:
    """Why an agent whose latest release is `ours` must send nothing, `theirs` being out under its name.

    None if `theirs` is a release that this agent has made. A private agent remembers all of its own; of one
    that is not private an earlier number is taken for its past.
    """
    made = 0 if ours is None else ours.number
    if theirs.number == made:
        same = theirs == ours
    else:
        same = theirs.number < made and (not agent.private or _again(agent, theirs.number) == theirs)
    if same:
        return None
    return (
        f"the others have release {theirs.number} of {agent.name!r} with other content than this agent's, "
        f"which has made {made}: this is an old copy of it, or a second one runs. Nothing is sent. Stop the "
        "second one, or put back the latest copy; if there is none, start anew under a new name and a new "
        "key, with a new ledger and a budget of its own"
    )


def _again(agent: Agent, number: int) -> Release | None:
    """A past release of its own, which costs nothing; None if it can't be given any more."""
    try:
        return agent.past_release(number)
    except PrivacyError:
        return None
