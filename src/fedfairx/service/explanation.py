"""Why the actions of a stored decision have their shares, by the model of that time.

θ, contexts and shares are stored with a decision; the covariance of the posterior is not. If the model has
learnt since, the rewards that had come before the decision are learnt again, from the log. A covariance is
used only if it gives the stored shares (`fairness/contributions.py`). Where none does, as after messages of a
federation, uncertainty is known as a whole, and not by feature.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.knowledge import Knowledge
from fedfairx.core.merit import Exponential
from fedfairx.core.rules import RULES
from fedfairx.core.slates import ONE, Weights
from fedfairx.errors import InvalidInput
from fedfairx.fairness.contributions import Contributions, Spread, by_owner, changes, contributions
from fedfairx.privacy import NonPrivateSums
from fedfairx.service import schemas, serializers
from fedfairx.service.share_sentence import EXPECTED, share_sentence
from fedfairx.storage.arrivals import arrivals
from fedfairx.storage.queries import learnt, records
from fedfairx.storage.records import StoredDecision
from fedfairx.util.arrays import Array, Coordinates

if TYPE_CHECKING:
    from fedfairx.service.served_agent import ServedAgent

EXPECTED_MERIT = RULES[0]
MOST_REWARDS = 20_000  # that are learnt again for one decision
NEGLIGIBLE = 1e-12  # parts up to this are rounding


Compared = tuple[float | str | bool | None, float | None]


class DifferingFeatures(NamedTuple):
    """The features in which the K actions of a decision differ, as a caller has them."""

    names: list[str]
    values: list[list[Any]]  # of each feature, K; empty of a product
    alike: list[str]
    contexts: Array  # (K, d)
    theta: Array  # (d,)
    owners: Coordinates  # (d,) the number of each column's feature, -1 for what is alike

    def means(self) -> Array:
        """Each feature's sum of θ_j x_j (K, F)."""
        return by_owner(self.contexts * self.theta, self.owners, len(self.names))

    def compared(self) -> list[list[Compared]]:
        """Each feature of every action, with the mean of the others or, of a level, their share with it."""
        arms = len(self.contexts)
        table: list[list[Compared]] = []
        for values in self.values:
            if not values or arms == 1:
                table.append([(each, None) for each in values or [None] * arms])
            elif isinstance(values[0], float):
                total = math.fsum(values)
                table.append([(own, (total - own) / (arms - 1)) for own in values])
            else:
                times = Counter(values)
                table.append([(own, (times[own] - 1) / (arms - 1)) for own in values])
        return table


def described(served: ServedAgent, stored: StoredDecision) -> DifferingFeatures:
    """What the actions of a decision differ in.

    A product belongs to the one of its features in which actions differ; if they differ in both, it counts as
    a feature of its own.
    """
    theta, schema = stored.theta, served.agent.schema
    if stored.featureless:
        rewards = theta[np.frombuffer(stored.packed, "<i4")]
        owner = np.zeros(1, dtype=np.int64)
        return DifferingFeatures([EXPECTED], [rewards.tolist()], [], rewards[:, None], np.ones(1), owner)
    contexts = stored.contexts
    if schema is None:
        columns = serializers.columns(served)
        values: dict[str, list[Any]] = dict(zip(columns, contexts.T.tolist(), strict=True))
        parts: Sequence[tuple[str, ...]] = [(name,) for name in columns]
    else:
        values, parts = schema.decode(contexts), schema.column_features[: theta.size]
    differing = [name for name, each in values.items() if len(set(each)) > 1]
    terms = [tuple(name for name in dict.fromkeys(part) if name in differing) for part in parts]
    names = dict.fromkeys([*((name,) for name in differing), *filter(None, terms)])
    numbers = {term: number for number, term in enumerate(names)} | {(): -1}
    return DifferingFeatures(
        [" × ".join(term) for term in names],
        [values[term[0]] if len(term) == 1 else [] for term in names],
        [name for name in values if name not in differing and name != "intercept"],
        contexts,
        theta,
        np.array([numbers[term] for term in terms], dtype=np.int64),
    )


def explain(served: ServedAgent, stored: StoredDecision) -> schemas.Explanation:
    """Explain a decision; for admins, since values and contributions tell contexts."""
    agent, features = served.agent, described(served, stored)
    parts, weights = parts_of(agent, stored, features), weights_of(stored)
    whole, names, arms, values = sum(weights), stored.names, stored.policy.size, features.compared()
    known = known_then(agent, stored)
    actions = []
    for action in range(arms):
        own = [(name, *each[action]) for name, each in zip(features.names, values, strict=True)]
        share, (rows, unsure) = float(stored.policy[action]), _rows(agent, own, parts, action, weights)
        text = share_sentence(
            share,
            whole / arms,
            rows,
            whole=whole,
            arms=arms,
            unit=unit_of(parts),
            uncertainty=unsure if parts.by_feature is None else None,
            of=f"this decision's {len(weights)} slots" if len(weights) > 1 else "this decision",
            little=known if known.little else None,
        )
        actions.append(
            schemas.ActionExplained(
                action=action,
                action_id=None if names is None else names[action],
                share=share,
                sentence=text,
                log_merit=number_or_none(parts.log_merit[action]),
                features=rows,
                uncertainty=None if parts.uncertainty is None else number_or_none(parts.uncertainty[action]),
                uncertainty_change=unsure,
            )
        )
    return schemas.Explanation(
        decision_id=stored.id,
        model_version=stored.model_version,
        merit=repr(agent.merit),
        rule=agent.rule,
        unit=unit_of(parts),
        average=whole / arms,
        alike=features.alike,
        knowledge=serializers.knowledge(known),
        actions=actions,
        statement=_statement(agent, parts),
    )


def known_then(agent: Agent, stored: StoredDecision) -> Knowledge:
    """What the shares of a decision rested on; of others' messages, as now."""
    return agent.knowledge.when(agent.observed - arrivals(agent.journal, first=stored.seq).size)


def weights_of(stored: StoredDecision) -> Weights:
    """The weights of a decision's slots."""
    return tuple(slot.weight for slot in stored.slots) or ONE


def unit_of(parts: Contributions) -> str:
    """What parts are of."""
    return "log merit" if parts.adding else "reward"


def number_or_none(value: float) -> float | None:
    """A number for JSON, without what rounding leaves of 0."""
    return (0.0 if abs(value) < NEGLIGIBLE else float(value)) if math.isfinite(value) else None


def parts_of(
    agent: Agent, stored: StoredDecision, features: DifferingFeatures, *, again: bool = True
) -> Contributions:
    """The parts of log merit, split by feature as far as the covariance of that time is known.

    again: whether to learn rewards again for it.
    """
    expecting = agent.rule == EXPECTED_MERIT
    more: dict[str, Any] = {
        "expecting": expecting,
        "minimum_share": agent.options.minimum_share,
        "weights": weights_of(stored),
    }
    means = features.means()
    split = expecting and isinstance(agent.merit, Exponential) and again
    for covariance in _covariances(agent, stored) if split else ():
        if stored.featureless:  # unit vectors: only variances count
            sds = np.sqrt(np.diagonal(covariance)[np.frombuffer(stored.packed, "<i4")])
            spread = Spread(sds[:, None], np.eye(1), features.owners)
        else:
            size = stored.theta.size  # columns that were appended since have no part in it
            spread = Spread(features.contexts, covariance[:size, :size], features.owners)
        parts = contributions(means, stored.policy, agent.merit, spread=spread, **more)
        if parts.by_feature is not None:
            return parts
    return contributions(means, stored.policy, agent.merit, **more)


def _covariances(agent: Agent, stored: StoredDecision) -> Iterator[Array]:
    """Covariances that may be those of a decision: today's, and that after the rewards before it."""
    yield agent.covariance
    try:
        before = None if agent.private or agent.held else _before(agent, stored.seq)
    except InvalidInput:  # a reward that is refused now
        return
    if before is not None:
        yield before.covariance


def _before(agent: Agent, end: int) -> Agent | None:
    """An agent that has learnt all rewards that came before this step; None if they are too many."""
    names, journal = agent.all_actions, agent.journal
    if names:
        again = Agent(actions=names, options=agent.options)
    elif agent.schema is not None:
        again = Agent(schema=agent.schema, options=agent.options)
    else:
        sums = NonPrivateSums(agent.columns, constant=agent.constant)
        again = Agent(agent.dimension, options=agent.options, privatizer=sums)
    for _, rows, weights, rewards in learnt(journal, first=0, end=end):
        if again.observed + len(rewards) > MOST_REWARDS:
            return None
        wide = np.zeros((len(rows), agent.columns))
        wide[:, : rows.shape[1]] = rows
        contexts: Any = [names[int(place)] for place in rows[:, 0]] if names else wide
        again.learn(contexts, rewards, weights=weights[:, 0])
    for _, rows, rewards in records(journal, agent.columns, first=0, end=end):
        if again.observed + len(rewards) > MOST_REWARDS:
            return None
        if names:  # unit vectors, times the weights of slots
            contexts = [names[place] for place in rows.argmax(axis=1)]
            again.learn(contexts, rewards, weights=rows.max(axis=1))
        else:
            again.learn(rows, rewards)
    return again


def _rows(
    agent: Agent,
    own: Sequence[tuple[str, float | str | bool | None, float | None]],
    parts: Contributions,
    action: int,
    weights: Weights,
) -> tuple[list[schemas.FeatureExplained], float | None]:
    """What each feature adds to the share of an action, and what all that is not known yet changes in it.

    own: of each feature its name, the value of the action, and the mean of the others.
    """
    count, least = len(own), agent.options.minimum_share
    unsure = None if parts.by_feature is None else parts.by_feature[action]
    whole = 0.0 if parts.uncertainty is None else parts.uncertainty[action]
    pieces = np.array([*parts.features[action], *(np.zeros(count) if unsure is None else unsure), whole])
    change: list[float | None] = [None] * pieces.size
    if parts.adding and np.isfinite(parts.log_merit).all():
        each = changes(parts.log_merit, action, pieces, minimum_share=least, weights=weights)
        change = [number_or_none(one) for one in each.tolist()]
    numbers = [number_or_none(one) for one in pieces.tolist()]
    rows = [
        schemas.FeatureExplained(
            feature=name,
            value=value,
            others=others,
            contribution=numbers[number] or 0.0,
            change=change[number],
            uncertainty=None if unsure is None else numbers[count + number],
            uncertainty_change=None if unsure is None else change[count + number],
        )
        for number, (name, value, others) in enumerate(own)
    ]
    return rows, None if parts.uncertainty is None else change[-1]


def _statement(agent: Agent, parts: Contributions) -> str:
    """How to read an explanation."""
    text = "Each action is compared with the others of this decision, by the model of that time."
    if agent.rule not in (EXPECTED_MERIT, "greedy"):
        kind = {"thompson": "drew at random", "optimism": "hoped for"}[agent.rule]
        text += f" The model is the parameter that the rule {agent.rule} {kind} for this decision."
    if not parts.adding:
        return (
            f"{text} Contributions add up to the expected reward. Merit is no exponential function of it, so "
            "it is not said what a feature changes in the share."
        )
    text += (
        " A feature raised a share by a third if the share would be 3/4 of it with that feature at the mean "
        "of the others. Changes of several features multiply, roughly."
    )
    if parts.uncertainty is not None and parts.by_feature is None and parts.features.shape[1] > 1:
        text += (
            " What was not known is not split by feature: the model of that time can't be computed again, or "
            "there are more than 2000 actions."
        )
    if not np.isfinite(parts.log_merit).all():
        text += " Slots or the minimum share hide what a feature changed in the share: changes are of merit."
    return text
