"""The agent, as its owner makes, keeps and opens it.

How it decides is in `deciding`, what it knows in `knowledge`, what it sends and takes in in `sharing`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Self

import numpy as np

from fedfairx.agent import state
from fedfairx.agent.deciding import Deciding
from fedfairx.agent.display import line_of_agent, table_of_agent
from fedfairx.agent.fields import Fields
from fedfairx.agent.parts import decision_from, privatizer_from
from fedfairx.agent.persistence import open_agent
from fedfairx.agent.validation import check_parts
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Merit
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.partners import ALIKE
from fedfairx.core.posterior import Prior
from fedfairx.core.statistics import packed_size
from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.privacy import Bounds, Budget, Privatizer
from fedfairx.privacy.ledger.rollback import Confirm, message_digest
from fedfairx.storage.journal import Journal


class Agent(Deciding):
    """Chooses arms in proportion to their merit, and learns from rewards, alone or with others.

    dimension: d, how many numbers describe an arm.
    actions: names of arms that have no features, instead: each has an expected reward of its own. More can be
        added, and some retired, later.
    rule: where shares come from: "expected-merit", "greedy" (the merit of the expected reward), "thompson"
        (of a drawn parameter), or "optimism" (the paper's).
    merit: what a reward is worth, one of `fedfairx.merit`; steeper ones give the best arms more. By default
        7 % of the reward range better doubles the share; without a range it is taken to be (0, 1).
    reward_range: (low, high) that no reward leaves, if known: it sets the defaults of merit and prior, and
        other rewards are refused.
    seed: of the draws; without one they differ from run to run.
    prior: what is believed before the first reward (`Prior`), by every rule but "optimism".
    minimum_share: that every arm gets in any case, in [0, 1).
    confidence: the region that "optimism" chooses from (`Confidence`).
    privatizer: what stands between this agent's records and its messages, as `fedfairx.privacy.private`
        makes it; without one `release` gives exact sums, which are NOT private.
    solver: "fixed-point", "pgd" or a `Solver`, for "optimism".
    shift: what makes private sums definite, in sds of their noise, for "optimism"; docs/privacy.md has it.
    partners: "alike", one θ for all, or "differ": whom to believe, and how far, is learnt from one's own
        rewards; for the rules of the posterior, and not where decisions come from releases alone. The
        attribute of that name is a table of who they are, what they weigh, and why.
    name: what others know its releases by, and must differ from theirs; by default it is random.

    >>> agent = Agent(2, seed=0)
    >>> decision = agent.decide([[1.0, 0.0], [0.0, 1.0]])
    >>> decision.policy.tolist()
    [0.5, 0.5]
    >>> agent.observe(decision, reward=1.0)
    >>> agent.observed, agent.pending
    (1, 0)

    >>> agent = Agent(actions=["ann", "ben", "cid"], seed=0)
    >>> agent.observe(agent.decide(), reward=1.0)
    >>> agent.add_actions("dora")
    >>> agent.decide(["ben", "dora"]).policy.tolist()
    [0.5, 0.5]

    Threads may share an agent: a lock makes each call whole. Whose turn is next is then the threads' affair,
    and a seed repeats a run only if the order of calls is repeated. A `ClippingWarning` says when a private
    agent's bounds move more than 1 % of its records.
    """

    def __init__(
        self,
        dimension: int | None = None,
        *,
        actions: Sequence[str] | None = None,
        rule: str = "expected-merit",
        merit: Merit | None = None,
        reward_range: tuple[float, float] | None = None,
        seed: int | np.random.SeedSequence | None = None,
        prior: Prior | None = None,
        minimum_share: float = 0.0,
        confidence: Confidence | None = None,
        privatizer: Privatizer | None = None,
        solver: str | Solver | None = None,
        shift: float = 4.0,
        partners: str = ALIKE,
        name: str | None = None,
    ) -> None:
        check_parts(merit=merit, prior=prior, confidence=confidence, privatizer=privatizer, name=name)
        require(not isinstance(seed, int) or seed >= 0, "seed", "must be >= 0", seed)
        super().__init__(
            dimension,
            actions=actions,
            seed=seed,
            rule=rule,
            merit=merit,
            reward_range=reward_range,
            prior=prior,
            minimum_share=minimum_share,
            confidence=confidence,
            privatizer=privatizer,
            solver=solver,
            shift=shift,
            partners=partners,
        )
        owner: str | None = getattr(self.privatizer, "owner", None)
        fits = name is None or owner in (None, name)
        require(fits, "name", f"must be the one that its noise was made for, {owner!r}", name)
        self.name: str = name or owner or f"agent-{secrets.token_hex(4)}"

    def __repr__(self) -> str:
        return line_of_agent(self)

    def _repr_html_(self) -> str:
        return table_of_agent(self)

    # --- keeping -------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that this agent needs to go on, exact to the bit, as plain values; see `federation.state`."""
        with self._lock:
            pending = [
                {
                    "number": made.number,
                    "origin": made.origin,
                    "action": int(made.action),
                    "drawn": int(made.drawn),
                    "arms": made._arms,
                    "time": made.time,
                    "values": made._values.tolist(),
                }
                | ({} if made.name is None else {"name": made.name})
                | ({} if made.context.size == self.dimension else {"dimension": made.context.size})
                for made in self._pending.values()
            ]
            privatizer = self.privatizer.state()
            return {
                **state.describe_settings(self),
                **state.describe_progress(self),
                "next_number": self._numbers.next,
                "origins": [{"first": n, "origin": o} for n, o in self._origins.used(self._numbers.next)],
                "pending": pending,
                "decide_from": self.decide_from,
                "private": self.private,
                "privatizer": privatizer,
            }

    @classmethod
    def from_state(
        cls,
        stored: Mapping[str, Any],
        *,
        merit: Merit | None = None,
        privatizer: Callable[[dict[str, Any]], Privatizer] | None = None,
    ) -> Self:
        """The agent that `state` described: it goes on with the same decisions, bit for bit.

        Only the noise of a private agent's releases to come and the ids of decisions to come are new, so that
        two lives of one state never share them.

        A merit of your own (`Custom`) is not in the state: give it as `merit`. Nor are keys: a private agent
        needs `privatizer`, which makes its privatizer from the stored state of the old one.
        """
        fields = Fields(dict(stored), "agent")
        dimension = fields.integer("dimension", 1)
        fields.numbers("own", packed_size(dimension))  # before anything of that size is made
        settings = state.settings_from(fields, merit)
        made = privatizer_from(fields, dimension, privatizer)
        try:
            agent = cls(**settings, privatizer=made)
        except InvalidInput as error:
            raise StateError(f"the file's settings don't make an agent: {error}") from None
        if agent.decide_from != fields.text("decide_from") or agent.private != fields.flag("private"):
            raise StateError(
                f"privatizer must decide from {fields.text('decide_from')!r}, as when the agent was saved, "
                f"got {agent.decide_from!r}"
            )
        state.restore_progress(agent, fields)
        agent._numbers.next = fields.integer("next_number")
        agent._origins.given = [
            (each.integer("first"), each.text("origin")) for each in fields.parts("origins")
        ]
        for each in fields.parts("pending"):
            then = each.integer("dimension", 1, dimension) if "dimension" in each.names() else dimension
            waiting = decision_from(each, then, agent._numbers.next)
            if agent._actions is not None and waiting.name not in agent._actions:
                raise StateError("the file has a decision that waits and is of none of the agent's actions")
            agent._pending[waiting.number] = waiting
        agent._origin = agent._origins.begin(agent._numbers.next)
        return agent

    def save(self, path: str | PathLike[str]) -> None:
        """Write `state` to a file, as JSON, whole or not at all."""
        state.write(self.state(), path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        merit: Merit | None = None,
        privatizer: Callable[[dict[str, Any]], Privatizer] | None = None,
    ) -> Self:
        """`from_state` of what `save` wrote."""
        return cls.from_state(state.read(path), merit=merit, privatizer=privatizer)

    # --- durable -------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        place: str | PathLike[str],
        *,
        dimension: int | None = None,
        actions: Sequence[str] | None = None,
        rule: str | None = None,
        merit: Merit | None = None,
        reward_range: tuple[float, float] | None = None,
        seed: int | None = None,
        prior: Prior | None = None,
        minimum_share: float | None = None,
        confidence: Confidence | None = None,
        budget: Budget | None = None,
        bounds: Bounds | None = None,
        solver: str | Solver | None = None,
        shift: float | None = None,
        partners: str | None = None,
        name: str | None = None,
        window: float | None = None,
        default_reward: float | None = None,
        confirm: Confirm | None = None,
    ) -> Self:
        """An agent that lives in a file (SQLite) or a `postgresql://` database; see docs/durable.md.

        The first opening makes it, and needs `dimension` or `actions`; later ones need nothing but the place,
        and refuse a setting that differs from what is kept. Every call is on disk before it returns, or has
        changed nothing. One process at a time has it open: `close` it, or use it as a context manager.

        budget: makes it private (`privacy.Budget`); ledger and noise key are in the same database.
        bounds: of an agent that is not private: what records are clipped to before others get their sums.
        window, default_reward: seconds after which `expire` gives up on a reward, and what it then was; these
            are of the opening and may differ from one to the next.
        confirm: asks the peers whether this is the latest copy, before anything is sent (`privacy.peers`).
        """
        settings = {
            "dimension": dimension,
            "actions": actions,
            "rule": rule,
            "merit": merit,
            "reward_range": reward_range,
            "seed": seed,
            "prior": prior,
            "minimum_share": minimum_share,
            "confidence": confidence,
            "solver": solver,
            "shift": shift,
            "partners": partners,
            "name": name,
        }
        alone = budget is None or bounds is None
        require(alone, "bounds", "must be left out beside a budget, which has its own", bounds)
        given = {name: value for name, value in settings.items() if value is not None}
        agent = open_agent(cls, place, given, budget or bounds)
        try:
            agent.set_window(window, default_reward)
            if confirm is not None:
                last = agent._latest.get(agent.name)
                confirm(agent.released, message_digest(None if last is None else last.to_bytes()))
        except BaseException:
            agent.close()
            raise
        return agent

    @property
    def durable(self) -> bool:
        """Whether it lives in a database (`Agent.open`), and not in memory."""
        return self._journal is not None

    @property
    def journal(self) -> Journal:
        """What is kept, to be asked: decisions by id, by key, by time."""
        if self._journal is None:
            raise InvalidInput("this agent lives in memory and keeps no journal: open it with Agent.open")
        return self._journal

    @property
    def incarnation(self) -> str:
        """The prefix of the ids that it gives: a new one each time an agent is made, loaded or opened."""
        return self._origin

    @contextmanager
    def together(self) -> Iterator[None]:
        """Steps inside are one transaction: on disk when it ends, all of them or, on failure, none.

        Nothing that a step inside has given may be told to anybody before the end. A step that is refused
        (`InvalidInput` and the like) changes nothing, and the others stay.
        """
        with self._lock, self._step():
            yield

    def verify(self) -> None:
        """Do a durable agent's whole log again; `StateError` unless it ends in the same state, to the bit.

        It takes about as long as the rewards took, and nothing else can be done meanwhile.
        """
        if self.journal:
            self._keeper.verify()

    def close(self) -> None:
        """Let go of the database; an agent in memory has none."""
        if self._journal is not None:
            self._journal.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
