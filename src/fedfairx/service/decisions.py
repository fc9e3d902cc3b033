"""What a request asks of the agent: among which actions, and whose is taken, the drawn or the baseline's."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from fedfairx.agent.agent import Agent
from fedfairx.errors import InvalidInput, require
from fedfairx.service import schemas
from fedfairx.service.feature_table import FeatureTable
from fedfairx.service.schemas import Action, DecisionRequest
from fedfairx.storage.records import DecisionNote, StoredDecision
from fedfairx.util.arrays import Array


@dataclass(frozen=True, slots=True)
class AssignmentMode:
    """How actions are taken: `live`, `shadow`, or live but for a `control_share`."""

    mode: str
    control_share: float

    @property
    def needs_baseline(self) -> bool:
        return self.mode == "shadow" or self.control_share > 0

    def draw(self) -> str:
        """What chooses the action of one decision. It is noted with it, so it need not be repeatable."""
        if self.mode == "shadow":
            return "shadow"
        return "control" if self.control_share and random.random() < self.control_share else "live"


NO_BASELINE = "baseline must be given: this service keeps it in some or all decisions (mode)"


class DecisionInput(msgspec.Struct, frozen=True):  # a tenth of the time that a frozen dataclass takes to make
    """The eligible actions as the agent sees them; `rows` are their places in the request."""

    contexts: Array | None  # None: actions without features, which are their names
    rows: Sequence[int]
    actions: int  # in the request
    ids: list[str] | None  # of all actions in the request
    names: list[str] | None  # of the eligible ones
    groups: list[str | None] | None
    baseline: int | None  # among the eligible ones
    clipped: int


class AmongAll(msgspec.Struct, frozen=True):
    """A request that names no actions: of those without features all are meant that are active then."""

    excluded: Collection[str]
    baseline: str | None
    most: int

    def among(self, active: Sequence[str], known: Collection[str]) -> DecisionInput:
        """What is asked, once it is known what there is; excluded ones are no part of it."""
        for name in self.excluded:
            require(name in known, "excluded", "must be the ids of actions that there are", name)
        names = [name for name in active if name not in self.excluded]
        require(bool(names), "excluded", "must leave an action", f"{len(active)} of {len(active)}")
        _check_count(len(names), self.most)
        baseline = self.baseline
        fits = baseline is None or baseline in names
        require(fits, "baseline", f"must be the id of one of the {len(names)} actions", baseline)
        return named(names, None if baseline is None else names.index(baseline))


def named(names: list[str], baseline: int | None = None) -> DecisionInput:
    """All of these actions without features."""
    return DecisionInput(None, range(len(names)), len(names), names, names, None, baseline, 0)


def parse_names(
    request: DecisionRequest, *, max_actions: int, needs_baseline: bool
) -> DecisionInput | AmongAll:
    """`parse_request`, of actions without features; whether there are such, the agent will say."""
    if request.contexts is not None:
        raise InvalidInput("contexts must be left out: this service's actions have no features")
    if needs_baseline and request.baseline is None:
        raise InvalidInput(NO_BASELINE)
    if request.actions is None:
        by_id = all(isinstance(one, str) for one in (*request.excluded, request.baseline or ""))
        require(by_id, "excluded and baseline", "must be ids of actions", "numbers")
        baseline = None if request.baseline is None else str(request.baseline)
        return AmongAll(frozenset(map(str, request.excluded)), baseline, max_actions)
    actions = [Action(one) if isinstance(one, str) else one for one in request.actions]
    for index, action in enumerate(actions):
        if action.features is not None:
            raise InvalidInput(
                f"actions[{index}].features must be left out: this service's actions have no features"
            )
    _check_count(len(actions), max_actions)
    ids, groups, places = _ids_of(actions)
    count = len(ids)
    baseline_at = (
        None if request.baseline is None else _place(request.baseline, ids, places, count, "baseline")
    )
    asked = DecisionInput(None, range(count), count, ids, ids, groups, baseline_at, 0)
    return _without(request, asked, places) if request.excluded else asked


def parse_request(
    request: DecisionRequest, features: FeatureTable, *, max_actions: int, needs_baseline: bool
) -> DecisionInput:
    """Check a request, and say it in the agent's terms."""
    if (request.actions is None) == (request.contexts is None):
        raise InvalidInput("either actions or contexts must be given")
    if request.actions is not None:
        _check_count(len(request.actions), max_actions)
        actions, rows = [], []
        for i, action in enumerate(request.actions):
            if isinstance(action, str) or action.features is None:
                raise InvalidInput(f"actions[{i}] must have features: this service decides by them")
            actions.append(action)
            rows.append(features.row(action.features, f"actions[{i}].features"))
        ids, groups, places = _ids_of(actions)
        contexts, clipped = features.contexts(rows, "features of actions")
    else:
        assert request.contexts is not None
        _check_count(len(request.contexts), max_actions)
        contexts, clipped = features.contexts(request.contexts, "contexts")
        ids, groups, places = None, None, dict[str, int]()
    count = len(contexts)
    baseline = None if request.baseline is None else _place(request.baseline, ids, places, count, "baseline")
    if needs_baseline and baseline is None:
        raise InvalidInput(NO_BASELINE)
    if not request.excluded:
        return DecisionInput(contexts, range(count), count, ids, ids, groups, baseline, clipped)
    return _without(
        request, DecisionInput(contexts, range(count), count, ids, ids, groups, baseline, clipped), places
    )


def _ids_of(actions: Sequence[Action]) -> tuple[list[str], list[str | None] | None, dict[str, int]]:
    """Ids, groups if there are any, and the row of each id."""
    ids = [action.id for action in actions]
    places = {name: row for row, name in enumerate(ids)}
    require(len(places) == len(ids), "actions", "must have different ids", f"{len(ids)} actions")
    grouped = any(action.group is not None for action in actions)
    return ids, [action.group for action in actions] if grouped else None, places


def _without(request: DecisionRequest, asked: DecisionInput, places: dict[str, int]) -> DecisionInput:
    """The same without the excluded actions; rows that lose their place get it as their name."""
    ids = asked.ids
    excluded = {_place(one, ids, places, asked.actions, "excluded") for one in request.excluded}
    rows = [row for row in range(asked.actions) if row not in excluded]
    require(bool(rows), "excluded", "must leave an action", f"{len(excluded)} of {asked.actions}")
    if asked.baseline is not None and asked.baseline in excluded:
        raise InvalidInput("baseline must be none of the excluded actions")
    return DecisionInput(
        contexts=None if asked.contexts is None else asked.contexts[rows],
        rows=rows,
        actions=asked.actions,
        ids=ids,
        names=[str(row) if ids is None else ids[row] for row in rows],
        groups=None if asked.groups is None else [asked.groups[row] for row in rows],
        baseline=None if asked.baseline is None else rows.index(asked.baseline),
        clipped=asked.clipped,
    )


def _check_count(count: int, most: int) -> None:
    require(count <= most, "actions", f"must be at most {most} (max_actions)", count)


def _place(one: str | int, ids: list[str] | None, places: dict[str, int], count: int, where: str) -> int:
    """The row that is meant: by id where actions have ids, by number where they have not."""
    if ids is None:
        if not isinstance(one, int) or one >= count:
            raise InvalidInput(f"{where} must be a row of contexts, from 0 to {count - 1}")
        return one
    if one not in places:
        raise InvalidInput(f"{where} must be the id of one of the {count} actions")
    return places[str(one)]


class Decide(msgspec.Struct, frozen=True):
    """Decisions for one request; if the first one's key is taken, nothing has happened."""

    asked: Sequence[DecisionInput | AmongAll]
    taking: AssignmentMode
    keys: Sequence[str | None]
    digest: str | None

    def __call__(self, agent: Agent) -> list[schemas.DecisionMade]:
        version = agent.model_version
        return [self._one(agent, one, key, version) for one, key in zip(self.asked, self.keys, strict=True)]

    def _one(
        self, agent: Agent, asked: DecisionInput | AmongAll, key: str | None, version: int
    ) -> schemas.DecisionMade:
        taking = self.taking
        if isinstance(asked, AmongAll):
            asked = asked.among(agent.actions, agent.all_actions)
        mode = taking.draw()
        note = DecisionNote(
            key=key,
            digest=self.digest,
            groups=asked.groups,
            mode=mode,
            baseline=asked.baseline,
            control_share=taking.control_share,
            model_version=version,
        )
        if asked.contexts is None:
            made = agent.decide(asked.names, note=note)
        else:
            made = agent.decide(asked.contexts, names=asked.names, note=note)
        return _answer(asked, made.id, made.action, made.probability, made.policy.tolist(), mode, version)


def answer_of_stored(asked: DecisionInput | AmongAll, stored: StoredDecision) -> schemas.DecisionMade:
    """The answer that was given then, to the same request."""
    if isinstance(asked, AmongAll):
        asked = named(stored.names or [])  # there may be others now
    shares, version = stored.policy.tolist(), stored.model_version
    return _answer(asked, stored.id, stored.action, stored.propensity, shares, stored.mode, version)


def _answer(
    asked: DecisionInput,
    identity: str,
    action: int,
    propensity: float,
    shares: list[float],
    mode: str,
    version: int,
) -> schemas.DecisionMade:
    """In the request's terms: places among all of its actions, the excluded ones too."""
    policy = shares
    if len(asked.rows) < asked.actions:
        policy = [0.0] * asked.actions
        for row, share in zip(asked.rows, shares, strict=True):
            policy[row] = share
    place = asked.rows[action]
    return schemas.DecisionMade(
        decision_id=identity,
        action=place,
        action_id=None if asked.ids is None else asked.ids[place],
        probability=propensity,
        policy=policy,
        model_version=version,
        mode=mode,
        action_ids=asked.ids if asked.contexts is None and asked.ids is not None else UNSET,
    )


class Reward(msgspec.Struct, frozen=True):
    """Rewards of one request: all of them, or none."""

    rewards: Sequence[schemas.RewardOf]

    def __call__(self, agent: Agent) -> None:
        rewards = self.rewards
        if len(rewards) == 1:
            (one,) = rewards
            agent.observe(one.decision_id, reward=one.reward, person=one.person)
            return
        named = any(one.person is not None for one in rewards)
        agent.observe_many(
            [one.decision_id for one in rewards],
            [one.reward for one in rewards],
            [one.person for one in rewards] if named else None,  # type: ignore[misc]
        )


class Replace(msgspec.Struct, frozen=True):
    """Rewards of one request, each in the place of another if there is one: all of them, or none.

    Gives how many decisions had none before.
    """

    rewards: Sequence[schemas.RewardOf]

    def __call__(self, agent: Agent) -> int:
        before = agent.pending
        named = any(one.person is not None for one in self.rewards)
        agent.observe_many(
            [one.decision_id for one in self.rewards],
            [one.reward for one in self.rewards],
            [one.person for one in self.rewards] if named else None,  # type: ignore[misc]
            replace=True,
        )
        return before - agent.pending


class Withdraw(msgspec.Struct, frozen=True):
    """Decisions of one request that were never shown: all of them, or none."""

    identities: Sequence[str]

    def __call__(self, agent: Agent) -> None:
        agent.forget_many(self.identities)


class AddAction(msgspec.Struct, frozen=True):
    """An action without features that is offered from now on; one that is already changes nothing."""

    name: str
    most: int

    def __call__(self, agent: Agent) -> None:
        active = agent.actions
        if self.name not in active:
            fits = len(active) < self.most
            require(fits, "actions", f"must be at most {self.most} (max_actions)", len(active) + 1)
            agent.add_actions(self.name)


class RetireAction(msgspec.Struct, frozen=True):
    """One that is no longer offered; one that was retired before changes nothing.

    False: there is none of that name.
    """

    name: str

    def __call__(self, agent: Agent) -> bool:
        if self.name in agent.actions:
            agent.retire_actions(self.name)
        return self.name in agent.all_actions


def probe(agent: Agent) -> None:
    """A write that needs room and reaches the disk as any other does, and leaves everything as it was."""
    for change in ("+ 1", "- 1"):  # SQLite writes nothing for `version = version`
        agent.journal.log.write(f"UPDATE fedfairx SET version = version {change}")
