"""The latest roster version and release numbers that an agent has seen, with digests, by federation."""

from __future__ import annotations

from fedfairx.storage.database import Database
from fedfairx.storage.journal import Journal

Numbered = tuple[int, str]  # a roster version or release number, and a digest of the content

_ROSTER = (
    "INSERT INTO seen_rosters (agent, federation, version, digest) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (agent, federation) "
    "DO UPDATE SET version = excluded.version, digest = excluded.digest"
)
_RELEASE = (
    "INSERT INTO seen_releases VALUES (?, ?, ?, ?, ?) ON CONFLICT (agent, federation, sender) "
    "DO UPDATE SET number = excluded.number, digest = excluded.digest"
)


class SeenTables:
    """The tables of one agent in one federation. The `keep_` methods are called inside a transaction."""

    def __init__(self, journal: Journal, federation: str) -> None:
        self.log = journal.log
        self._key = (journal.agent, federation)

    def roster(self) -> Numbered | None:
        rows = self.log.database.execute(
            "SELECT version, digest FROM seen_rosters WHERE agent = ? AND federation = ?", self._key
        )
        return (int(rows[0][0]), str(rows[0][1])) if rows else None

    def releases(self) -> dict[str, Numbered]:
        """By sender."""
        rows = self.log.database.execute(
            "SELECT sender, number, digest FROM seen_releases WHERE agent = ? AND federation = ?", self._key
        )
        return {str(sender): (int(number), str(digest)) for sender, number, digest in rows}

    def halted(self) -> str | None:
        """Why sending is halted; None if it is not."""
        return _halted(self.log.database, *self._key)

    def keep_halted(self, why: str) -> None:
        statement = "UPDATE seen_rosters SET halted = ? WHERE agent = ? AND federation = ?"
        self.log.write(statement, (why, *self._key))

    def keep_roster(self, seen: Numbered) -> None:
        self.log.write_last(("roster", *self._key), _ROSTER, (*self._key, *seen))

    def keep_release(self, sender: str, seen: Numbered) -> None:
        self.log.write_last(("seen", *self._key, sender), _RELEASE, (*self._key, sender, *seen))


def halted_in(database: Database, name: str, federation: str) -> str | None:
    """Why an agent of this database sends nothing any more; None if it does, or has never run."""
    rows = database.execute("SELECT agent FROM agents WHERE name = ?", (name,))
    return _halted(database, rows[0][0], federation) if rows else None


def _halted(database: Database, agent: int, federation: str) -> str | None:
    question = "SELECT halted FROM seen_rosters WHERE agent = ? AND federation = ?"
    rows = database.execute(question, (agent, federation))
    return rows[0][0] if rows else None
