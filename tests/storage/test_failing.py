"""A durable agent when its storage fails: a clear error, nothing half written, and it goes on afterwards."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from elsewhere import elsewhere
from fedfairx.decision import DecisionNote
from fedfairx.errors import KeyTaken, OlderCopy, OutcomeUnknown, StateError, StorageError, StorageUnavailable
from fedfairx.storage import postgres as storage_on_server
from fedfairx.storage import sqlite
from fedfairx.storage.api_keys import open_keys
from fedfairx.storage.open_log import open_for_reading
from fedfairx.storage.sqlite import RECENTLY
from fedfairx.storage.verification import check_logs
from servers import Postgres
from states import told

D = 3
X = np.eye(D)
BUDGET = ffx.Budget(epsilon=4.0, delta=0.1, releases=10)
RESTORE = "restore a backup, and check it with `fedfairx verify`$"


def opened(path: Path, budget: ffx.Budget | None = BUDGET) -> ffx.Agent:
    agent = ffx.Agent.open(path, dimension=D, seed=0, name="a", budget=budget)
    for _ in range(5):
        agent.decide(X)
    agent.observe(next(iter(agent._pending.values())), reward=0.5)
    return agent


def every_step(agent: ffx.Agent) -> list[Any]:
    waiting = next(iter(agent._pending.values())).id
    return [
        lambda: agent.decide(X),
        lambda: agent.decide_many([X, X]),
        lambda: agent.observe(waiting, reward=0.5),
        lambda: agent.observe_many([waiting], [0.5]),
        lambda: agent.learn(X, [0.1, 0.2, 0.3]),
        lambda: agent.forget(waiting),
        lambda: agent.forget_many([waiting]),
        lambda: agent.release(),
        lambda: agent.absorb({"a": agent.release()}),
        lambda: agent.begin_run(ffx.Budget(epsilon=1.0, delta=0.1, releases=3)),
        lambda: agent.expire(now=1e12),
    ]


def refused_by_all_and_unchanged(agent: ffx.Agent) -> None:
    before, spent = told(agent), agent.privatizer.guarantee.spent
    for step in every_step(agent):
        with pytest.raises(StorageUnavailable):
            step()
        assert told(agent) == before
        assert agent.privatizer.guarantee.spent == spent
    with pytest.raises(StorageUnavailable), agent.transaction():
        agent.decide(X)
        agent.decide(X)
    assert told(agent) == before


def accepted_by_all(agent: ffx.Agent, place: Any) -> None:
    for index in range(len(every_step(agent))):
        agent.decide(X)
        every_step(agent)[index]()
    before = told(agent)
    agent.verify()
    agent.close()
    with ffx.Agent.open(place) as again:
        assert told(again) == before


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with opened(path) as agent:
        agent.set_window(1.0)
        writer = agent.journal.log.database._writer
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages}")
        x = np.random.default_rng(0).random((2000, D))  # more than fits into what is left of the last page
        before = told(agent)
        for step in (lambda: agent.decide(x), lambda: agent.learn(x, np.zeros(2000))):
            with pytest.raises(StorageUnavailable, match="full; nothing has changed"):
                step()
            assert told(agent) == before
        with pytest.raises(StorageUnavailable, match="full"), agent.transaction():
            agent.release()
            agent.decide(x)
        assert told(agent) == before
        assert agent.privatizer.spent == 0
        writer.execute("PRAGMA max_page_count = 1000000000")
        agent.decide(x)
        accepted_by_all(agent, path)


@pytest.mark.process
@pytest.mark.parametrize("freed", [True, False])
def test_a_disk_that_takes_no_more_in_another_process(tmp_path: Path, freed: bool) -> None:
    """A limit of the system on the size of files, which SQLite meets in the middle of a write."""

    def fill() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
            made = 0
            with pytest.raises(StorageUnavailable):
                while made < 10_000:
                    agent.decide(X)
                    made += 1
            assert agent.pending == made
            if freed:  # else it is closed while there is no room
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                agent.decide(X)
        return made + freed

    with elsewhere(fill) as filled:
        made = filled()
    with ffx.Agent.open(tmp_path / "agent.db") as agent:
        assert agent.pending == int(made) > 10
        agent.verify()


def test_locked_by_somebody(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with opened(path) as agent:
        agent.set_window(1.0)
        agent.journal.log.database._writer.execute("PRAGMA busy_timeout = 1")
        other = sqlite3.connect(path, isolation_level=None)  # a tool that knows nothing of the lock file
        other.execute("BEGIN IMMEDIATE")
        refused_by_all_and_unchanged(agent)
        other.execute("ROLLBACK")
        other.close()
        accepted_by_all(agent, path)


def test_read_only(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with opened(path) as agent:
        agent.set_window(1.0)
        agent.journal.log.database._writer.execute("PRAGMA query_only = ON")
        refused_by_all_and_unchanged(agent)
        agent.journal.log.database._writer.execute("PRAGMA query_only = OFF")
        accepted_by_all(agent, path)


def test_a_lost_connection(postgres: Postgres) -> None:
    place = postgres.schema()
    with opened(place) as agent:  # type: ignore[arg-type]
        agent.set_window(1.0)
        before = told(agent)
        cut(postgres)
        with pytest.raises(StorageUnavailable, match="nothing has changed"):
            agent.decide(X)
        assert told(agent) == before
        accepted_by_all(agent, place)


def cut(postgres: Postgres) -> None:
    """End all connections."""
    import psycopg

    with psycopg.connect(postgres.address, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def test_another_process_had_it_while_the_connection_was_lost(postgres: Postgres) -> None:
    """Not even a release that costs nothing: another has made it, with other rewards."""
    place = postgres.schema()

    def release() -> int:
        with ffx.Agent.open(place, name="a") as agent:
            agent.observe(next(iter(agent._pending.values())), reward=1.0)
            return agent.release().number

    opened(place).close()  # type: ignore[arg-type]
    with elsewhere(release) as other, ffx.Agent.open(place) as agent:
        agent.set_window(1.0)
        before = agent.release()
        cut(postgres)
        assert other() == str(before.number + 1)
        with pytest.raises(StorageUnavailable, match="nothing has changed"):
            agent.decide(X)
        for step in every_step(agent):
            with pytest.raises(OlderCopy, match=r"was locked by process .* Start it again"):
                step()
    with ffx.Agent.open(place) as agent:
        assert agent.privatizer.guarantee.spent == before.number + 1
        agent.set_window(1.0)
        accepted_by_all(agent, place)


def test_a_process_that_had_it_in_vain_does_no_harm(postgres: Postgres) -> None:
    """One that was refused, and one that only read."""
    place = postgres.schema()
    with opened(place) as agent:  # type: ignore[arg-type]
        agent.set_window(1.0)
        with elsewhere(lambda: ffx.Agent.open(place)) as other:
            assert "is locked by process" in other()
        cut(postgres)
        with open_for_reading(place) as database:
            assert check_logs(database)[0].damage is None
        with pytest.raises(StorageUnavailable, match="nothing has changed"):
            agent.decide(X)
        accepted_by_all(agent, place)


def test_making_a_key_takes_no_database_from_a_process_that_lost_its_connection(postgres: Postgres) -> None:
    place = postgres.schema()
    with opened(place) as agent:  # type: ignore[arg-type]
        agent.set_window(1.0)
        cut(postgres)
        with open_keys(place) as keys:
            keys.add("shop", "writer")
        with pytest.raises(StorageUnavailable, match="nothing has changed"):
            agent.decide(X)
        accepted_by_all(agent, place)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(("name", "keys"), [("insert", ["k"]), ("commit", ["k", "l"])])
def test_a_connection_lost_during_a_commit_leaves_it_unknown(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, name: str, keys: list[str], stored: bool
) -> None:
    """Of one row, and of several. The agent then is as the database is, and so is its next release."""
    place = postgres.schema()

    def decide() -> None:
        with agent.transaction():
            for key in keys:
                agent.decide(X, note=DecisionNote(key=key))

    with opened(place) as agent:  # type: ignore[arg-type]
        database: Any = agent.journal.log.database
        real = getattr(database, name)

        def lost(*given: Any, **more: Any) -> None:
            if stored:
                real(*given, **more)
                database._writer.close()
                raise database._unknown()
            cut(postgres)
            real(*given, **more)

        with monkeypatch.context() as patched:
            patched.setattr(database, name, lost)
            with pytest.raises(OutcomeUnknown if stored or name == "commit" else StorageUnavailable):
                decide()
        if stored:
            with pytest.raises(KeyTaken):
                decide()
        else:
            decide()
        assert agent.pending == 4 + len(keys)
        first = agent.release()
        assert (first.number, agent.past_release(1)) == (1, first)
        agent.verify()


@pytest.mark.process
def test_two_processes_that_open_it_first(postgres: Postgres) -> None:
    """One of them gets it, or one after the other."""
    for _ in range(5):
        place = postgres.schema()
        go, begin = os.pipe()

        def work(place: str = place, go: int = go) -> str:
            os.read(go, 1)
            with ffx.Agent.open(place, dimension=D, name="a") as agent:
                return agent.decide(X).id

        with ExitStack() as stack:
            runs = [stack.enter_context(elsewhere(work)) for _ in range(4)]
            with ThreadPoolExecutor(4) as pool:
                results = [pool.submit(run) for run in runs]
                os.write(begin, b"1234")
                said = [result.result() for result in results]
        os.close(go)
        os.close(begin)
        opens = [text for text in said if re.fullmatch(r"[a-z2-7]{16}-\d+", text)]
        assert opens
        assert all(text in opens or "is locked" in text for text in said), said


def test_a_server_that_is_restarted(postgres: Postgres) -> None:
    place = postgres.schema()
    with opened(place) as agent:  # type: ignore[arg-type]
        agent.set_window(1.0)
        before = told(agent)
        postgres.stop()
        try:
            for step in every_step(agent):
                with pytest.raises(StorageUnavailable):
                    step()
        finally:
            postgres.start()
        agent.decide(X)
        assert sorted(agent._pending)[:-1] == before["pending"]
        accepted_by_all(agent, place)


def test_a_commit_whose_answer_is_lost_has_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent finds its steps on disk, and a snapshot taken afterwards does not make it repeat them."""
    path = tmp_path / "agent.db"
    with opened(path, None) as agent:
        log = agent.journal.log
        commit = log.database.commit

        def lost() -> None:
            commit()
            raise StorageUnavailable("the connection was lost")

        monkeypatch.setattr(log.database, "commit", lost)
        with pytest.raises(StorageUnavailable, match="was lost"):
            agent.decide_many([X, X])
        monkeypatch.undo()
        assert (agent.pending, log.end) == (6, agent.journal.end())
        before = told(agent)
    with ffx.Agent.open(path) as agent:
        assert told(agent) == before
        agent.verify()


@pytest.mark.process
def test_who_holds_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_on_server, "_WAITS", (0.01,))
    with elsewhere(lambda: ffx.Agent.open(place)) as opens, opened(place):  # type: ignore[arg-type]
        with pytest.raises(StorageUnavailable, match="is open already"):
            ffx.Agent.open(place)
        assert re.search(f"is locked by process {os.getpid()} on .* since 20", opens())
    ffx.Agent.open(place).close()


def test_a_lock_that_was_removed_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path / "agent.db", None) as agent:
        (tmp_path / "agent.db.lock").unlink()
        time.sleep(2 * RECENTLY)
        with pytest.raises(StorageUnavailable, match="was removed"):
            agent.decide(X)


def test_a_transaction_that_was_left_open_takes_no_later_step(place: str) -> None:
    """As Ctrl-C leaves it: in it, a single row would be acknowledged and not be on disk."""
    with opened(place, None) as agent:  # type: ignore[arg-type]
        agent.journal.log.database.begin()
        made = agent.decide(X)
        assert agent.journal.decision(made.id) is not None  # by the connection that sees what is committed


@pytest.mark.process
def test_a_forked_child_is_refused(place: str) -> None:
    with opened(place) as agent:  # type: ignore[arg-type]
        child = os.fork()
        if child == 0:
            try:
                agent.decide(X)
            except StorageError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        agent.decide(X)
        assert agent.journal.counts()["pending"] == 5


@pytest.mark.process
def test_a_forked_child_that_outlives_its_parent_holds_no_lock(place: str) -> None:
    first = opened(place)  # type: ignore[arg-type]
    first.journal.counts()  # by the connection for reading
    stays, ends = os.pipe()
    forked, told = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            os.read(stays, 1)
            reused = [os.dup(stays) for _ in range(3)]  # descriptors of the first agent's connections
            agent = opened(place)  # type: ignore[arg-type]
            agent.decide(X)
            agent.journal.counts()
            if os.fork() == 0:
                os.close(ends)
                for descriptor in reused:
                    os.fstat(descriptor)
                os.write(told, b"1")
                os.read(stays, 1)
            else:
                time.sleep(60)
        finally:
            os._exit(0)
    first.close()
    os.write(ends, b"1")
    os.close(told)
    assert os.read(forked, 1) == b"1"
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    with opened(place) as agent:  # type: ignore[arg-type]
        assert agent.journal.counts()["pending"] == 13
    for descriptor in (stays, ends, forked):  # which ends the child
        os.close(descriptor)


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_noticed_or_does_no_harm(tmp_path: Path, seed: int) -> None:
    """Bytes overwritten anywhere: what can still be opened and replayed is what it was."""
    path = tmp_path / "agent.db"
    with opened(path, None) as agent:
        for _ in range(40):
            agent.observe(agent.decide(X), reward=0.5)
        before = told(agent)
        agent.journal.log.closing.clear()
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    at = int(rng.integers(0, len(content) - 64))
    content[at : at + 64] = rng.bytes(64)
    path.write_bytes(content)
    try:
        again = ffx.Agent.open(path)
    except (StateError, StorageUnavailable):
        return
    with again:
        assert told(again) == before


def test_a_step_that_was_changed_is_noticed(tmp_path: Path) -> None:
    for table, change in [
        ("decisions", "policy = zeroblob(24)"),
        ("decisions", "action = 1 - action"),
        ("outcomes", "reward = 7.0"),
        ("events", "kind = 'run'"),
    ]:
        path = tmp_path / f"{change}.db"
        with opened(path, None) as agent:
            agent.release()
            agent.journal.log.closing.clear()
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE {table} SET {change}")
        with pytest.raises(StateError, match=r"is damaged: step .* is not as it was written"):
            ffx.Agent.open(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE decisions SET action = 1 - action", r"step \d+ is not as it was written"),
        ("DELETE FROM decisions", "decisions that wait for a reward are missing"),
        ("UPDATE agents SET settings = '{}'", "the settings of agent 'a' are not as they were written"),
        ("DELETE FROM snapshots", "it has no sound snapshot"),
        ("DROP TABLE outcomes", "no such table: outcomes"),
        ("DELETE FROM fedfairx", "it does not say which version it is"),
    ],
)
def test_damage_names_the_remedy(tmp_path: Path, change: str, said: str) -> None:
    path = tmp_path / "agent.db"
    opened(path, None).close()
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    with pytest.raises(StateError, match=f"^{path} is damaged: {said}; {RESTORE}"):
        ffx.Agent.open(path)


def test_a_file_that_was_cut_short_names_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    opened(path, None).close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StateError, match=f"^{path} is damaged: database disk image is malformed; {RESTORE}"):
        ffx.Agent.open(path)


def test_a_table_that_is_missing_on_a_server_names_the_remedy(postgres: Postgres) -> None:
    import psycopg

    place = postgres.schema()
    opened(place, None).close()  # type: ignore[arg-type]
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("DROP TABLE outcomes")
    with pytest.raises(StateError, match=f'is damaged: relation "outcomes" does not exist; {RESTORE}'):
        ffx.Agent.open(place)


def test_a_damaged_snapshot_is_done_without(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with opened(path) as agent:
        before = told(agent)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE snapshots SET body = 'x' WHERE seq > 0")
    with ffx.Agent.open(path) as agent:
        assert told(agent) == before
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE snapshots SET body = 'x'")
    with pytest.raises(StateError, match="has no sound snapshot"):
        ffx.Agent.open(path)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but longer than a header of one would be" * 9)
    with pytest.raises(StateError, match=f"is damaged: file is not a database; {RESTORE}"):
        ffx.Agent.open(tmp_path / "text", dimension=D)
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE decisions (x)")
    with pytest.raises(StateError, match="is a SQLite file, but no durable agent's; name another one"):
        ffx.Agent.open(tmp_path / "other", dimension=D)
    with pytest.raises(StorageUnavailable, match="No such file"):
        ffx.Agent.open(tmp_path / "no" / "folder", dimension=D)
    opened(tmp_path / "a").close()
    os.link(tmp_path / "a", tmp_path / "b")
    with pytest.raises(StateError, match="two names"):
        ffx.Agent.open(tmp_path / "a")


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with opened(path):
        for each in tmp_path.iterdir():
            assert each.stat().st_mode & 0o077 == 0, each
    path.chmod(0o644)
    ffx.Agent.open(path).close()
    assert path.stat().st_mode & 0o077 == 0


# --- a file that is empty ---


@pytest.mark.parametrize("beside", ["all", "lock", "nothing"])
def test_a_file_that_lost_its_content_is_no_new_agent(tmp_path: Path, beside: str) -> None:
    path = tmp_path / "agent.db"
    opened(path).close()
    path.write_bytes(b"")
    lock = Path(f"{path}.lock")
    if beside == "lock":  # as of a process that was killed, which left no mark
        lock.write_text(json.dumps(json.loads(lock.read_text()) | {"mark": {}}))
    elif beside == "nothing":
        lock.unlink()
    for _ in range(2):
        with pytest.raises(
            StateError, match=r"agent\.db has 0 bytes: what was in it is lost\. Restore a backup"
        ):
            ffx.Agent.open(path, dimension=D)
    assert path.read_bytes() == b""
    path.unlink()
    lock.unlink(missing_ok=True)
    ffx.Agent.open(path, dimension=D).close()


def test_a_file_that_was_about_to_be_made_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is needed after a process that died at its first start."""
    path, real = tmp_path / "agent.db", sqlite._connection

    def die(file: Path) -> sqlite3.Connection:
        assert file.read_bytes() == b""
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite, "_connection", die)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            opened(path)
    monkeypatch.setattr(sqlite, "_connection", real)
    opened(path).close()
    path.write_bytes(b"")
    with pytest.raises(StateError, match="has 0 bytes"):
        opened(path)
