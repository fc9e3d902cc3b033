"""The part of a database that holds one agent, kept in step with it: its settings, log, ledger and snapshots.

Opening takes the newest sound snapshot and applies the steps after it, as they were applied the first time. A
decision is not computed again: the log has what was drawn, so that the decision that was returned is the one
that counts, on any machine. A private agent's ledger needs no replay: its rows were written in the same
transactions.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from fedfairx.agent.actions import as_arms
from fedfairx.agent.core import Core
from fedfairx.agent.log import StepLog
from fedfairx.agent.options import Options, bounds_of
from fedfairx.agent.settings import CUSTOM, SCHEMA, StoredSettings, plain_value, read_value, stored_schema
from fedfairx.agent.state import AgentState
from fedfairx.core.merit import Merit
from fedfairx.core.slates import as_weights
from fedfairx.errors import FedFairXError, InvalidInput, StateError, StorageError, StorageUnavailable, require
from fedfairx.features import Schema
from fedfairx.privacy import (
    Bounds,
    Budget,
    ContinuedPrivatizer,
    KeyedNoise,
    NonPrivateSums,
    Privatizer,
    new_key,
)
from fedfairx.storage import erasure
from fedfairx.storage.agents import (
    add_agent,
    adopted_schema,
    number_of,
    read_agent,
    read_agents,
    store_feature_schema,
    update_settings,
)
from fedfairx.storage.database import Ask, damaged
from fedfairx.storage.journal import Entry, Journal
from fedfairx.storage.open_log import leave_mark
from fedfairx.storage.privacy_ledger import StoredLedger, StoredPersons
from fedfairx.storage.queries import number_at
from fedfairx.storage.schema import create_tables
from fedfairx.storage.transaction_log import Log

SNAPSHOT_EVERY = 5000  # steps, at least, from one snapshot to the next
SHORT = 100  # steps that a short call takes at most: a decision, or the rewards of its slots
PAIRS = 50  # pairs of coordinates that a snapshot writes in the time of a step
FEW = 20_000  # the most steps that are read into memory before any is replayed
CHUNK = 200  # decisions whose contexts are dropped in one transaction


def find_store(log: Log, name: str | None) -> AgentStore | None:
    """The agent of this name in a database, or the only one; None if there is no such agent."""
    number = number_of(log, name) if isinstance(name, str) else None
    rows = read_agents(log) if name is None else [] if number is None else [read_agent(log, number)]
    if len(rows) > 1:
        names = ", ".join(repr(row.name) for row in rows[:10])
        raise InvalidInput(f"name must be given: {log.database.place} holds {len(rows)} agents, {names}")
    for row in rows:
        if row.number in log.agents:
            raise StorageUnavailable(f"agent {row.name!r} in {log.database.place} is open already")
        return AgentStore(log, row.number, row.settings, row.secret)
    return None


@dataclass(frozen=True)
class Specification:
    """What a caller of `Agent.open` asks for: a new agent, or one that must be stored like that."""

    name: str | None
    dimension: int | None
    schema: Schema | None
    actions: Sequence[str] | None
    options: Options | None
    budget: Budget | None
    keywords: Mapping[str, Any]

    def __post_init__(self) -> None:
        alone = self.budget is None or self.bounds is None
        text = "must be left out if a budget is given, which has its own"
        require(alone, "bounds", text, self.bounds)

    @property
    def changed(self) -> dict[str, Any]:
        """The options that are given as keywords."""
        return {name: value for name, value in self.keywords.items() if value is not None}

    @property
    def bounds(self) -> Bounds | None:
        return self.changed.get("bounds") if self.options is None else self.options.bounds

    @property
    def merit(self) -> Merit | None:
        return self.changed.get("merit") if self.options is None else self.options.merit

    @property
    def all_options(self) -> Options:
        """The options of a new agent."""
        return Options.given(self.options, **self.changed)

    def settings(self, place: str) -> StoredSettings:
        """The settings of a new agent."""
        if self.dimension is None and self.actions is None and self.schema is None:
            which = f"no agent{'' if self.name is None else f' {self.name!r}'} in {place}"
            raise InvalidInput(f"dimension, schema or actions must be given: there is {which}")
        options, (dimension, arms) = self.all_options, as_arms(self.dimension, self.actions, self.schema)
        budgeted = self.budget is not None or not options.private
        require(budgeted, "budget", f"must be given for {options.composed.name}", None)
        require(self.name is None or isinstance(self.name, str), "name", "must be a string", self.name)
        return StoredSettings.of(
            self.name or f"agent-{secrets.token_hex(4)}",
            dimension,
            None if arms is None else list(arms.names),
            options.for_agent(featureless=not dimension, schema=self.schema),
            None if self.schema is None else self.schema.to_dict(),
        )

    @property
    def has_intercept(self) -> bool:
        """Whether a new agent has an intercept beside the numbers of its arrays."""
        return self.all_options.has_intercept and self.schema is None and self.dimension is not None

    def sharing(self) -> Budget | Bounds | None:
        """How a new agent's messages are bounded. A schema bounds contexts, if the budget does not."""
        budget, options = self.budget, self.all_options
        if budget is None:
            bounds = self.bounds
            return replace(bounds, constant=1.0) if bounds is not None and self.has_intercept else bounds
        if self.schema is not None and not (budget.bounds or budget.centring):
            budget = replace(budget, bounds=bounds_of(self.schema, options.reward_range))
        return _completed(budget, options, intercept=self.has_intercept)


def _completed(budget: Budget, options: Options, *, intercept: bool) -> Budget:
    """A budget with the slots and the intercept of an agent."""
    budget = budget.with_slots(as_weights(options.slots))
    return budget.with_intercept() if intercept else budget


def make_store(log: Log, spec: Specification) -> AgentStore:
    """Inside a transaction: write the row of a new agent. The caller takes its first snapshot."""
    settings, sharing = spec.settings(log.database.place), spec.sharing()
    described = _described(settings, sharing)
    secret = new_key() if isinstance(sharing, Budget) else None
    number = add_agent(log, settings.name, described, secret)
    return AgentStore(log, number, described, secret)


def saved(name: str, core: Core, log: StepLog) -> bytes:
    """The bytes of a database that holds an agent as it is now, without the log of how it came there."""
    from fedfairx.storage.sqlite import SqliteDatabase  # few agents are saved

    model = core.model
    assert model.sums is not None
    actions, schema, bounds = model.actions, model.schema, model.sums.bounds
    settings = StoredSettings.of(
        name,
        model.given,
        None if actions is None else list(actions.names),
        model.options,
        None if schema is None else schema.to_dict(),
    )
    state = {**plain_value(core.state()), "runs": 0}
    try:
        json.dumps(state, allow_nan=False)
    except ValueError:
        raise StateError("this agent's state can't be saved: it holds NaN or infinity") from None
    with closing(SqliteDatabase(":memory:", access="memory")) as database:
        create_tables(database)
        copy = Log(database)
        with copy.transaction:
            journal = Journal(copy, add_agent(copy, name, _described(settings, bounds), None))
            journal.begin_with(list(core.pending.values()), log.prefixes, log.numbers.next)
        journal.write_snapshot(state)
        return database.content()


def _described(settings: StoredSettings, sharing: Budget | Bounds | None) -> dict[str, Any]:
    """What is stored of a new agent."""
    return {
        "schema": SCHEMA,
        **plain_value(settings),
        "budgets": [sharing.to_dict()] if isinstance(sharing, Budget) else [],
        "bounds": sharing.to_dict() if isinstance(sharing, Bounds) else None,
    }


class AgentStore:
    """One agent in a log: its settings, its privatizer's ledger, its steps and snapshots.

    It is the agent's log (`StepLog`).
    """

    def __init__(self, log: Log, number: int, settings: dict[str, Any], secret: bytes | None) -> None:
        self.log = log
        self.journal = journal = Journal(log, number)
        self.lock, self.transaction, self.numbers = log.lock, log.transaction, log.numbers
        self.prefixes = journal.prefixes
        self.append, self.append_decisions = journal.append, journal.append_decisions
        self.append_outcomes = journal.append_outcomes
        self.require_new, self.status_of = journal.require_new, journal.status_of
        self.prefix = ""  # since `follow`
        schema = settings.get("schema")
        if schema != SCHEMA:
            raise StateError(
                f"{self.journal.place} holds an agent of schema {schema}, and this fedfairx reads schema "
                f"{SCHEMA}; open it with the version of fedfairx that wrote it"
            )
        self.settings = read_value(settings, StoredSettings, "settings")
        if self.settings.features is None:
            self.settings = replace(self.settings, features=adopted_schema(self.journal))
        self._settings = settings
        self._secret = secret
        self.core: Core  # set by the agent
        self._replayed: int | None = None  # the time of the step that is replayed
        self.snapshot_due = False  # after the next commit
        self.budgets = [Budget.from_dict(each) for each in settings["budgets"]]
        bounds = settings["bounds"]
        self.bounds = None if bounds is None else Bounds(**bounds)
        self._runs: dict[int, Privatizer] = {}

    @property
    def time(self) -> int:
        """The time of the transaction, in microseconds since 1970."""
        return self.log.time

    def first_privatizer(self) -> Privatizer:
        """The privatizer of the first run; exact sums of records clipped to its bounds, if any."""
        return self.run(1) if self.budgets else NonPrivateSums(self.settings.columns, self.bounds)

    def follow(self) -> None:
        """Keep the agent in step with the log from now on, and give it a prefix of its ids to come."""
        log, number = self.log, self.journal.agent
        if number not in log.prefixes:  # else this process has had the log since then, and nobody else
            log.prefixes[number] = self.journal.begin_incarnation()
            leave_mark(log)
        for hooks, hook in self._hooks():
            hooks.append(hook)
        log.committed[number] = self._after_commit
        self.journal.long_after = self._snapshot_soon
        log.agents.add(number)
        self.prefix = log.prefixes[number]

    def close(self) -> None:
        """Detach the agent from the log, which is closed with its last agent."""
        log, number = self.log, self.journal.agent
        with log.lock:
            if number not in log.agents:
                return
            log.agents.remove(number)
            self.journal.closed = True
            try:
                if log.users > 1:
                    try:
                        self._before_close()
                    finally:
                        for hooks, hook in self._hooks():
                            hooks.remove(hook)
                        del log.committed[number]
            finally:
                log.close()

    def _hooks(self) -> list[tuple[list[Any], Callable[[], object]]]:
        log = self.log
        return [(log.restorers, self.restore), (log.closing, self._before_close)]

    def options(self, merit: Merit | None) -> Options:
        """The stored options; a function of the user's own must be given as `merit`."""
        return self.settings.options(merit if self.settings.merit["kind"] == CUSTOM else None)

    def refuse_others(self, spec: Specification) -> None:
        """Refuse settings that differ from the stored ones."""
        settings, stored = self.settings, self.options(spec.merit)
        self._refuse_sharing(spec, stored)
        size = spec.dimension if settings.features is None else None
        if size is not None and settings.featureless:
            raise InvalidInput(f"dimension must be left out: its actions have names alone, got {size}")
        require(size in (None, settings.dimension), "dimension", _stored(settings.dimension), size)
        options, keywords = spec.options, spec.changed
        if options is None and not keywords:
            return
        names = set(keywords) if options is None else {item.name for item in fields(StoredSettings)}
        options = options or Options(**{"rule": stored.rule, **keywords})
        schema = None if settings.features is None else stored_schema(settings.features)
        options = options.for_agent(featureless=settings.featureless, schema=schema)
        arms = settings.name, settings.dimension, settings.actions
        other = StoredSettings.of(*arms, options, settings.features)
        for item in fields(StoredSettings):
            one, two = getattr(settings, item.name), getattr(other, item.name)
            require(item.name not in names or one == two, item.name, _stored(one), two)

    def _refuse_sharing(self, spec: Specification, options: Options) -> None:
        """Refuse another budget, or other bounds."""
        budget, last = spec.budget, self.budgets[-1] if self.budgets else None
        if budget is not None:
            if self.settings.features is not None and budget.bounds is None and last is not None:
                budget = replace(budget, bounds=last.bounds)
            budget = _completed(budget, options, intercept=self.settings.intercept)
            if last is not None and last.share is not None:
                budget = budget.among(last.share.members)  # changes with the roster
            if budget != last:
                raise InvalidInput(f"budget must be the stored one, {last}, got budget={budget}")
        elif spec.bounds is not None:
            bounds = replace(spec.bounds, constant=1.0) if self.settings.intercept else spec.bounds
            if bounds != self.bounds:
                text = f"bounds must be the stored ones, {self.bounds}, got bounds={spec.bounds}"
                raise InvalidInput(text)

    def adopt(self, schema: Schema) -> None:
        """Store what the columns mean of an agent that was made without a schema, before it is restored.

        An agent that a service has told its features, or that there are none, keeps them.
        """
        settings = self.settings
        same = schema.width == settings.dimension and not settings.intercept
        compatible = not settings.featureless and same
        if not compatible or not store_feature_schema(self.journal, schema.to_dict()):
            raise InvalidInput(
                "schema must be left out: this agent has learnt from contexts without one; create another "
                f"agent, got {schema}"
            )
        self.settings = replace(self.settings, features=schema.to_dict())

    # --- from the log --------------------------------------------------------------------------------

    def restore(self, *, whole: bool = False) -> None:
        """Bring the agent to the end of the log, from the newest snapshot or, if `whole`, from the first."""
        try:
            self._read_budgets()
            self._restore(whole)
        except FedFairXError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            kind = type(error).__name__  # the text might contain data
            raise damaged(self.journal.place, f"it can't be read, {kind}") from None

    def _restore(self, whole: bool) -> None:
        core, journal = self.core, self.journal
        self._runs.clear()
        at, body = self._snapshot_to_start_from(whole)
        state = read_value(body, AgentState, "snapshot")
        if state.features is None:
            state = replace(state, features=self.settings.features)  # from before `adopt`
        privatizer = self._privatizer_of(state, body["runs"], core)
        pending = list(journal.waiting(body["pending"], before=at))
        entries: Iterable[Entry] = journal.entries(at)
        if self.log.end - at <= FEW:
            entries = list(entries)  # read all before anything changes
        amended = journal.amendments(self.log.database.execute)
        core.restore(state, privatizer, pending)
        journal.unsaved = 0
        try:
            for entry in entries:
                self._replayed = entry.time
                self._replay(entry, undone=amended.is_undone(entry.number))
                journal.unsaved += 1
        finally:
            self._replayed = None

    def restore_into(self, core: Core, *, before: int, ask: Ask) -> int | None:
        """Bring another core to the newest snapshot up to a number, without a budget; return its number."""
        for seq in reversed(self.journal.snapshot_numbers(ask)):
            body = self.journal.snapshot(seq, ask=ask) if seq <= before else None
            if body is not None:
                state = read_value(body, AgentState, "snapshot")
                if state.features is None:
                    state = replace(state, features=self.settings.features)
                pending = list(self.journal.waiting(body["pending"], before=seq, ask=ask))
                core.restore(state, self._privatizer_of(state, body["runs"], core), pending)
                return seq
        return None

    def rebuild(self) -> None:
        """Inside a transaction, after a step that changes how earlier ones are read: restore the agent."""
        self.log.settle()
        self.restore()

    def _replay(self, entry: Entry, *, undone: bool) -> None:
        try:
            if undone:
                self.core.apply_undone(entry.step)
            else:
                self.core.apply(entry.step)
        except KeyError:
            raise damaged(self.journal.place, f"step {entry.number} belongs to no decision") from None

    def _privatizer_of(self, state: AgentState, runs: int, core: Core) -> Privatizer:
        """The privatizer as of a snapshot."""
        if self.budgets:
            return self._chain(int(runs), 1 if state.base is None else state.base.run)
        if state.privatizer is None:
            raise StateError("snapshot.privatizer must be an object, got null")
        model = core.model
        dimension = model.dimension
        if state.actions is not None and model.featureless and model.optimism:
            dimension = len(state.actions)
        elif state.features is not None:
            dimension = stored_schema(state.features).width
        return NonPrivateSums.from_state(state.privatizer, dimension=dimension, bounds=self.bounds)

    def _snapshot_to_start_from(self, whole: bool) -> tuple[int, dict[str, Any]]:
        numbers = self.journal.snapshot_numbers()
        for seq in numbers if whole else reversed(numbers):
            body = self.journal.snapshot(seq)
            if body is not None:
                return seq, body
        raise damaged(self.journal.place, "it has no sound snapshot")

    def clock(self) -> int:
        """The time of the step that is made or replayed, in microseconds since 1970."""
        return self.log.time if self._replayed is None else self._replayed

    def _read_budgets(self) -> None:
        settings = read_agent(self.log, self.journal.agent).settings
        self.budgets = [Budget.from_dict(each) for each in settings["budgets"]]

    # --- privacy -------------------------------------------------------------------------------------

    def _chain(self, runs: int, first: int = 1) -> Privatizer:
        """The privatizer of the last of `runs` runs, chained to those before it, back to the `first`."""
        privatizer = self.run(first)
        for number in range(first + 1, runs + 1):
            sent = privatizer.spent > 0
            privatizer = (
                ContinuedPrivatizer(self.run(number), before=privatizer) if sent else self.run(number)
            )
        return privatizer

    def run(self, number: int) -> Privatizer:
        """The privatizer of one run, with its ledger and its noise key in the database."""
        if number not in self._runs:
            self._runs[number] = self._make_run(number)
        return self._runs[number]

    def _make_run(self, run: int) -> Privatizer:
        if self._secret is None:
            raise StateError(f"{self.journal.place} has no noise key, so this agent can't continue privately")
        number, name = self.journal.agent, self.settings.name
        return self.budgets[run - 1].privatizer(
            self.settings.columns,
            noise=KeyedNoise(self._secret, agent=name, run=f"run-{run}"),
            ledger=StoredLedger(self.log, number, run),
            persons=StoredPersons(self.log, number, run),
        )

    def new_run(self, privatizer: Privatizer | Budget) -> tuple[Privatizer, int]:
        """Inside a transaction: store one more budget; return its privatizer and its number."""
        if not isinstance(privatizer, Budget):
            raise InvalidInput("privatizer must be a Budget: this agent's ledger is in its database")
        self.budgets.append(privatizer)
        settings = self._settings | {"budgets": [each.to_dict() for each in self.budgets]}
        update_settings(self.log, self.journal.agent, settings)
        return self.run(len(self.budgets)), len(self.budgets)

    # --- into the log --------------------------------------------------------------------------------

    def verify(self) -> None:
        """Replay the whole log from the first snapshot; `StateError` unless it ends in the same state."""
        with self.log.transaction:
            self.log.settle()
            before = self.snapshot()
            try:
                self.restore(whole=True)
                same = self.snapshot() == before
            finally:
                self.restore()
            if not same:
                raise damaged(self.journal.place, "replayed, its log ends in another state")

    def take_snapshot(self) -> None:
        """Store the state after all steps so far."""
        with self.log.transaction:  # which first restores what a failed step has left
            self.journal.write_snapshot(self.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """What a snapshot of the agent holds now."""
        return {**plain_value(self.core.state()), "runs": len(self.budgets)}

    def _after_commit(self) -> None:
        if self.log.mark_due:
            self.log.mark_due = False
            leave_mark(self.log)
        if self.snapshot_due:  # those after an early step were deleted
            self.snapshot_due = False
            if self.journal.unsaved:
                self._try_snapshot()
            with suppress(StorageError):
                self.log.database.overwrite_deleted()
        if self._snapshot_soon(0):
            self._try_snapshot()

    def _snapshot_soon(self, steps: int = SHORT) -> bool:
        """Whether a snapshot is due after so many more steps.

        It lists all pending decisions, and numbers for each pair of coordinates: the more there are, the
        rarer it is taken.
        """
        unsaved = self.journal.unsaved + steps
        if unsaved < SNAPSHOT_EVERY:
            return False
        return unsaved >= max(len(self.core.pending), self.core.model.dimension**2 // PAIRS)

    # --- dropping contexts ---------------------------------------------------------------------------

    def drop_contexts(self, before: float, rule: str, limit: int | None) -> int:
        """Drop the content of old rows in small transactions; return of how many."""
        dropped = 0
        while limit is None or dropped < limit:
            some = self._drop_some(CHUNK if limit is None else min(CHUNK, limit - dropped))
            dropped += some
            if not some and not self._plan_drop(before, rule):
                break
        return dropped

    def _drop_some(self, limit: int) -> int:
        """Drop the content of rows that a drop in the log covers, behind two snapshots."""
        with self.log.lock:
            old, snapshots = self.journal.amendments().dropped, self.journal.snapshot_numbers()
            if not old.dropped:
                return 0
            if len(snapshots) < 2:
                self.take_snapshot()
            with self.log.transaction:
                rows = erasure.Old(old.whole_from, old.before, snapshots[0], old.until)
                return rows.drop(self.journal, limit)

    def _plan_drop(self, before: float, rule: str) -> bool:
        """Write a drop of the rows from before a time (seconds since 1970), if there are any; whether."""
        journal = self.journal
        amendments = journal.amendments()
        last = amendments.dropped
        bound, until = max(number_at(journal, before), last.before), max(int(before * 1e6), last.until)
        start = erasure.first_with_content(journal, after=last.whole_from, before=bound)
        later = self._sound_snapshots(bound)
        old = erasure.Old(start, bound, min(later, default=self.log.end), until)
        count = old.count(journal)
        if not count:
            return False
        with self.log.transaction:
            if journal.amendments() != amendments:  # another thread was faster
                return True
            if not self._sound_snapshots(bound):
                self.take_snapshot()
            first = self._sound_snapshots(bound)[0]
            erasure.append_drop(journal, old, count=count, rule=rule, snapshot=first)
        return True

    def _sound_snapshots(self, bound: int) -> list[int]:
        """The numbers of sound snapshots that were taken before this number or a later one."""
        with self.log.lock:
            numbers = self.journal.snapshot_numbers()
            return [seq for seq in numbers if seq >= bound and self.journal.snapshot(seq) is not None]

    def _before_close(self) -> None:
        if self.journal.unsaved:
            self._try_snapshot()

    def _try_snapshot(self) -> None:
        """Take a snapshot, if possible: it only saves time, so a failure does no harm."""
        try:
            self.take_snapshot()
        except StorageError:
            self.journal.unsaved = 0  # retry only after another SNAPSHOT_EVERY steps


def _stored(value: object) -> str:
    return f"must be the stored one, {value!r}"
