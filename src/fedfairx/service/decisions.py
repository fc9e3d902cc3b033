"""From a request to the agent's decision, and from a decision to the answer.

In mode shadow, and in a share of live decisions (`control_share`), the caller's baseline is taken instead of
the action that the agent drew.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET

from fedfairx.agent.agent import Agent
from fedfairx.errors import InvalidInput, require
from fedfairx.service import schemas
from fedfairx.service.feature_table import FeatureTable
from fedfairx.service.schemas import Action, DecisionRequest
from fedfairx.service.settings import Settings
from fedfairx.storage.records import DecisionNote, StoredDecision
from fedfairx.util.arrays import Array


class DecisionInput(msgspec.Struct, frozen=True):  # made in a tenth of the time of a frozen dataclass
    """The eligible actions in the agent's terms; `rows` are their positions in the request."""

    contexts: Array | None  # None for actions without features
    rows: Sequence[int]
    actions: int  # in the request
    ids: list[str] | None  # of all actions in the request
    names: list[str] | None  # of the eligible ones
    groups: list[str | None] | None
    baseline: int | None  # among the eligible ones
    clipped: int


class AmongAll(msgspec.Struct, frozen=True):
    """A request that names no actions: it is about all actions without features that are active by then."""

    excluded: Collection[str]
    baseline: str | None
    most: int

    def among(self, active: Sequence[str], known: Collection[str]) -> DecisionInput:
        """The input, given the active actions, without the excluded ones."""
        for name in self.excluded:
            require(name in known, "excluded", "must be ids of existing actions", name)
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


def parse_request(
    request: DecisionRequest, features: FeatureTable | None, settings: Settings
) -> DecisionInput | AmongAll:
    """Check a request, and express it in the agent's terms; `features` is None if actions have none."""
    if request.baseline is None and (settings.mode == "shadow" or settings.control_share):
        raise InvalidInput("baseline must be given: this service takes it in some or all decisions (mode)")
    for given in (request.actions, request.contexts):
        if given is not None:
            _check_count(len(given), settings.max_actions)
    if features is None:
        return _parse_names(request, settings.max_actions)
    if (request.actions is None) == (request.contexts is None):
        raise InvalidInput("either actions or contexts must be given")
    if request.contexts is not None:
        contexts, clipped = features.contexts(request.contexts, "contexts")
        return _input(request, contexts, None, clipped)
    actions, rows = [], []
    for index, action in enumerate(request.actions or ()):
        if isinstance(action, str) or action.features is None:
            raise InvalidInput(f"actions[{index}] must have features: this service decides by them")
        actions.append(action)
        rows.append(features.row(action.features, f"actions[{index}].features"))
    contexts, clipped = features.contexts(rows, "features of actions")
    return _input(request, contexts, actions, clipped)


def _parse_names(request: DecisionRequest, most: int) -> DecisionInput | AmongAll:
    """A request about actions without features; the agent checks whether it has actions of these names."""
    without = "must be left out: this service's actions have no features"
    if request.contexts is not None:
        raise InvalidInput(f"contexts {without}")
    if request.actions is None:
        by_id = all(isinstance(one, str) for one in (*request.excluded, request.baseline or ""))
        require(by_id, "excluded and baseline", "must be ids of actions", "numbers")
        baseline = None if request.baseline is None else str(request.baseline)
        return AmongAll(frozenset(map(str, request.excluded)), baseline, most)
    actions = [Action(one) if isinstance(one, str) else one for one in request.actions]
    for index, action in enumerate(actions):
        if action.features is not None:
            raise InvalidInput(f"actions[{index}].features {without}")
    return _input(request, None, actions, 0)


def _input(
    request: DecisionRequest, contexts: Array | None, actions: Sequence[Action] | None, clipped: int
) -> DecisionInput:
    """The input from checked actions; a row that loses its position to excluded ones gets it as its name."""
    ids: list[str] | None = None
    groups: list[str | None] | None = None
    places: dict[str, int] = {}
    if actions is not None:
        ids = [action.id for action in actions]
        places = {name: row for row, name in enumerate(ids)}
        require(len(places) == len(ids), "actions", "must have different ids", f"{len(ids)} actions")
        if any(action.group is not None for action in actions):
            groups = [action.group for action in actions]
    count = len(places) if contexts is None else len(contexts)
    baseline = None if request.baseline is None else _place(request.baseline, ids, places, count, "baseline")
    if not request.excluded:
        return DecisionInput(contexts, range(count), count, ids, ids, groups, baseline, clipped)
    excluded = {_place(one, ids, places, count, "excluded") for one in request.excluded}
    rows = [row for row in range(count) if row not in excluded]
    require(bool(rows), "excluded", "must leave an action", f"{len(excluded)} of {count}")
    if baseline in excluded:
        raise InvalidInput("baseline must be none of the excluded actions")
    return DecisionInput(
        contexts=None if contexts is None else contexts[rows],
        rows=rows,
        actions=count,
        ids=ids,
        names=[str(row) if ids is None else ids[row] for row in rows],
        groups=None if groups is None else [groups[row] for row in rows],
        baseline=None if baseline is None else rows.index(baseline),
        clipped=clipped,
    )


def _check_count(count: int, most: int) -> None:
    require(count <= most, "actions", f"must be at most {most} (max_actions)", count)


def _place(one: str | int, ids: list[str] | None, places: dict[str, int], count: int, where: str) -> int:
    """The row of an action: by id if actions have ids, else by number."""
    if ids is None:
        if not isinstance(one, int) or one >= count:
            raise InvalidInput(f"{where} must be a row of contexts, from 0 to {count - 1}")
        return one
    if one not in places:
        raise InvalidInput(f"{where} must be the id of one of the {count} actions")
    return places[str(one)]


def decide(
    agent: Agent,
    inputs: Sequence[DecisionInput | AmongAll],
    keys: Sequence[str | None],
    digest: str | None,
    settings: Settings,
) -> list[schemas.DecisionMade]:
    """Make the decisions of one request; if the first key is taken, nothing has happened."""
    version, made = agent.model_version, []
    for asked, key in zip(inputs, keys, strict=True):
        if isinstance(asked, AmongAll):
            asked = asked.among(agent.actions, agent.all_actions)
        note = DecisionNote(
            key=key,
            digest=digest,
            groups=asked.groups,
            mode=_draw_mode(settings),
            baseline=asked.baseline,
            control_share=settings.control_share,
            model_version=version,
        )
        if asked.contexts is None:
            one = agent.decide(asked.names, note=note)
        else:
            one = agent.decide(asked.contexts, names=asked.names, note=note)
        shares = one.policy.tolist()
        made.append(_answer(asked, one.id, one.action, one.probability, shares, note.mode, version))
    return made


def _draw_mode(settings: Settings) -> str:
    """What chooses the action of one decision. It is stored with it, so it need not be repeatable."""
    if settings.mode == "shadow":
        return "shadow"
    return "control" if settings.control_share and random.random() < settings.control_share else "live"


def answer_of_stored(asked: DecisionInput | AmongAll, stored: StoredDecision) -> schemas.DecisionMade:
    """The answer that was given to the same request before."""
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
    """The answer in the request's terms: positions among all of its actions, excluded ones too."""
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


def observe(agent: Agent, rewards: Sequence[schemas.RewardOf], *, replace: bool = False) -> int:
    """Learn the rewards of one request, all or none, and return how many decisions had none before."""
    before = agent.pending
    if len(rewards) == 1:
        (one,) = rewards
        agent.observe(one.decision_id, reward=one.reward, person=one.person, replace=replace)
    else:
        named = any(one.person is not None for one in rewards)
        agent.observe_many(
            [one.decision_id for one in rewards],
            [one.reward for one in rewards],
            [one.person for one in rewards] if named else None,  # type: ignore[misc]
            replace=replace,
        )
    return before - agent.pending


def add_action(agent: Agent, name: str, most: int) -> None:
    """Offer an action without features from now on; one that is offered already changes nothing."""
    active = agent.actions
    if name not in active:
        _check_count(len(active) + 1, most)
        agent.add_actions(name)


def retire_action(agent: Agent, name: str) -> bool:
    """No longer offer an action; return whether there is one of that name, active or retired."""
    if name in agent.actions:
        agent.retire_actions(name)
    return name in agent.all_actions


def probe(agent: Agent) -> None:
    """Write to the disk as any other step does, and change nothing."""
    for change in ("+ 1", "- 1"):  # SQLite writes nothing for `version = version`
        agent.journal.log.write(f"UPDATE fedfairx SET version = version {change}")
