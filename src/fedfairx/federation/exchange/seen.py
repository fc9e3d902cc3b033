"""The newest roster and releases that a member has seen, kept so that no older one is ever accepted.

A signature proves who made a roster or a release, not that it is the latest. So the highest roster version
and each peer's highest release number are stored with a digest of their content, also after a peer has left:
one that rejoins can't start again from an older release. What shows that this agent is an old copy of itself
is remembered, too: the transport may lose it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedfairx.agent.agent import Agent
from fedfairx.errors import StateError
from fedfairx.federation.roster.roster import Roster
from fedfairx.privacy import Release
from fedfairx.storage.seen import Numbered, SeenTables


class Seen:
    """What `agent` has seen in the federation of `roster`, in the agent's database or in memory.

    Nothing is written for agents of one process, which have no roster. Writing methods are called inside a
    step of the agent.
    """

    def __init__(self, agent: Agent, roster: Roster | None) -> None:
        self._agent = agent
        self._roster: Numbered | None = None
        self.releases: dict[str, Numbered] = {}  # by sender
        self.halted: str | None = None  # why this agent must send nothing any more
        self._tables: SeenTables | None = None
        if roster is not None and agent.durable:
            self._tables = SeenTables(agent.journal, roster.federation)
            self._tables.log.restorers.append(self._read)  # after a step that failed
            self._read()

    def _read(self) -> None:
        """Read the stored state."""
        if self._tables is not None:
            self._roster, self.releases = self._tables.roster(), self._tables.releases()
            self.halted = self._tables.halted()

    # --- rosters -------------------------------------------------------------------------------------

    def admit(self, roster: Roster) -> None:
        """Remember a roster; refuse one older than one that was seen, or another one of the same version."""
        name, (version, digest) = self._agent.name, self._roster or (0, "")
        if roster.version < version:
            raise StateError(
                f"roster must be at least version {version}, which {name!r} has seen, got {roster.version}: "
                "get the latest from the convener or a peer"
            )
        if roster.version == version and roster.digest != digest:
            raise StateError(
                f"roster differs from the version {version} that {name!r} has seen: the convener has signed "
                "two of that number; ask for a later version"
            )
        if roster.version > version:
            self._roster = roster.version, roster.digest
            if self._tables is not None:
                self._tables.keep_roster(self._roster)

    # --- releases ------------------------------------------------------------------------------------

    def keep(self, releases: Mapping[str, Release]) -> None:
        """Remember accepted releases that are the newest of their sender."""
        for name, release in releases.items():
            if release.number > self.releases.get(name, (0, ""))[0]:
                self.releases[name] = release.number, release.digest
                if self._tables is not None:
                    self._tables.keep_release(name, self.releases[name])

    def halt(self, why: str) -> None:
        """Remember that this agent must send nothing any more."""
        self.halted = why
        if self._tables is not None:
            self._tables.keep_halted(why)
