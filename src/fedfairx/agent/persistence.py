"""An agent that can be closed and opened: made from what its log says, and kept in step with it.

Opening takes the newest sound snapshot and does again what came after it. A decision is not computed again:
the log has what was drawn, so that what was told is what happened, on any machine. Rewards, releases and
what came from others are learnt again, which gives the same bits as the first time. A private agent's
ledger needs nothing: its rows were written in the same transactions.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from fedfairx.agent import state
from fedfairx.agent.deciding import Deciding
from fedfairx.agent.decision import Decision
from fedfairx.agent.fields import Fields
from fedfairx.agent.validation import latest_of
from fedfairx.errors import FedFairXError, InvalidInput, StateError, StorageError, require
from fedfairx.privacy import (
    Bounds,
    Budget,
    ContinuedPrivatizer,
    KeyedNoise,
    MemoryLedger,
    NonPrivateSums,
    Privatizer,
    Release,
    new_key,
)
from fedfairx.storage.journal import Event, Journal, Made, Outcome
from fedfairx.storage.open_log import open_log
from fedfairx.storage.privacy_ledger import StoredLedger, StoredPersons
from fedfairx.storage.records import unpacked_log
from fedfairx.storage.rollback_marker import leave_mark
from fedfairx.storage.transaction_log import Log

SNAPSHOT_EVERY = 5000  # steps at least
FEW = 20_000  # steps that are read at once

AgentType = TypeVar("AgentType", bound=Deciding)


def open_agent(
    cls: type[AgentType],
    place: str | os.PathLike[str],
    given: dict[str, Any],
    sharing: Budget | Bounds | None,
) -> AgentType:
    """The agent in a database of its own; `given` are the settings that the caller has named, `sharing` its
    budget or, where it shares exact sums, what their records are clipped to."""
    log = open_log(place)
    try:
        rows = log.database.execute("SELECT agent, settings, secret FROM agents ORDER BY agent")
        if len(rows) > 1:
            raise StateError(f"{log.database.place} holds {len(rows)} agents: open it with Federation.open")
        if not rows:
            make_agent(cls, log, given, sharing)
            rows = log.database.execute("SELECT agent, settings, secret FROM agents")
        number, settings, secret = rows[0]
        agent = AgentStore(log, int(number), json.loads(settings), secret).agent(cls, given, sharing)
        leave_mark(log)
    except BaseException:
        log.close()
        raise
    return agent


def make_agent(
    cls: type[AgentType], log: Log, given: dict[str, Any], sharing: Budget | Bounds | None
) -> None:
    """Keep a new agent: its settings, its key, and the state it begins with."""
    if "dimension" not in given and "actions" not in given:
        raise InvalidInput(
            f"dimension or actions must be given: there is no agent in {log.database.place} yet"
        )
    given = {"name": f"agent-{secrets.token_hex(4)}", **given}
    budgets, secret, trial = [], None, None
    if isinstance(sharing, Budget):
        budgets, secret = [sharing.to_dict()], new_key()
        # To see that all fits before anything is kept; of a run of its own, and never asked for noise.
        noise = KeyedNoise(secret, agent=given["name"], run="trial")
        dimension = given["dimension"] if "dimension" in given else len(given["actions"])
        trial = sharing.privatizer(dimension, noise=noise, ledger=MemoryLedger())
    agent = cls(**given, privatizer=trial)
    bounds = sharing.to_dict() if isinstance(sharing, Bounds) else None
    described = {
        "schema": state.SCHEMA,
        **state.describe_settings(agent),
        "budgets": budgets,
        "bounds": bounds,
    }
    with log.step():
        (number,) = log.write("SELECT COALESCE(MAX(agent), 0) + 1 FROM agents")[0]
        row = (number, agent.name, json.dumps(described), secret)
        log.write("INSERT INTO agents VALUES (?, ?, ?, ?)", row)
        Journal(log, number).write_snapshot(_snapshot(agent, runs=len(budgets)))


class AgentStore:
    """Holds one agent and its part of the log together."""

    def __init__(self, log: Log, number: int, settings: dict[str, Any], secret: bytes | None) -> None:
        self.log = log
        self.journal = Journal(log, number)
        if settings.get("schema") != state.SCHEMA:
            raise StateError(
                f"{self.journal.place} holds an agent of another version of fedfairx, from before the first "
                "release: open it with that version"
            )
        self._settings = settings
        self._secret = None if secret is None else bytes(secret)
        self._agent: Deciding
        self._budgets = [Budget.from_dict(each) for each in settings["budgets"]]
        bounds = settings.get("bounds")  # which older databases have not
        self._bounds = None if bounds is None else Bounds(**bounds)

    def agent(
        self, cls: type[AgentType], given: dict[str, Any], sharing: Budget | Bounds | None
    ) -> AgentType:
        """The agent as the log leaves it, and from now on kept in it."""
        fields = Fields(self._settings, "settings")
        own = self._settings["merit"]["kind"] == "custom"
        settings = state.settings_from(fields, given.get("merit") if own else None)
        agent = cls(**settings, privatizer=self._privatizer(1) if self._budgets else None)
        self._refuse_others(cls, agent, given, sharing)
        self._agent = agent
        agent._lock = self.log.lock
        agent._numbers = self.log.numbers
        agent._origins = self.journal.origins
        agent._journal = self.journal
        agent._keeper = self
        self.restore()
        _refuse_actions(agent, given.get("actions"))
        agent._origin = self.journal.begin_incarnation()
        self.log.restorers.append(self.restore)
        self.log.committed.append(self._after_commit)
        self.log.closing.append(self._before_close)
        return agent

    def _refuse_others(
        self, cls: type[Deciding], agent: Deciding, given: dict[str, Any], sharing: Budget | Bounds | None
    ) -> None:
        """What the caller names must be what is kept."""
        if isinstance(sharing, Budget) and sharing not in self._budgets[-1:]:
            last = self._budgets[-1] if self._budgets else None
            raise InvalidInput(f"budget must be the one that is kept, {last}, got budget={sharing}")
        if isinstance(sharing, Bounds) and sharing != self._bounds:
            raise InvalidInput(f"bounds must be those that are kept, {self._bounds}, got bounds={sharing}")
        if agent._actions is not None and "dimension" in given:
            raise InvalidInput(
                f"dimension must be left out: this agent has actions, got dimension={given['dimension']}"
            )
        asked = {name: value for name, value in given.items() if name not in ("seed", "actions")}
        if not asked:
            return
        kept = self._settings
        meant = cls(**{"dimension": agent.dimension, "rule": agent.rule, "name": agent.name, **asked})
        for key, value in state.describe_settings(meant).items():
            if key in asked and value != kept[key]:
                raise InvalidInput(
                    f"{key} must be the one that is kept, {key}={kept[key]!r}, got {key}={value!r}"
                )

    # --- from the log --------------------------------------------------------------------------------

    def restore(self, *, whole: bool = False) -> None:
        """Put the agent where the log ends; `whole` does all of it again from the very beginning."""
        try:
            self._read_budgets()
            self._restore(whole)
        except FedFairXError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            said = type(error).__name__  # the text might hold data
            raise StateError(f"{self.journal.place} is damaged: it can't be read, {said}") from None

    def _restore(self, whole: bool) -> None:
        agent, found = self._agent, list(self.journal.snapshots())
        if not found:
            raise StateError(f"{self.journal.place} is damaged: it has no sound snapshot")
        at, body = found[-1] if whole else found[0]
        fields = Fields(body, "snapshot")
        if self._budgets:
            privatizer = self._privatizer(fields.integer("runs"))
        else:
            stored, actions = fields.part("privatizer").plain(), fields.texts("actions")
            dimension = agent.dimension if actions is None else len(actions)
            privatizer = NonPrivateSums.from_state(stored, dimension=dimension, bounds=self._bounds)
        pending = {made.seq: self._decision(made) for made in self.journal.made(body["pending"])}
        steps: Iterable[Made | Outcome | Event] = self.journal.steps(at)
        if self.log.end - at <= FEW:
            steps = list(steps)  # all is read before anything changes
        agent._go_on_with(privatizer)
        state.restore_progress(agent, fields)
        agent._pending = pending
        for step in steps:
            self._again(step)
        self.journal.snapshot_at = at

    def _again(self, step: Made | Outcome | Event) -> None:
        agent = self._agent
        if isinstance(step, Made):
            agent._pending[step.seq] = self._decision(step)
            del agent._uniforms[-agent._uniforms_each :]
            if not agent._uniforms:
                agent._draw_ahead()
        elif isinstance(step, Outcome):
            made = agent._pending.pop(step.decision, None)
            if made is None:
                raise StateError(f"{self.journal.place} is damaged: step {step.seq} is of no decision")
            if step.reward is not None:
                agent._learn(made, step.reward)
        elif step.kind == "learn":
            rows, rewards = unpacked_log(step.body)
            for row, reward in zip(rows, rewards.tolist(), strict=True):
                agent._learn(agent._shown(0, row if agent._actions is None else row[0]), reward)
        elif step.kind == "release":
            agent._mark_local()
            agent._latest[agent.name] = agent._marked(agent.privatizer.release(int(step.body)))
            agent._fold_local(agent._local_count)
        elif step.kind == "absorb":
            told = {
                name: Release.from_bytes(bytes.fromhex(text)) for name, text in json.loads(step.body).items()
            }
            digest = agent._digest()
            agent._share(
                latest_of(agent._latest, told, own=agent.name, dimension=agent.dimension, mechanism=digest)
            )
        elif step.kind == "actions":
            change = json.loads(step.body)
            agent._apply_actions(change["how"], change["names"])
        elif step.kind == "part":
            agent._part_from(json.loads(step.body))
        elif step.kind == "run":
            agent._go_on_with(self._after(agent.privatizer, int(step.body)))
        elif step.kind != "replace":  # the outcome itself was changed
            raise StateError(f"{self.journal.place} holds a step of an unknown kind, {step.kind!r}")

    def _decision(self, made: Made) -> Decision:
        values = np.concatenate([made.policy, made.theta, made.context])
        name = None if made.names is None else made.names[made.action]
        origin = self.journal.origins.of(made.seq) or ""
        decision = Decision(made.seq, made.action, values, made.policy.size, name, origin, made.time)
        decision.drawn = made.drawn
        return decision

    def _read_budgets(self) -> None:
        question = "SELECT settings FROM agents WHERE agent = ?"
        settings = json.loads(self.log.database.execute(question, (self.journal.agent,))[0][0])
        self._budgets = [Budget.from_dict(each) for each in settings["budgets"]]

    # --- privacy -------------------------------------------------------------------------------------

    def _privatizer(self, runs: int) -> Privatizer:
        """That of the last of so many runs, after those before it."""
        made = self._run(1)
        for run in range(2, runs + 1):
            made = self._after(made, run)
        return made

    def _after(self, before: Privatizer, run: int) -> Privatizer:
        made = self._run(run)
        return ContinuedPrivatizer(made, before=before) if before.guarantee.spent > 0 else made

    def _run(self, run: int) -> Privatizer:
        """The privatizer of one run: its ledger in the database, its noise from the key that is there."""
        if self._secret is None:
            raise StateError(f"{self.journal.place} has no noise key, so this agent can't go on privately")
        number, name = self.journal.agent, self._settings["name"]
        return self._budgets[run - 1].privatizer(
            self._settings["dimension"],
            noise=KeyedNoise(self._secret, agent=name, run=f"run-{run}"),
            ledger=StoredLedger(self.log, number, run),
            persons=StoredPersons(self.log, number, run),
        )

    def new_run(self, budget: Budget) -> tuple[Privatizer, int]:
        """Inside a step: keep one more budget, and give its privatizer and its number."""
        self._budgets.append(budget)
        settings = self._settings | {"budgets": [each.to_dict() for each in self._budgets]}
        self.log.write(
            "UPDATE agents SET settings = ? WHERE agent = ?", (json.dumps(settings), self.journal.agent)
        )
        return self._run(len(self._budgets)), len(self._budgets)

    # --- into the log --------------------------------------------------------------------------------

    def verify(self) -> None:
        """Do the whole log again from the very beginning; `StateError` unless it ends in the same state."""
        with self.log.lock:
            before = _snapshot(self._agent, runs=len(self._budgets))
            try:
                self.restore(whole=True)
                same = _snapshot(self._agent, runs=len(self._budgets)) == before
            finally:
                self.restore()
            if not same:
                raise StateError(
                    f"{self.journal.place} is damaged: done again, its log ends in another state"
                )

    def _after_commit(self) -> None:
        if self.log.mark_due:
            self.log.mark_due = False
            leave_mark(self.log)
        # It lists all that wait, so it is made no more often than they come: else many would make each dear.
        if self.log.end - self.journal.snapshot_at >= max(SNAPSHOT_EVERY, self._agent.pending):
            self._snapshot()

    def _before_close(self) -> None:
        self._snapshot()
        leave_mark(self.log)

    def _snapshot(self) -> None:
        """A snapshot saves time and nothing else, so one that fails does no harm."""
        try:
            self.journal.write_snapshot(_snapshot(self._agent, runs=len(self._budgets)))
        except StorageError:
            self.journal.snapshot_at = self.log.end  # retry only after another SNAPSHOT_EVERY steps


def _refuse_actions(agent: Deciding, given: Sequence[str] | None) -> None:
    """Actions that the caller names must be ones that the agent has."""
    if given is None:
        return
    if agent._actions is None:
        raise InvalidInput("actions must be left out: this agent's arms have features")
    new = [name for name in given if name not in agent._actions]
    require(not new, "actions", "must be ones that it has", new[:1], "others are added while it is open")


def _snapshot(agent: Deciding, *, runs: int) -> dict[str, Any]:
    return {
        **state.describe_progress(agent),
        "marks": [],  # for releases that were interrupted, and here none is: each is one transaction
        "pending": list(agent._pending),
        "runs": runs,
        "privatizer": None if agent.private else agent.privatizer.state(),
    }
