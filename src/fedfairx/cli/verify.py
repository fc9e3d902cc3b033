"""`fedfairx verify`: check what a durable agent has stored; exit non-zero when it is damaged."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfairx.cli.common import Output, add_verb, print_json, print_table

if TYPE_CHECKING:
    from fedfairx.storage.database import Database


@dataclass(frozen=True, kw_only=True)
class Verify(Output):
    """Flags of `fedfairx verify`.

    data: a service's data folder, a SQLite file or a PostgreSQL address.
    agent: name of the only agent to check (default: all).
    replay: also replay each log, in a copy in a temporary folder, and compare the states.
    """

    data: str = field(default="fedfairx-data", metadata={"metavar": "DIR|FILE|URL"})
    agent: str | None = field(default=None, metadata={"metavar": "NAME"})
    replay: bool = False


def add(verbs: Any) -> None:
    add_verb(
        verbs,
        "verify",
        run,
        Verify,
        summary="Check the seals and the chain of all that durable agents have stored. Exits 1 when a row "
        "was changed, removed, inserted or moved, and names the first. It only reads, and works beside a "
        "running service. Whoever can write to the database can also write a whole log again: note the head "
        "that is printed, the digest of the last row, and it can't go unnoticed.",
        example="""
            fedfairx verify --data DIR
            fedfairx verify --data agent.db --agent north --json
            fedfairx verify --data postgresql://host/name --replay""",
    )


def run(args: Verify) -> int:
    from fedfairx.storage.verification import check_logs, open_for_reading

    place = args.data
    if Path(place).is_dir():
        from fedfairx.service.settings import FILE

        place = str(Path(place) / FILE)
    with open_for_reading(place) as database:
        found = [asdict(each) for each in check_logs(database, agent=args.agent)]
        if args.replay:
            _replay(database, found)
    if args.json:
        print_json(found)
    else:
        columns = ("agent", "decisions", "rewards", "head")
        print_table(
            (*columns, "result"),
            [(*(each[name] for name in columns), each["damage"] or "sound") for each in found],
        )
    return 1 if any(each["damage"] for each in found) else 0


def _replay(database: Database, found: list[dict[str, Any]]) -> None:
    """Do the logs that are sound again; what comes of it is their `damage`."""
    import tempfile

    from fedfairx.agent.agent import Agent
    from fedfairx.errors import FedFairXError
    from fedfairx.storage.verification import copy_database

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copy.db"
        copy_database(database, path)
        for each in found:
            if each["damage"] is None:
                try:
                    with Agent.open(path, name=each["agent"]) as agent:
                        agent.verify()
                except FedFairXError as error:
                    each["damage"] = str(error).replace(str(path), database.place)
