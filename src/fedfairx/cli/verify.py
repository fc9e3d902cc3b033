"""`fedfairx verify`: check what durable agents have stored; exit non-zero when it is damaged."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfairx.cli.common import Output
from fedfairx.util.formatting import text_table

if TYPE_CHECKING:
    from fedfairx.storage.database import Database


@dataclass(frozen=True, kw_only=True)
class Verify(Output):
    """Check everything that durable agents have stored. Rows have checksums and a hash chain: it exits 1 and
    names the first damaged row when one was changed, removed, inserted or moved. It only reads, and works
    beside a running service. Whoever can write to the database can also rewrite a whole log: write down the
    printed head, which is the digest of the last row, to detect that.

        fedfairx verify --data DIR
        fedfairx verify --data agent.db --agent north --json
        fedfairx verify --data postgresql://host/name --replay

    data: a service's data folder, a SQLite file or a PostgreSQL address.
    agent: name of the only agent to check (default: all).
    replay: also replay each log, in a temporary copy, and compare the resulting state.
    """

    data: str = field(default="fedfairx-data", metadata={"metavar": "DIR|FILE|URL"})
    agent: str | None = field(default=None, metadata={"metavar": "NAME"})
    replay: bool = False

    def run(self) -> int:
        from fedfairx.storage.open_log import open_for_reading
        from fedfairx.storage.verification import check_logs

        with open_for_reading(self.data) as database:
            logs = [asdict(each) for each in check_logs(database, agent=self.agent)]
            if self.replay:
                _replay(database, logs)
        columns = ("agent", "decisions", "rewards", "head")
        rows = [(*(each[name] for name in columns), each["damage"] or "sound") for each in logs]
        gone = [f"{each['agent']}: {each['gone']}" for each in logs if each["gone"]]
        self.answer(logs, "\n".join([text_table((*columns, "result"), rows), *gone]))
        return 1 if any(each["damage"] for each in logs) else 0


def _replay(database: Database, logs: list[dict[str, Any]]) -> None:
    """Replay the undamaged logs; set their `damage` if the state differs."""
    from fedfairx.agent.agent import Agent
    from fedfairx.errors import FedFairXError
    from fedfairx.storage.verification import copy_database

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copy.db"
        copy_database(database, path)
        for each in logs:
            if each["damage"] is None:
                try:
                    with Agent.open(path, name=each["agent"]) as agent:
                        agent.verify()
                except FedFairXError as error:
                    each["damage"] = str(error).replace(str(path), database.place)
