"""What a member has seen of its federation, so that nothing older is taken, not after a restart either.

A signature says who has made a roster or a release, and not that it is the latest. The highest roster version
and the highest release number of each other are remembered for that, with a digest of what they held. They
stay when a member leaves, so that one that comes back can't come back as it was before.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedfairx.agent.agent import Agent
from fedfairx.errors import StateError
from fedfairx.federation.roster.roster import Roster
from fedfairx.privacy import Release
from fedfairx.storage.seen import Numbered, SeenTables


class Seen:
    """Of `agent` in the federation of `roster`: in the agent's database, if it has one, else in memory.

    Agents of one process have no roster, and nothing is written for them. The writing methods are called
    inside a step of the agent.
    """

    def __init__(self, agent: Agent, roster: Roster | None) -> None:
        self._agent = agent
        self._roster: Numbered | None = None
        self.releases: dict[str, Numbered] = {}  # by sender
        self._tables: SeenTables | None = None
        if roster is not None and agent.durable:
            self._tables = SeenTables(agent.journal, roster.federation)
            self._tables.log.restorers.append(self._read)  # after a step that failed
            self._read()

    def _read(self) -> None:
        """As it is on disk."""
        if self._tables is not None:
            self._roster, self.releases = self._tables.roster(), self._tables.releases()

    # --- rosters -------------------------------------------------------------------------------------

    def admit(self, roster: Roster) -> None:
        """Refuse a version that is older than one that was seen, or another of the same number."""
        name, (version, digest) = self._agent.name, self._roster or (0, "")
        if roster.version < version:
            raise StateError(
                f"this roster is version {roster.version}, and {name!r} has had version {version}: "
                "put the latest into its place; the convener has it, and every other member"
            )
        if roster.version == version and roster.digest != digest:
            raise StateError(
                f"this roster is another version {version} than {name!r} has had: the convener has signed "
                "two of that number; ask for a later version, which everybody gets"
            )
        if roster.version > version:
            self._roster = roster.version, roster.digest
            if self._tables is not None:
                self._tables.keep_roster(self._roster)

    # --- releases ------------------------------------------------------------------------------------

    def keep(self, releases: Mapping[str, Release]) -> None:
        """These were taken; what is later than all before of its sender is remembered."""
        for name, release in releases.items():
            if release.number > self.releases.get(name, (0, ""))[0]:
                self.releases[name] = release.number, release.digest
                if self._tables is not None:
                    self._tables.keep_release(name, self.releases[name])
