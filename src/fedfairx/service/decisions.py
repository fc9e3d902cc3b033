"""From a request to the agent's decision, and from a decision to the answer.

In mode shadow, and in a share of live decisions (`control_share`), the caller's baseline is taken instead of
what the agent drew: one action, or a list of them in the order of slots.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
from msgspec import UNSET

from fedfairx.agent.actions import not_offered
from fedfairx.agent.agent import Agent
from fedfairx.core.json_numbers import read_matrices
from fedfairx.core.slates import ONE, Weights, as_weights
from fedfairx.decision import Decision, DecisionNote
from fedfairx.errors import InvalidInput, require
from fedfairx.features import Encoded
from fedfairx.service import schemas
from fedfairx.service.feature_table import CONTEXTS, FeatureTable
from fedfairx.service.problems import ProblemError, about
from fedfairx.service.schemas import Action, DecisionRequest
from fedfairx.service.settings import Settings
from fedfairx.storage.records import StoredDecision, StoredSlot
from fedfairx.util.arrays import Array
from fedfairx.util.places import inside, kind_of, place, require_different


class DecisionInput(msgspec.Struct, frozen=True):  # made in a tenth of the time of a frozen dataclass
    """The eligible actions in the agent's terms; `rows` are their positions in the request."""

    contexts: Array | None  # None for actions without features
    rows: Sequence[int]
    actions: int  # in the request
    ids: list[str] | None  # of all actions in the request
    names: list[str] | None  # of the eligible ones
    groups: list[str | None] | None
    baseline: int | list[int] | None  # among the eligible ones; a list if there are several slots
    encoded: Encoded | None  # what became of features, for counting
    slots: Weights


class AmongAll(msgspec.Struct, frozen=True):
    """A request that names no actions: it is about all actions without features that are active by then."""

    excluded: Collection[str]
    baseline: list[str]
    most: int
    slots: Weights

    def among(self, active: Sequence[str], existing: Collection[str]) -> DecisionInput:
        """The input, given the active actions, without the excluded ones."""
        for name in self.excluded:
            require(name in existing, "excluded", "must be ids of existing actions", name)
        names = [name for name in active if name not in self.excluded] if self.excluded else [*active]
        require(bool(names), "excluded", "must leave an action", f"{len(active)} of {len(active)}")
        _check_count(len(names), self.most)
        for one in self.baseline:
            require(one in names, "baseline", f"must be of the {len(names)} actions that can be taken", one)
        _check_slots(self.slots, len(names))
        rows = [names.index(one) for one in self.baseline]
        return named(names, self.slots, _in_slots(rows, self.slots))


def named(names: list[str], slots: Weights, baseline: int | list[int] | None = None) -> DecisionInput:
    """All of these actions without features."""
    return DecisionInput(None, range(len(names)), len(names), names, names, None, baseline, None, slots)


def unnamed(contexts: Array) -> DecisionInput:
    """All of these actions without names, for one slot."""
    return DecisionInput(contexts, range(len(contexts)), len(contexts), None, None, None, None, None, ONE)


def plain_contexts(
    requests: Sequence[DecisionRequest], features: FeatureTable | None, settings: Settings, own: Weights
) -> Array | None:
    """Contexts (B, K, d) of requests with nothing but as many contexts for each; None for any other.

    What is refused is None as well: `parse_request` says why.
    """
    if features is None or own is not ONE or settings.mode != "live" or settings.control_share:
        return None
    texts = [
        one.contexts
        for one in requests
        if one.contexts is not UNSET
        and one.actions is None
        and one.context is None
        and one.baseline is None
        and one.slots is None
        and not one.excluded
    ]
    rows = read_matrices(texts) if len(texts) == len(requests) and not features.names else None
    return None if rows is None or rows.shape[1] > settings.max_actions else features.of_numbers(rows)


NULL = msgspec.Raw(b"null")
_ROWS = msgspec.json.Decoder(schemas.Rows)
Item = TypeVar("Item")
Result = TypeVar("Result")


def of_each(items: Iterable[Item], task: Callable[[Item], Result], *, batch: bool) -> list[Result]:
    """The task's result for each decision of a request; in a batch, an error has the decision's place."""
    results = []
    for index, item in enumerate(items):
        try:
            results.append(task(item))
        except InvalidInput as error:
            raise (inside(place("decisions", index), error) if batch else error) from None
    return results


def parse_request(
    request: DecisionRequest, features: FeatureTable | None, settings: Settings, own: Weights, *, fixed: bool
) -> DecisionInput | AmongAll:
    """Check a request, and express it in the agent's terms; `features` is None if actions have none.

    own: the weights of the agent's slots, which are those of every decision if `fixed`.
    """
    slots = own if request.slots is None else _slots(request, own, fixed)
    if request.baseline is None and (settings.mode == "shadow" or settings.control_share):
        raise InvalidInput("baseline must be given: this service takes it in some or all decisions (mode)")
    if request.actions is not None:
        _check_count(len(request.actions), settings.max_actions)
    contexts = None if request.contexts is UNSET or request.contexts == NULL else request.contexts
    if features is None:
        return _parse_names(request, contexts, settings.max_actions, slots)
    if (request.actions is None) == (contexts is None):
        which = "neither" if request.actions is None else "both"
        raise InvalidInput(f"actions or contexts must be given, one of them, got {which}")
    if contexts is not None:
        numbers = _rows(contexts)
        _check_count(len(numbers), settings.max_actions)
        return _input(request, features.encode(numbers, request.context, CONTEXTS), None, None, slots)
    actions, rows = [], []
    for index, action in enumerate(request.actions or ()):
        if isinstance(action, str) or action.features is None:
            raise InvalidInput(
                f"{place('actions', index, 'features')} must be given: this service decides by them"
            )
        actions.append(action)
        rows.append(action.features)
    return _input(request, features.encode(rows, request.context, "actions"), *_named(actions), slots)


def _rows(contexts: msgspec.Raw) -> list[list[float]]:
    try:
        return _ROWS.decode(contexts)
    except msgspec.ValidationError as error:
        raise InvalidInput(about(error, where=CONTEXTS)) from None


def _slots(request: DecisionRequest, own: Weights, fixed: bool) -> Weights:
    """The weights of the slots that a request asks for."""
    assert request.slots is not None
    weights = as_weights(request.slots)
    if fixed and weights != own:
        text = "must be left out or those of the service: its messages were agreed on or calibrated for them"
        raise InvalidInput(f"slots {text}, {list(own)}, got slots={request.slots}")
    return weights


def _baseline(request: DecisionRequest) -> list[str | int]:
    """The actions of a request's baseline, in the order of slots."""
    baseline = request.baseline
    return baseline if isinstance(baseline, list) else [] if baseline is None else [baseline]


def _in_slots(rows: list[int], slots: Weights) -> int | list[int] | None:
    """The rows of a baseline as the agent takes them: one for each slot."""
    if not rows:
        return None
    text = f"must be a list of {len(slots)} different actions, one for each slot"
    if not len(rows) == len(set(rows)) == len(slots):
        value = f"{len(rows)}" if len(rows) == len(set(rows)) else "one of them twice"
        raise InvalidInput(f"baseline {'must be one action' if slots is ONE else text}, got {value}")
    return rows[0] if slots is ONE else rows


def _check_slots(slots: Weights, actions: int) -> None:
    require(len(slots) <= actions, "slots", f"must be at most as many as the {actions} actions", len(slots))


def _parse_names(
    request: DecisionRequest, contexts: msgspec.Raw | None, most: int, slots: Weights
) -> DecisionInput | AmongAll:
    """A request about actions without features; the agent checks whether it has actions of these names."""
    without = "must be left out: this service's actions have no features"
    for name, value in (("contexts", contexts), ("context", request.context)):
        if value is not None:
            raise InvalidInput(f"{name} {without}")
    if request.actions is None:
        baseline = _baseline(request)
        by_id = all(isinstance(one, str) for one in (*request.excluded, *baseline))
        require(by_id, "excluded and baseline", "must be ids of actions", "numbers")
        return AmongAll(frozenset(map(str, request.excluded)), [*map(str, baseline)], most, slots)
    if _are_texts(request.actions):  # as most often
        return _input(request, None, cast("list[str]", request.actions), None, slots)
    actions = [Action(one) if isinstance(one, str) else one for one in request.actions]
    for index, action in enumerate(actions):
        if action.features is not None:
            raise InvalidInput(f"{place('actions', index, 'features')} {without}")
    return _input(request, None, *_named(actions), slots)


def _are_texts(actions: Sequence[Any]) -> bool:
    """Whether all actions are given by their ids alone, in a third of the time of looking at each type."""
    try:
        return "".join(actions) != ""
    except TypeError:
        return False


def _named(actions: Sequence[Action]) -> tuple[list[str], list[str | None] | None]:
    """The ids of actions, and their groups if they have any."""
    groups = [action.group for action in actions]
    return [action.id for action in actions], groups if any(group is not None for group in groups) else None


def _input(
    request: DecisionRequest,
    encoded: Encoded | None,
    ids: list[str] | None,
    groups: list[str | None] | None,
    slots: Weights,
) -> DecisionInput:
    """The input from checked actions; of several slots, a row that loses its position gets it as its name."""
    contexts = None if encoded is None else encoded.contexts
    count = len(ids or ()) if contexts is None else len(contexts)
    if ids is not None:
        require_different(ids, "actions", "must have different ids")
    positions = contexts is not None and (ids is None or ids == [str(row) for row in range(count)])
    names = None if positions else ids  # a position is nobody's own record
    if not request.excluded and request.baseline is None:
        _check_slots(slots, count)
        return DecisionInput(contexts, range(count), count, ids, names, groups, None, encoded, slots)
    places = {name: row for row, name in enumerate(ids or ())}
    several = isinstance(request.baseline, list)
    baseline = [
        _place(one, ids, places, count, place("baseline", *([index] if several else [])))
        for index, one in enumerate(_baseline(request))
    ]
    if not request.excluded:
        _check_slots(slots, count)
        by_slot = _in_slots(baseline, slots)
        return DecisionInput(contexts, range(count), count, ids, names, groups, by_slot, encoded, slots)
    excluded = {
        _place(one, ids, places, count, place("excluded", index))
        for index, one in enumerate(request.excluded)
    }
    rows = [row for row in range(count) if row not in excluded]
    require(bool(rows), "excluded", "must leave an action", f"{len(excluded)} of {count}")
    if not excluded.isdisjoint(baseline):
        raise InvalidInput("baseline must be none of the excluded actions")
    _check_slots(slots, len(rows))
    if not positions or slots is not ONE:  # rewards of several slots are by name
        names = [str(row) if ids is None else ids[row] for row in rows]
    return DecisionInput(
        contexts=None if contexts is None else contexts[rows],
        rows=rows,
        actions=count,
        ids=ids,
        names=names,
        groups=None if groups is None else [groups[row] for row in rows],
        baseline=_in_slots([rows.index(row) for row in baseline], slots),
        encoded=encoded,
        slots=slots,
    )


def _check_count(count: int, most: int) -> None:
    require(count <= most, "actions", f"must be at most {most} (max_actions)", count)


def _place(one: str | int, ids: list[str] | None, places: dict[str, int], count: int, where: str) -> int:
    """The row of an action: by id if actions have ids, else by number."""
    if ids is None:
        if not isinstance(one, int) or one >= count:
            text = f"must be a row of contexts, from 0 to {count - 1}"
            raise InvalidInput(f"{where} {text}, got {one if isinstance(one, int) else kind_of(one)}")
        return one
    if one not in places:
        raise InvalidInput(f"{where} must be the id of one of the {count} actions, got {one!r}")
    return places[str(one)]


class PlainDecisions(msgspec.Struct, frozen=True):
    """The task that makes decisions for contexts (B, K, d): `decide` for requests that have nothing else."""

    contexts: Array

    def __call__(self, agent: Agent) -> list[schemas.DecisionMade]:
        version = agent.model_version
        note, count = _noted(version), len(self.contexts)
        if count == 1:
            decisions = [agent.decide(self.contexts[0], note=note)]
        else:
            decisions = agent.decide_many(self.contexts, notes=[note] * count)
        answers = []
        for one in decisions:
            action, shares = one.action, one.shares
            answers.append(
                schemas.DecisionMade(one.id, action, None, shares[action], shares, version, note.mode)
            )
        return answers

    @property
    def kind(self) -> object:
        """Tasks for which this is the same can be done `together`."""
        return self.contexts.shape[1:]

    @property
    def work(self) -> int:
        """Multiplications: d² for each action."""
        return int(self.contexts.size * self.contexts.shape[-1])

    @staticmethod
    def together(agent: Agent, tasks: Sequence[PlainDecisions]) -> list[list[schemas.DecisionMade]]:
        """Take tasks of one kind in one call: the same decisions, or an error, and nothing has happened."""
        answers = iter(PlainDecisions(np.concatenate([task.contexts for task in tasks]))(agent))
        return [list(islice(answers, len(task.contexts))) for task in tasks]


@lru_cache(8)  # most decisions of a service have the same
def _noted(version: int) -> DecisionNote:
    return DecisionNote(model_version=version)


def decide(
    agent: Agent,
    inputs: Sequence[DecisionInput | AmongAll],
    keys: Sequence[str | None],
    digest: str | None,
    settings: Settings,
    *,
    batch: bool = False,
) -> list[schemas.DecisionMade]:
    """Make the decisions of one request; if the first key is taken, nothing has happened."""
    version = agent.model_version
    ready = of_each(
        inputs,
        lambda eligible: (
            eligible.among(agent.actions, agent.all_actions) if isinstance(eligible, AmongAll) else eligible
        ),
        batch=batch,
    )
    # A later one must not be refused after the first was made, and an agent does not see excluded actions.
    offered = frozenset(agent.actions)
    if offered and (batch or len(ready[0].rows) != ready[0].actions):
        of_each(ready, lambda eligible: _check_offered(eligible, offered), batch=batch)
    notes = [
        DecisionNote(
            key=key,
            digest=digest,
            groups=eligible.groups,
            mode=_draw_mode(settings),
            baseline=eligible.baseline,
            control_share=settings.control_share,
            model_version=version,
        )
        for eligible, key in zip(ready, keys, strict=True)
    ]
    answers = []
    for eligible, note, one in zip(ready, notes, _draw(agent, ready, notes), strict=True):
        weights, shown = one.weights, one.shown
        expected = [note.propensity(action, float(one.values[action]), weights) for action in shown]
        shares = _shares(eligible, one)
        answers.append(_answer(eligible, one.id, weights, shown, expected, shares, note.mode, version))
    return answers


def _draw(agent: Agent, ready: Sequence[DecisionInput], notes: Sequence[DecisionNote]) -> Iterable[Decision]:
    """Draw the actions; many with features in one call, which takes half of the time."""
    slots = ready[0].slots
    blocks = [
        eligible.contexts for eligible in ready if eligible.contexts is not None and eligible.slots is slots
    ]
    if len(blocks) == len(ready) > 1:
        return agent.decide_many(
            blocks, slots=slots, names=[eligible.names for eligible in ready], notes=notes
        )
    return [
        agent.decide(eligible.names, slots=eligible.slots, note=note)
        if eligible.contexts is None
        else agent.decide(eligible.contexts, slots=eligible.slots, names=eligible.names, note=note)
        for eligible, note in zip(ready, notes, strict=True)
    ]


def _check_offered(eligible: DecisionInput, offered: Collection[str]) -> None:
    """Refuse actions that the agent has not, or no longer offers, where they were declared."""
    for row, name in zip(eligible.rows, eligible.names or (), strict=False):
        if name not in offered:
            raise not_offered(row, name)


def _draw_mode(settings: Settings) -> str:
    """What chooses the action of one decision. It is stored with it, so it need not be repeatable."""
    if settings.mode == "shadow":
        return "shadow"
    return "control" if settings.control_share and random.random() < settings.control_share else "live"


def _shares(eligible: DecisionInput, decision: Decision) -> list[float]:
    """The shares of a decision in the request's terms.

    Actions without features have the same policy until the model learns, so it is encoded once: of 1 000
    numbers, that takes longer than the decision.
    """
    if eligible.contexts is None and len(eligible.rows) == eligible.actions:
        return cast("list[float]", _encoded(decision.exposure.tobytes()))
    return _of_all(eligible, decision.shares)


@lru_cache(maxsize=8)
def _encoded(policy: bytes) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(np.frombuffer(policy).tolist()))


def answer_of_stored(eligible: DecisionInput | AmongAll, stored: StoredDecision) -> schemas.DecisionMade:
    """The answer that was given to the same request before."""
    if isinstance(eligible, AmongAll):
        eligible = named(stored.names or [], eligible.slots)  # there may be others now
    slots: Sequence[StoredSlot] = stored.slots
    weights = tuple(slot.weight for slot in slots) if slots else ONE
    shown = [slot.action for slot in slots] if slots else [stored.action]
    expected = [slot.exposure for slot in slots] if slots else [stored.propensity]
    shares = _of_all(eligible, stored.policy.tolist())
    return _answer(eligible, stored.id, weights, shown, expected, shares, stored.mode, stored.model_version)


def _answer(
    eligible: DecisionInput,
    identity: str,
    weights: Weights,
    shown: Sequence[int],
    expected: Sequence[float],
    shares: list[float],
    mode: str,
    version: int,
) -> schemas.DecisionMade:
    """The answer in the request's terms: positions among all of its actions, excluded ones too.

    shown, expected: the actions in the order of slots, and the expected weights of their slots.
    """
    ids, rows = eligible.ids, eligible.rows
    all_ids = ids if eligible.contexts is None and ids is not None else UNSET
    if weights is ONE:
        place = rows[shown[0]]
        name = None if ids is None else ids[place]
        return schemas.DecisionMade(identity, place, name, expected[0], shares, version, mode, all_ids)
    actions = [
        schemas.ShownAction(place := rows[action], None if ids is None else ids[place], slot, weight, one)
        for slot, (action, weight, one) in enumerate(zip(shown, weights, expected, strict=True), 1)
    ]
    return schemas.DecisionMade(identity, None, None, None, None, version, mode, all_ids, actions, shares)


def _of_all(eligible: DecisionInput, shares: list[float]) -> list[float]:
    """The shares of all actions in the request; 0 for excluded ones."""
    if len(eligible.rows) == eligible.actions:
        return shares
    of_all = [0.0] * eligible.actions
    for row, share in zip(eligible.rows, shares, strict=True):
        of_all[row] = share
    return of_all


#: What has come for a decision: the reward of its action, or rewards by action.
RewardInput = float | dict[str, float | None]


def rewards_in(one: schemas.RewardOf | schemas.Reward) -> RewardInput:
    """The reward or the rewards in a request, which must have one of them."""
    if one.reward is UNSET and one.rewards is not UNSET:
        return one.rewards
    if one.reward is not UNSET and one.rewards is UNSET:
        return one.reward
    raise InvalidInput("either reward or rewards must be given")


def observe(agent: Agent, rewards: Mapping[str, RewardInput], persons: Mapping[str, str | None]) -> None:
    """Learn what has come for these decisions, all or none."""
    if len(rewards) == 1:
        ((identity, value),) = rewards.items()
        person = persons[identity]
        if isinstance(value, dict):
            agent.observe(identity, rewards=value, person=person)
        else:
            agent.observe(identity, reward=value, person=person)
    else:
        agent.observe_many(list(rewards), list(rewards.values()), _persons(rewards, persons))


def replace(agent: Agent, rewards: Mapping[str, RewardInput], persons: Mapping[str, str | None]) -> int:
    """Learn these rewards in the place of earlier ones, all or none; how many of them replaced none."""
    before = agent.observed
    agent.observe_many(list(rewards), list(rewards.values()), _persons(rewards, persons), replace=True)
    return agent.observed - before


def _persons(rewards: Iterable[str], persons: Mapping[str, str | None]) -> list[Any] | None:
    named = [persons[identity] for identity in rewards]
    return None if all(person is None for person in named) else named


def lacking(rewards: RewardInput, stored: StoredDecision) -> RewardInput | None:
    """What a decision lacks of what has come for it; it may have come before, but not otherwise."""
    if not isinstance(rewards, dict):
        if stored.slots:
            raise InvalidInput(f"rewards must be given: decision {stored.id} has several slots")
        return rewards if _lacks(rewards, stored) else None
    slots = {slot.name or str(slot.action): slot for slot in stored.slots}
    outcomes: Mapping[str, StoredSlot | StoredDecision] = slots or {stored.name or str(stored.action): stored}
    for action in rewards:
        require(
            action in outcomes, "rewards", f"must be of actions that were shown, {list(outcomes)}", action
        )
    return {action: reward for action, reward in rewards.items() if _lacks(reward, outcomes[action])} or None


def _lacks(reward: float | None, stored: StoredSlot | StoredDecision) -> bool:
    """Whether an outcome is still to come; refuse another than this one."""
    if stored.status == "pending":
        return True
    if stored.status != ("withdrawn" if reward is None else "rewarded"):
        what = "decision" if isinstance(stored, StoredDecision) else "action"
        raise ProblemError("conflict", f"The {what} is {stored.status} already.")
    if stored.reward != reward:
        what = "decision" if isinstance(stored, StoredDecision) else "action"
        raise ProblemError("conflict", f"The {what} has another reward already.")
    return False


def add_action(agent: Agent, name: str, most: int) -> None:
    """Offer a declared action from now on; one that is offered already changes nothing."""
    active = agent.actions
    if name not in active:
        _check_count(len(active) + 1, most)
        agent.add_actions(name)


def retire_action(agent: Agent, name: str) -> bool:
    """No longer offer an action; return whether there is one of that name, active or retired."""
    if name in agent.actions:
        agent.retire_actions(name)
    return name in agent.all_actions
