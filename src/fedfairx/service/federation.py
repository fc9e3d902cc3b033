"""A service as a member of a federation: when its agent releases, and its exchange with peers.

The roster has the schedule, and each reward counts as a round. A release is made at the end of the write
queue's group in which its round was reached, in the same transaction as those rewards. A thread
(`Member.watch`) sends and receives, so that no decision waits for another organisation.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping

from fedfairx.agent.agent import Agent
from fedfairx.errors import FedFairXError, StorageError, StorageUnavailable, require
from fedfairx.federation.exchange.member import Peer
from fedfairx.federation.setup.member_folder import MemberFolder

LOG = logging.getLogger("fedfairx.service")
EVERY = 1.0  # seconds between two exchanges if nothing happens
UNKNOWN = "?"  # one name for all senders that are not in the roster, since they can use any name


class Membership:
    """An agent in its member folder; the service calls `begin` and `end`."""

    def __init__(self, place: MemberFolder, agent: Agent) -> None:
        terms = place.roster.terms
        require(
            terms.times.public,
            "schedule",
            "must have rounds that are fixed in advance, for a service",
            type(terms.times).__name__,
        )
        self.place = place
        self.agent = agent
        self._stamp = place.stamp()
        self._not_taken: str | None = None  # why the roster in the folder is not taken
        self.member = place.member(agent)
        self.horizon = terms.horizon
        self.releases = terms.releases
        slots = len(terms.bounds.slots)  # each decision of a round has as many rewards
        self._rounds: list[int] = (slots * terms.times.rounds(terms.plan)).tolist()
        self._said: set[str] = set()
        self._state = ""
        self._stop: Callable[[], None] | None = None

    # --- sending and taking --------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the exchange in a thread, unless an engine carries the envelopes."""
        if not self.place.carried:
            self._stop = self.member.watch(every=EVERY, after=self._after_exchange)

    def _after_exchange(self) -> None:
        self.look_at_roster()
        self._log()

    def look_at_roster(self) -> None:
        """Take a later version of the roster from the folder; log why any other one is not taken."""
        stamp = self.place.stamp()
        if stamp == self._stamp:
            return
        try:
            place = MemberFolder.read(self.place.folder)
            place.roster.require_follows(self.place.roster)
            self.member.follow(place.seal())
        except StorageUnavailable:
            return  # the agent's database: try again later
        except (FedFairXError, OSError) as error:
            self._not_taken = f"the roster in {self.place.folder} is not taken: {error}"
            LOG.warning("%s", self._not_taken)
        else:
            members = ", ".join(place.roster.members)
            LOG.info("roster version %d is taken: %s", place.roster.version, members)
            self.place, self._not_taken = place, None
        self._stamp = stamp

    def _log(self) -> None:
        """Log when the connection to the federation is lost, and when it is back."""
        now = "halted" if self.member.halted else "away" if self.member.away else ""
        if now != self._state:
            self._state = now
            if now:
                LOG.warning("not in touch with the federation: %s", self.trouble)
            else:
                LOG.info("in touch with the federation again")

    def end(self) -> None:
        if self._stop is not None:
            self._stop()
        self.member.transport.close()

    def take(self, envelopes: Mapping[str, bytes]) -> tuple[list[str], dict[str, str]]:
        """Take the envelopes of an engine: whose were new, and whose were refused, with the reason."""
        self.look_at_roster()
        members, before = self.place.roster.members, dict(self.member.refusals)
        known = {name: message for name, message in envelopes.items() if name in members}
        self.member.refusals[UNKNOWN, "unknown"] += len(envelopes) - len(known)
        taken = self.member.take(known)
        now = dict(self.member.refusals)
        refused = {
            name: reason for (name, reason), times in now.items() if times > before.get((name, reason), 0)
        }
        return taken, refused

    # --- releasing -----------------------------------------------------------------------------------

    def release_if_due(self, agent: Agent) -> None:
        """Release if a round of the schedule was reached: the last step of a group of the write queue."""
        observed = agent.observed
        if self.over is not None:
            self._say_once(self.over)
            return
        due = bisect_right(self._rounds, observed) > bisect_right(self._rounds, observed - agent.unreleased)
        if not due or self.member.halted is not None:
            return
        try:
            agent.release()
        except StorageError:
            raise
        except FedFairXError as error:  # the rewards are kept
            self._say_once(str(error))
        else:
            self.member.wake()  # it waits for the agent's lock, so it sends nothing that is not on disk

    @property
    def over(self) -> str | None:
        """Why nothing will be released any more; None while something will."""
        if self.agent.released >= self.releases:
            return (
                f"the budget is spent with {self.releases} releases: later rewards are in no release; "
                "found a new federation to go on together"
            )
        last = self._rounds[-1] if self._rounds else 0
        if self.agent.observed - self.agent.unreleased >= last:
            return (
                f"the last release of the federation's {self.horizon} rounds was due after {last} rewards: "
                "later rewards are in no release; found a new federation to go on together"
            )
        return None

    @property
    def next_round(self) -> int | None:
        """The count of rewards at which the next release is due."""
        at = bisect_right(self._rounds, self.agent.observed)
        return self._rounds[at] if at < len(self._rounds) and self.over is None else None

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOG.warning("%s", text)

    # --- state for pages and metrics -------------------------------------------------------------------

    @property
    def trouble(self) -> str | None:
        """The most serious problem; None if there is none."""
        return self.member.halted or self._not_taken or self.member.away

    @property
    def peers(self) -> dict[str, Peer]:
        """All peers in the roster, including those that sent nothing yet."""
        known, own = self.member.peers, self.agent.name
        silent = Peer(0, 0, None, 0, self.agent.released)
        return {name: known.get(name, silent) for name in sorted(self.place.roster.members) if name != own}

    @property
    def refusals(self) -> dict[tuple[str, str], int]:
        """Numbers of refused messages by sender and reason; unknown senders are counted together."""
        found: dict[tuple[str, str], int] = {}
        for (name, reason), times in list(self.member.refusals.items()):
            key = (name if name in self.place.roster.members else UNKNOWN, reason)
            if times:
                found[key] = found.get(key, 0) + times
        return found
