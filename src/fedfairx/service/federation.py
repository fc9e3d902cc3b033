"""A service's part in a federation: when its agent releases, and what goes to the others and comes from them.

The schedule is the roster's, and a round is a reward that the agent has taken. A release is made at the end
of the desk's group in which its round was reached, in the same transaction as those rewards. Sending and
taking are a thread's (`Member.watch`), so that no decision waits for another organisation.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping

from fedfairx.agent.agent import Agent
from fedfairx.errors import FedFairXError, StorageError, StorageUnavailable, require
from fedfairx.federation.exchange.member import Peer
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.service.metrics import labelled, text

LOG = logging.getLogger("fedfairx.service")
EVERY = 1.0  # seconds between two exchanges when there is no news
UNKNOWN = "?"  # senders whose names are in no roster are counted together: they are of their own choosing


class Membership:
    """An agent in its place; `begin` and `end` are the service's."""

    def __init__(self, place: MemberFolder, agent: Agent) -> None:
        terms = place.roster.terms
        require(
            terms.times.public,
            "schedule",
            "must be one whose rounds are fixed beforehand, for a service",
            type(terms.times).__name__,
        )
        self.place = place
        self.agent = agent
        self._stamp = place.stamp()
        self._not_taken: str | None = None  # why the roster in its folder is not the one that is held
        self.member = place.member(agent)
        self.horizon = terms.horizon
        self.releases = terms.releases
        self._rounds: list[int] = terms.times.rounds(terms.plan).tolist()
        self._said: set[str] = set()
        self._state = ""
        self._stop: Callable[[], None] | None = None

    # --- sending and taking --------------------------------------------------------------------------

    def begin(self) -> None:
        """Exchange from now on, in a thread; an engine that carries messages calls by itself."""
        if not self.place.carried:
            self._stop = self.member.watch(every=EVERY, after=self._after_exchange)

    def _after_exchange(self) -> None:
        self.look_at_roster()
        self._log()

    def look_at_roster(self) -> None:
        """Take a later version that was put into its folder; another is said, and changes nothing."""
        stamp = self.place.stamp()
        if stamp == self._stamp:
            return
        try:
            place = MemberFolder.read(self.place.folder)
            place.roster.require_follows(self.place.roster)
            self.member.follow(place.seal())
        except StorageUnavailable:
            return  # the agent's own database: tried again
        except (FedFairXError, OSError) as error:
            self._not_taken = f"the roster in {self.place.folder} is not taken: {error}"
            LOG.warning("%s", self._not_taken)
        else:
            members = ", ".join(place.roster.members)
            LOG.info("roster version %d is taken: %s", place.roster.version, members)
            self.place, self._not_taken = place, None
        self._stamp = stamp

    def _log(self) -> None:
        """Say it when the others are lost, and when they are back; not each time that it is tried."""
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
        """What an engine has brought: who had something new, and who was refused, with the reason."""
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
        """The last step of the desk's group: a release, if a round of the schedule was reached in it."""
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
        except FedFairXError as error:  # the rewards stand all the same
            self._say_once(str(error))
        else:
            self.member.wake()  # it waits for the agent's lock, so it sends nothing that is not on disk

    @property
    def over(self) -> str | None:
        """Why nothing will be released any more; None while something will."""
        if self.agent.released >= self.releases:
            return (
                f"all of this agent's {self.releases} releases are made, its budget is spent: what comes now "
                "is in no release; found a new federation to go on together"
            )
        last = self._rounds[-1] if self._rounds else 0
        if self.agent.observed - self.agent.unreleased >= last:
            return (
                f"the last release of the federation's {self.horizon} rounds was due after {last} rewards: "
                "what comes now is in no release; found a new federation to go on together"
            )
        return None

    @property
    def next_round(self) -> int | None:
        """The count of rewards at which it releases next."""
        at = bisect_right(self._rounds, self.agent.observed)
        return self._rounds[at] if at < len(self._rounds) and self.over is None else None

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOG.warning("%s", text)

    # --- what there is to tell -----------------------------------------------------------------------

    @property
    def trouble(self) -> str | None:
        """What somebody should see to, the gravest first; None while all is well."""
        return self.member.halted or self._not_taken or self.member.away

    @property
    def peers(self) -> dict[str, Peer]:
        """All others of the roster, also those of whom nothing came yet."""
        known, own = self.member.peers, self.agent.name
        silent = Peer(0, 0, None, 0, self.agent.released)
        return {name: known.get(name, silent) for name in sorted(self.place.roster.members) if name != own}

    @property
    def refusals(self) -> dict[tuple[str, str], int]:
        """Refused messages by sender and reason; names that are in no roster together."""
        found: dict[tuple[str, str], int] = {}
        for (name, reason), times in list(self.member.refusals.items()):
            key = (name if name in self.place.roster.members else UNKNOWN, reason)
            if times:
                found[key] = found.get(key, 0) + times
        return found


def federation_lines(membership: Membership, *, exact: bool) -> list[str]:
    """For `/metrics`."""
    member, peers = membership.member, membership.peers
    now = [
        (
            "fedfairx_federation_reached",
            "gauge",
            "Whether the transport was, last.",
            int(member.away is None),
        ),
        (
            "fedfairx_federation_waiting",
            "gauge",
            "Whether a release is still to be sent.",
            int(member.waiting),
        ),
        ("fedfairx_federation_halted", "gauge", "Whether it must not send.", int(member.halted is not None)),
        ("fedfairx_federation_over", "gauge", "Whether all is released.", int(membership.over is not None)),
    ]
    lines = [*text(now)]
    for name, help, of in (
        ("release", "Number of the latest release held.", [peer.number for peer in peers.values()]),
        ("records", "Records in the latest release held.", [peer.count for peer in peers.values()]),
        ("lag", "Releases that it is behind this agent.", [peer.lag for peer in peers.values()]),
    ):
        values = [({"peer": peer}, value) for peer, value in zip(peers, of, strict=True)]
        lines += labelled(f"fedfairx_peer_{name}", "gauge", help, values)
    if exact:  # our rewards have told
        weights = [({"peer": name}, each.weight) for name, each in membership.agent.partners.items()]
        lines += labelled("fedfairx_peer_weight", "gauge", "Share of its records that counts.", weights)
    refused = [
        ({"peer": each, "reason": why}, times) for (each, why), times in sorted(membership.refusals.items())
    ]
    lines += labelled("fedfairx_refused_total", "counter", "Refused messages.", refused)
    return lines
