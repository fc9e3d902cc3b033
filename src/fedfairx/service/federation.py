"""A service as a member of a federation: when its agent releases, and its exchange with peers.

The roster has the schedule, and each reward counts as a round. A release is made at the end of the write
queue's group in which its round was reached, in the same transaction as those rewards. A thread
(`Member.watch`) sends and receives, so that no decision waits for another organisation. With secure
aggregation rounds have public times, and that thread makes the rows, too (`SecureMember`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

from fedfairx.agent.agent import Agent
from fedfairx.errors import FedFairXError, StorageError, StorageUnavailable, require
from fedfairx.federation.aggregation.progress import Progress
from fedfairx.federation.exchange.alive import AHEAD, SILENT
from fedfairx.federation.exchange.member import Peer
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.roster.certificates import WARNED
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport.protocol import alive_key, named_by
from fedfairx.service.logs import AgentLog
from fedfairx.util.formatting import duration

PATIENCE = 60.0  # seconds after a round's time, from which the log says whom its total waits for
EVERY = 1.0  # seconds between two exchanges if nothing happens
UNKNOWN = "?"  # one name for all senders that are not in the roster, since they can use any name
DAY = 86_400.0  # seconds
REASONS = 10  # why the peers can't be reached, that the log tells of before it is in touch again
REFUSED = {  # why messages are refused, in words, by the reason that counts them
    "absurd": "no records could add up to these statistics, or they are fewer than before: it has a fault, "
    "or is hostile",
    "clock": "its clock is more than five minutes ahead of ours",
    "dimension": "it has another number of features than the terms",
    "epoch": "made for another roster, or with other openers' keys than ours",
    "federation": "made for another federation",
    "indefinite": "its statistics, alone or with those of the others, are impossible",
    "kind": "another kind of message than belongs here",
    "malformed": "damaged, or made by another version of fedfairx",
    "mechanism": "it adds noise by another mechanism than the terms",
    "members": "not of all members of the roster",
    "not finite": "its statistics are not finite numbers: it has a fault, or is hostile",
    "older": "it sends a release that is older than one we have seen: it was restored from an old copy",
    "opener": "it is not one of the openers",
    "own name": "sent under our name",
    "partials": "the openers have added up different rows",
    "repeated number": "it has used the number of a release again, with other content: it lost data",
    "restored": "it has sent other rows before: it was restored from an old copy, or runs twice",
    "round": "of a round that the terms do not have, or that is not asked for",
    "sender": "signed by another member",
    "share": "our share in its row can't be decrypted",
    "signature": "not signed with its key in our roster: the key or the roster is outdated, or it is forged",
    "terms": "it was set up with other terms",
    "two contents": "it has signed two messages of one round: it lost data, or is hostile",
    "unknown": "the sender is not in our roster",
}


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
        self._logger = AgentLog(agent.name)
        self._stamp = place.stamp("roster", "key")
        self._certificates_stamp: tuple[int, ...] | None = None
        self._expiries: dict[str, float] = {}
        self._not_taken: str | None = None  # why the roster in the folder is not taken
        self.member = place.member(agent)
        self.secure = self.member if isinstance(self.member, SecureMember) else None
        self.horizon = terms.horizon
        self.releases = terms.releases
        slots = len(terms.bounds.slots)  # each decision of a round has as many rewards
        self._rounds: list[int] = (slots * terms.times.rounds(terms.plan)).tolist()
        self._epoch, self._opened = 0, (0, 0)  # what the log has told of: the epoch, and the last total
        self._logged_texts: set[str] = set()
        self._cut_off: set[str] = set()  # why, as far as the log has told since it was last in touch
        self._silent: set[str] = set()
        self._judged: dict[
            str, int
        ] = {}  # the release of each peer when we last compared it with our rewards
        self._warned = -math.inf  # when we last warned of a certificate
        self._brought = math.inf  # when an engine last came
        self._gap = 0.0  # seconds between its last two visits
        self._stop: Callable[[], None] | None = None

    # --- sending and taking --------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the exchange in a thread, unless an engine carries the envelopes."""
        self._warn_of_certificates()
        self._brought = self.member.clock()
        if not self.place.carried:
            self._stop = self.member.watch(every=EVERY, after=self._after_exchange)

    def _after_exchange(self) -> None:
        self.look_at_roster()
        self._log()

    def look_at_roster(self) -> None:
        """Take a later version of the roster from the folder; log why any other one is not taken."""
        stamp = self.place.stamp("roster", "key")
        if stamp == self._stamp:
            return
        try:
            place = MemberFolder.read(self.place.folder, vaults=self.place.vaults)
            place.roster.require_follows(self.place.roster)
            place.update(self.member)
        except StorageUnavailable:
            return  # the agent's database: try again later
        except (FedFairXError, OSError) as error:
            self._not_taken = f"the roster in {self.place.folder} is not taken: {error}"
            self._logger.warning("%s", self._not_taken)
        else:
            members = ", ".join(place.roster.members)
            self._logger.info("roster version %d is taken: %s", place.roster.version, members)
            self.place, self._not_taken = place, None
        self._stamp = stamp

    def _log(self) -> None:
        """Log what has changed: the connection, and each peer that is silent, differs or is refused, once."""
        why = self.member.halted or self.away
        if why is None and self._cut_off:
            self._cut_off.clear()
            self._logger.info("in touch with the federation again")
        key = "engine" if self.place.carried else str(why)  # the text about an engine counts the minutes
        if why is not None and key not in self._cut_off and len(self._cut_off) < REASONS:
            self._cut_off.add(key)
            self._logger.warning("not in touch with the federation: %s", why)
        behind = self.behind
        if behind is not None:
            self._say_once(behind)
        for name, reason in self.refusals:
            if reason == "clock" and behind is not None:
                continue  # it is not theirs
            who = "senders that are not in the roster" if name == UNKNOWN else name
            self._say_once(f"messages of {who} are refused ({reason}): {REFUSED.get(reason, reason)}")
        silent = self.silent
        for name in silent.keys() - self._silent:
            self._logger.warning("%s is silent: no sign of life for %s", name, duration(silent[name]))
        for name in self._silent - silent.keys():
            self._logger.info("%s is heard again", name)
        self._silent = set(silent)
        if self.secure is not None:
            self._log_rounds(self.secure.progress)
        self._say_who_differs()
        self._warn_of_certificates()

    def _log_rounds(self, progress: Progress) -> None:
        """Log a new total, and whom the next one waits for, if that takes long."""
        rounds = self.place.roster.rounds
        assert rounds is not None
        if (progress.epoch, progress.opened) > self._opened and progress.opened:
            self._opened = progress.epoch, progress.opened
            self._logger.info("round %d of %d is opened", progress.opened, rounds.count)
        if progress.epoch > self._epoch:
            self._epoch = progress.epoch
            self._logger.info("epoch %d has begun", progress.epoch)
        if progress.unconfirmed:
            self._say_once(f"the roster is not accepted here: {progress.unconfirmed}")
        waits = ", ".join(f"{name} ({what})" for name, what in progress.waits_for.items())
        if waits and self.member.clock() - progress.since > PATIENCE:
            begun = progress.signs or progress.rows or progress.partials
            which = (
                f"round {progress.due}" if begun else f"the first round of epoch {self.place.roster.version}"
            )
            self._say_once(f"the total of {which} waits for {waits}")

    def _say_who_differs(self) -> None:
        """Compare peers with our rewards when one of them has sent a release."""
        own = self.agent.name
        numbers = {name: release.number for name, release in self.agent.held.items() if name != own}
        if numbers != self._judged:
            self._judged = numbers
            for each in self.agent.partners.values():
                if each.differs:
                    self._say_once(f"the statistics of {each.name} differ from ours: it {each.reason}")

    def _warn_of_certificates(self) -> None:
        """Log certificates that expire within `WARNED` days, at the start and then daily."""
        now = self.member.clock()
        if now - self._warned < DAY:
            return
        for file, left in self.expiring:
            self._warned = now
            self._logger.warning("%s", expiry_text(file, left))

    def end(self) -> None:
        if self._stop is not None:
            self._stop()
        self.member.close()

    def take(self, envelopes: Mapping[str, bytes]) -> tuple[list[str], dict[str, str]]:
        """Take the envelopes of an engine: whose were new, and whose were refused, with the reason."""
        if isinstance(self.member, SecureMember):
            return [], dict.fromkeys(envelopes, "terms")  # an engine carries no rows
        now = self.member.clock()
        self._brought, self._gap = now, now - self._brought
        self.look_at_roster()
        members, past = self.place.roster.members, dict(self.member.refusals)
        from_members = {
            name: message for name, message in envelopes.items() if (named_by(name) or name) in members
        }
        strangers = sum(not self.member.left(name) for name in envelopes.keys() - from_members.keys())
        if strangers:
            self.member.refusals[UNKNOWN, "unknown"] += strangers
            self.member.rejected[UNKNOWN] = "unknown"
        names = self.member.take(from_members)
        counted = list(self.member.refusals.items())
        refused = {name: reason for (name, reason), times in counted if times > past.get((name, reason), 0)}
        self._log()
        return names, refused

    # --- releasing -----------------------------------------------------------------------------------

    def release_if_due(self, agent: Agent) -> None:
        """Release if a round of the schedule was reached: the last task of a group of the write queue."""
        if self.over is not None:
            self._say_once(self.over)
            return
        if self.secure is not None:
            return  # rows are made at public times, by its thread
        observed = agent.observed
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
        if self.secure is not None:
            return (
                f"the last of {self.releases} rounds is over: later rewards are in no row until the "
                "convener opens the next epoch (fedfairx federate amend)"
                if self.agent.released >= self.releases
                else None
            )
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
        """The count of rewards at which the next release is due; None with rounds at public times."""
        if self.secure is not None:
            return None
        at = bisect_right(self._rounds, self.agent.observed)
        return self._rounds[at] if at < len(self._rounds) and self.over is None else None

    def _say_once(self, text: str) -> None:
        if text not in self._logged_texts:
            self._logged_texts.add(text)
            self._logger.warning("%s", text)

    # --- state for pages and metrics -------------------------------------------------------------------

    @property
    def trouble(self) -> str | None:
        """The most serious problem; None if there is none."""
        opening = None if self.secure is None else self.secure.trouble or None
        return self.member.halted or self._not_taken or self.away or opening or self.behind

    @property
    def away(self) -> str | None:
        """Why nothing is exchanged now; None if something is."""
        since = self.member.clock() - self._brought
        if self.place.carried and since > max(SILENT, 3.0 * self._gap):
            return f"the engine that carries messages has not come for {duration(since)}"
        return self.member.away

    @property
    def behind(self) -> str | None:
        """That our clock is behind, if the signs of life of most peers are too far ahead of it; else None."""
        rejected, peers = dict(self.member.rejected), self.peers
        ahead = [name for name in peers if rejected.get(alive_key(name)) == "clock"]
        if 2 * len(ahead) <= len(peers):
            return None
        return (
            f"the clock here is more than {duration(AHEAD)} behind that of {', '.join(ahead)}: set it right; "
            "until then they take this member for silent"
        )

    @property
    def peers(self) -> dict[str, Peer]:
        """All peers in the roster, including those that sent nothing yet."""
        peers, own = self.member.peers, self.agent.name
        return {name: peers.get(name, Peer()) for name in sorted(self.place.roster.members) if name != own}

    @property
    def ages(self) -> dict[str, float]:
        """Seconds since the last sign of life of each peer, or since ours was first stored."""
        now = self.member.clock()
        return {name: self.member.signs.age(name, now) for name in self.peers}

    @property
    def silent(self) -> dict[str, float]:
        """Peers that give no sign of life while ours come through, and for how many seconds."""
        ages = self.ages
        return {name: ages[name] for name in self.member.signs.silent(ages)}

    @property
    def expiries(self) -> dict[str, float]:
        """When each certificate of this member expires, in seconds since 1970, by its file."""
        stamp = self.place.stamp(*self.place.certificates)
        if stamp != self._certificates_stamp:
            self._certificates_stamp, self._expiries = stamp, self.place.expiries()
        return self._expiries

    @property
    def expiring(self) -> Iterator[tuple[str, float]]:
        """Certificates that expire within `WARNED` days, and the seconds left; negative if it has expired."""
        now = self.member.clock()
        return ((file, end - now) for file, end in self.expiries.items() if end - now < WARNED * DAY)

    @property
    def refused(self) -> dict[tuple[str, str], int]:
        """Those of `refusals` whose latest message is refused."""
        rejected = list(self.member.rejected.items())
        now = {(self._sender(named_by(key) or key), reason) for key, reason in rejected}
        return {key: times for key, times in self.refusals.items() if key in now}

    @property
    def refusals(self) -> dict[tuple[str, str], int]:
        """Numbers of refused messages by sender and reason; unknown senders are counted together."""
        counts: dict[tuple[str, str], int] = {}
        for (name, reason), times in list(self.member.refusals.items()):
            key = self._sender(name), reason
            if times:
                counts[key] = counts.get(key, 0) + times
        return counts

    def _sender(self, name: str) -> str:
        return name if name in self.place.roster.members else UNKNOWN


def expiry_text(file: str, left: float) -> str:
    """That a certificate expires, and what to do."""
    when = f"expires in {duration(left)}" if left > 0.0 else f"expired {duration(-left)} ago"
    return (
        f"certificate {file} {when}: the convener renews it (fedfairx federate renew), "
        "then the file is to be replaced"
    )
