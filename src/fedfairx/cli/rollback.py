"""`fedfairx rollback`: return an agent to what it knew at a time."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from fedfairx.cli.common import Output
from fedfairx.errors import InvalidInput, require


@dataclass(frozen=True, kw_only=True)
class RollBack(Output):
    """Return an agent that is not private to what it knew at a time. Stop its service first. Its log keeps
    what has happened since: those decisions are marked, and what their rewards taught is undone. A private
    agent can't go back, because its messages are out.

        fedfairx rollback --data DIR --to 2026-11-16T08:00
        fedfairx rollback --data postgresql://host/name --agent north --to 1794000000

    data: a service's data folder, a SQLite file or a PostgreSQL address.
    agent: which agent, if the database holds several (default: the only one).
    to: the time: ISO 8601, in UTC unless it says otherwise, or seconds since 1970.
    """

    data: str = field(default="fedfairx-data", metadata={"metavar": "DIR|FILE|URL"})
    agent: str | None = field(default=None, metadata={"metavar": "NAME"})
    to: str | None = field(default=None, metadata={"metavar": "TIME"})

    def run(self) -> int:
        from fedfairx.agent.agent import Agent
        from fedfairx.storage.open_log import FILE, open_for_reading

        if self.to is None:
            raise InvalidInput("--to must be given: the time to return to")
        time = seconds_since_1970(self.to)
        with open_for_reading(self.data) as database:  # it must be there: opening an agent would make it
            names = [name for (name,) in database.execute("SELECT name FROM agents ORDER BY agent")]
        rule = f"must be one of {', '.join(map(repr, names[:10]))}"
        exists = len(names) == 1 if self.agent is None else self.agent in names
        require(exists, "--agent", rule, self.agent)
        place = os.path.join(self.data, FILE) if os.path.isdir(self.data) else self.data
        with Agent.open(place, name=self.agent) as agent:
            undone = agent.roll_back(to=time)
        self.answer(asdict(undone), str(undone))
        return 0


def seconds_since_1970(text: str) -> float:
    """A time as text, in seconds."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"--to must be a time such as 2026-11-16T08:00, got {text!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
