"""The part of a database that holds one agent, kept in step with it: its settings, log, ledger and snapshots.

Opening takes the newest sound snapshot and replays the steps after it. A decision is not computed again: the
log has what was drawn, so that the decision that was returned is the one that counts, on any machine.
Rewards, releases and messages from peers are learnt again, which gives the same bits as the first time. A
private agent's ledger needs no replay: its rows were written in the same transactions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fedfairx.agent.decision import Decision
from fedfairx.agent.options import Options
from fedfairx.agent.settings import SCHEMA, AgentSettings, plain_value, read_value, stored_schema
from fedfairx.agent.slots import Slate
from fedfairx.agent.state import AgentState, Parts
from fedfairx.errors import FedFairXError, InvalidInput, StateError, StorageError, StorageUnavailable, require
from fedfairx.features import Schema
from fedfairx.privacy import (
    Bounds,
    Budget,
    ContinuedPrivatizer,
    KeyedNoise,
    NonPrivateSums,
    Privatizer,
    Release,
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
from fedfairx.storage.amendments import KINDS
from fedfairx.storage.database import damaged
from fedfairx.storage.journal import Event, Journal, Made, Outcome
from fedfairx.storage.open_log import leave_mark
from fedfairx.storage.privacy_ledger import StoredLedger, StoredPersons
from fedfairx.storage.queries import number_at
from fedfairx.storage.records import unpacked_log
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
        known = ", ".join(repr(row.name) for row in rows[:10])
        raise InvalidInput(f"name must be given: {log.database.place} holds {len(rows)} agents, {known}")
    for row in rows:
        if row.number in log.agents:
            raise StorageUnavailable(f"agent {row.name!r} in {log.database.place} is open already")
        return AgentStore(log, row.number, row.settings, row.secret)
    return None


def make_store(log: Log, settings: AgentSettings, sharing: Budget | Bounds | None) -> AgentStore:
    """Write the row of a new agent, inside a step. The caller takes its first snapshot."""
    private = isinstance(sharing, Budget)
    described = {
        "schema": SCHEMA,
        **plain_value(settings),
        "budgets": [sharing.to_dict()] if isinstance(sharing, Budget) else [],
        "bounds": sharing.to_dict() if isinstance(sharing, Bounds) else None,
    }
    secret = new_key() if private else None
    number = add_agent(log, settings.name, described, secret)
    return AgentStore(log, number, described, secret)


class AgentStore:
    """One agent in a log: its settings, its privatizer's ledger, its steps and snapshots."""

    def __init__(self, log: Log, number: int, settings: dict[str, Any], secret: bytes | None) -> None:
        self.log = log
        self.journal = Journal(log, number)
        schema = settings.get("schema")
        if schema != SCHEMA:
            raise StateError(
                f"{self.journal.place} holds an agent of schema {schema}, and this fedfairx reads schema "
                f"{SCHEMA}; open it with the version of fedfairx that wrote it"
            )
        self.settings = read_value(settings, AgentSettings, "settings")
        if self.settings.features is None:
            self.settings = replace(self.settings, features=adopted_schema(self.journal))
        self._settings = settings
        self._secret = secret
        self.parts: Parts  # set by the agent
        self._replayed: int | None = None  # the time of the step that is replayed
        self.snapshot_due = False  # after the next commit
        self.budgets = [Budget.from_dict(each) for each in settings["budgets"]]
        bounds = settings["bounds"]
        self.bounds = None if bounds is None else Bounds(**bounds)

    def first_privatizer(self) -> Privatizer:
        """The privatizer of the first run; exact sums of records clipped to its bounds, if any."""
        return self._privatizer(1) if self.budgets else NonPrivateSums(self.settings.dimension, self.bounds)

    def follow(self) -> str:
        """Keep the agent in step with the log from now on; return the prefix of its ids to come."""
        log, number = self.log, self.journal.agent
        if number not in log.prefixes:  # else this process has had the log since then, and nobody else
            log.prefixes[number] = self.journal.begin_incarnation()
            leave_mark(log)
        for hooks, hook in self._hooks():
            hooks.append(hook)
        log.committed[number] = self._after_commit
        self.journal.long_after = self._snapshot_soon
        log.agents.add(number)
        return log.prefixes[number]

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
                    for hooks, hook in self._hooks():
                        hooks.remove(hook)
                    del log.committed[number]
                    self._before_close()
            finally:
                log.close()

    def _hooks(self) -> list[tuple[list[Any], Callable[[], object]]]:
        log = self.log
        return [(log.restorers, self.restore), (log.closing, self._before_close)]

    def refuse_others(
        self,
        kept: Options,
        sharing: Budget | Bounds | None,
        *,
        dimension: int | None,
        options: Options | None,
        keywords: dict[str, Any],
    ) -> None:
        """Refuse settings that differ from the stored ones."""
        settings, last = self.settings, self.budgets[-1] if self.budgets else None
        if isinstance(sharing, Budget) and last is not None and last.share is not None:
            sharing = sharing.among(last.share.members)  # changes with the roster
        if isinstance(sharing, Budget) and sharing != last:
            raise InvalidInput(f"budget must be the stored one, {last}, got budget={sharing}")
        if isinstance(sharing, Bounds) and sharing != self.bounds:
            raise InvalidInput(f"bounds must be the stored ones, {self.bounds}, got bounds={sharing}")
        if dimension is not None and settings.actions is not None:
            raise InvalidInput(f"dimension must be left out: this agent has actions, got {dimension=}")
        require(dimension in (None, settings.dimension), "dimension", _stored(settings.dimension), dimension)
        if options is None and not keywords:
            return
        asked = set(keywords) if options is None else {item.name for item in fields(AgentSettings)}
        meant = options or Options(**{"rule": kept.rule, **keywords})
        meant = meant.for_agent(arms_of_their_own=settings.actions is not None)
        arms = settings.name, settings.dimension, settings.actions
        other = AgentSettings.of(*arms, meant, settings.features)
        for item in fields(AgentSettings):
            one, two = getattr(settings, item.name), getattr(other, item.name)
            require(item.name not in asked or one == two, item.name, _stored(one), two)

    def adopt(self, schema: Schema) -> None:
        """Store what the columns mean of an agent that was made without a schema, before it is restored.

        An agent that a service has told its features, or that there are none, keeps them.
        """
        fits = self.settings.actions is None and schema.width == self.settings.dimension
        if not fits or not store_feature_schema(self.journal, schema.to_dict()):
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
            said = type(error).__name__  # the text might contain data
            raise damaged(self.journal.place, f"it can't be read, {said}") from None

    def _restore(self, whole: bool) -> None:
        parts = self.parts
        at, body = self._snapshot_to_start_from(whole)
        state = read_value(body, AgentState, "snapshot")
        if state.features is None:
            state = replace(state, features=self.settings.features)  # from before `adopt`
        if self.budgets:
            first = 1 if state.base is None else state.base.run
            privatizer = self._privatizer(int(body["runs"]), first)
        else:
            if state.privatizer is None:
                raise StateError("snapshot.privatizer must be an object, got null")
            dimension = parts.model.dimension
            if state.actions is not None:
                dimension = len(state.actions)
            elif state.features is not None:
                dimension = stored_schema(state.features).width
            privatizer = NonPrivateSums.from_state(state.privatizer, dimension=dimension, bounds=self.bounds)
        pending = {made.seq: self._decision(made) for made in self.journal.made(body["pending"])}
        for number, made in pending.items():
            if made.slate is not None:
                for outcome in self.journal.slot_outcomes(number, before=at):
                    made.slate.end(outcome.slot - 1, outcome.reward, outcome.status)
        steps: Iterable[Made | Outcome | Event] = self.journal.steps(at)
        if self.log.end - at <= FEW:
            steps = list(steps)  # read all before anything changes
        said = self.journal.amendments(self.log.database.execute)
        parts.exchange.set_privatizer(privatizer)
        parts.restore(state)
        parts.pending.clear()
        parts.pending.update(pending)
        if parts.model.schema is not None:
            for made in pending.values():
                made.grow(parts.model.dimension)  # those from before a later version are shorter
        try:
            self.journal.unsaved = 0
            for step in steps:
                self._replayed = step.time
                self._replay(step, undone=said.is_undone(step.seq))
                self.journal.unsaved += 1
        finally:
            self._replayed = None

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

    def _replay(self, step: Made | Outcome | Event, *, undone: bool) -> None:
        """Take a step again; if a rollback has undone it, learn nothing from it."""
        parts = self.parts
        if isinstance(step, Made):
            parts.pending[step.seq] = self._decision(step)
            parts.draws.advance()
        elif isinstance(step, Outcome):
            made = parts.pending.get(step.decision)
            if made is None:
                raise damaged(self.journal.place, f"step {step.seq} belongs to no decision")
            if step.slot == 0:
                del parts.pending[step.decision]
            elif made.slate is not None:
                made.slate.end(step.slot - 1, step.reward, step.status)
            if made.slate is not None and step.slot == 0:  # the sum of its slots
                return
            if step.reward is not None and not undone:
                parts.learn(made, step.reward, max(step.slot - 1, 0))
            elif step.status == "deleted" and parts.model.sums is None:
                parts.model.local_count += 1  # its messages count a blank record in its place
        elif step.kind in KINDS:
            pass
        elif undone and step.kind == "release" and parts.model.sums is not None:
            parts.model.sums.spent = int(step.body)  # a number is not used twice
        elif undone and step.kind not in ("actions", "part"):
            pass
        elif step.kind in ("learn", "learn weighted"):
            rows, rewards = unpacked_log(step.body)
            weights = np.ones(len(rows))
            if step.kind == "learn weighted":
                rows, weights = rows[:, :-1].copy(), rows[:, -1]
            for row, weight, reward in zip(rows, weights.tolist(), rewards.tolist(), strict=True):
                shown = row if parts.model.actions is None else row[0]
                parts.learn(parts.shown(0, shown, weight=weight), reward)
        elif step.kind == "age":
            parts.model.age()
        elif step.kind == "release":
            parts.exchange.release_again(int(step.body))
        elif step.kind == "absorb":
            sent = json.loads(step.body)
            parts.exchange.absorb({n: Release.from_bytes(bytes.fromhex(text)) for n, text in sent.items()})
        elif step.kind == "actions":
            change = json.loads(step.body)
            parts.change_actions(change["how"], change["names"])
        elif step.kind == "schema":
            parts.extend_schema(stored_schema(json.loads(step.body)))
        elif step.kind == "part":
            parts.exchange.drop(json.loads(step.body))
        elif step.kind == "epoch":
            parts.exchange.begin_epoch(self._run(int(step.body)), int(step.body))
        elif step.kind == "total":
            text, members = json.loads(step.body)
            parts.exchange.add_total(Release.from_bytes(bytes.fromhex(text)), int(members))
        elif step.kind == "run":
            parts.exchange.begin_run(self._run(int(step.body)))
        else:
            raise StateError(f"{self.journal.place} holds a step of an unknown kind, {step.kind!r}")

    def _decision(self, made: Made) -> Decision:
        slate, name = None, None if made.names is None else made.names[made.action]
        values = np.concatenate([made.policy, made.theta, *made.contexts])
        if made.slots is not None:
            slate = Slate.from_json(made.slots, made.names)
        origin = self.journal.origins.of(made.seq) or ""
        decision = Decision(
            made.seq, made.action, values, made.policy.size, name, origin, made.time, made.propensity, slate
        )
        decision.drawn = made.drawn
        return decision

    def _read_budgets(self) -> None:
        settings = read_agent(self.log, self.journal.agent).settings
        self.budgets = [Budget.from_dict(each) for each in settings["budgets"]]

    # --- privacy -------------------------------------------------------------------------------------

    def _privatizer(self, runs: int, first: int = 1) -> Privatizer:
        """The privatizer of the last of `runs` runs, chained to those before it, back to the `first`."""
        made = self._run(first)
        for run in range(first + 1, runs + 1):
            sent = made.spent > 0
            made = ContinuedPrivatizer(self._run(run), before=made) if sent else self._run(run)
        return made

    def _run(self, run: int) -> Privatizer:
        """The privatizer of one run, with its ledger and its noise key in the database."""
        if self._secret is None:
            raise StateError(f"{self.journal.place} has no noise key, so this agent can't continue privately")
        number, name = self.journal.agent, self.settings.name
        return self.budgets[run - 1].privatizer(
            self.settings.dimension,
            noise=KeyedNoise(self._secret, agent=name, run=f"run-{run}"),
            ledger=StoredLedger(self.log, number, run),
            persons=StoredPersons(self.log, number, run),
        )

    def new_run(self, budget: Budget) -> tuple[Privatizer, int]:
        """Store one more budget, inside a step; return its privatizer and its number."""
        self.budgets.append(budget)
        settings = self._settings | {"budgets": [each.to_dict() for each in self.budgets]}
        update_settings(self.log, self.journal.agent, settings)
        return self._run(len(self.budgets)), len(self.budgets)

    # --- into the log --------------------------------------------------------------------------------

    def verify(self) -> None:
        """Replay the whole log from the first snapshot; `StateError` unless it ends in the same state."""
        with self.log.lock:
            before = self._snapshot()
            try:
                self.restore(whole=True)
                same = self._snapshot() == before
            finally:
                self.restore()
            if not same:
                raise damaged(self.journal.place, "replayed, its log ends in another state")

    def take_snapshot(self) -> None:
        """Store the state after all steps so far."""
        self.journal.write_snapshot(self._snapshot())

    def _snapshot(self) -> dict[str, Any]:
        return {**plain_value(self.parts.state(whole=False)), "runs": len(self.budgets)}

    def _after_commit(self) -> None:
        if self.log.mark_due:
            self.log.mark_due = False
            leave_mark(self.log)
        if self.snapshot_due:  # those after an early step were deleted
            self.snapshot_due = False
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
        return unsaved >= max(len(self.parts.pending), self.parts.model.dimension**2 // PAIRS)

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
            said, snapshots = self.journal.amendments(), self.journal.snapshot_numbers()
            if not said.dropped:
                return 0
            if len(snapshots) < 2:
                self.take_snapshot()
            with self.log.step():
                return erasure.Old(said.whole_from, said.before, snapshots[0], said.until).drop(
                    self.journal, limit
                )

    def _plan_drop(self, before: float, rule: str) -> bool:
        """Write a drop of the rows from before a time (seconds since 1970), if there are any; whether."""
        journal = self.journal
        said = journal.amendments()
        bound, until = max(number_at(journal, before), said.before), max(int(before * 1e6), said.until)
        start = erasure.first_with_content(journal, after=said.whole_from, before=bound)
        later = self._sound_snapshots(bound)
        old = erasure.Old(start, bound, min(later, default=self.log.end), until)
        count = old.count(journal)
        if not count:
            return False
        with self.log.lock:
            if journal.amendments() != said:  # another thread was faster
                return True
            if not self._sound_snapshots(bound):
                self.take_snapshot()
            with self.log.step():
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
