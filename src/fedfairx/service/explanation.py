"""Why the actions of a stored decision have their shares, by the model of that time.

θ, contexts and shares are stored with a decision; the covariance of the posterior and the own records of
names are not. If the model has learnt since, the agent's log is replayed up to the decision. What is found so
is used only if it gives the stored shares (`fairness/contributions.py`). Where it does not, as where a
private agent's past can't be repeated, uncertainty is known as a whole, and not by feature, and is not told
apart from what own records say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.knowledge import Knowledge
from fedfairx.agent.replay import Replay
from fedfairx.core.merit import Exponential
from fedfairx.core.own_record import CONTEXTS, RECORDS, REWARDS
from fedfairx.core.rules import RULES
from fedfairx.core.slates import ONE, Weights
from fedfairx.fairness.contributions import (
    MOST_SPLIT,
    Contributions,
    Spread,
    by_owner,
    changes,
    contributions,
    log_merits,
)
from fedfairx.service import schemas, serializers
from fedfairx.service.share_sentence import EXPECTED, OWN_RECORD, share_sentence
from fedfairx.storage.arrivals import arrivals
from fedfairx.storage.records import StoredDecision
from fedfairx.util.arrays import Array, Coordinates

if TYPE_CHECKING:
    from fedfairx.service.served_agent import ServedAgent

EXPECTED_MERIT = RULES[0]
THOMPSON = "thompson"  # whose drawn θ and own numbers are in no agent
NEGLIGIBLE = 1e-12  # parts up to this are rounding


Compared = tuple[float | str | bool | None, float | None]


class OwnThen(NamedTuple):
    """What was known of each of the K names beside features: u given θ̂, and how far it varies with θ.

    tallies: (K, d + 2), see `core.own_record`; shares: (K,) k = 1/(n + ρ); effects: (K,) the means of u.
    names: (K,) numbers, the same for the same name.
    """

    tallies: Array
    shares: Array
    effects: Array
    names: Coordinates

    @classmethod
    def of(cls, agent: Agent, stored: StoredDecision) -> OwnThen | None:
        """By an agent as it was then; None if names play no part."""
        names = stored.names
        found = None if names is None else agent.tallies_of(names)
        if found is None or names is None:
            return None
        (tallies, ratio), theta = found, agent.estimate
        shares = 1.0 / (tallies[:, RECORDS] + ratio)
        effects = shares * (tallies[:, REWARDS] - tallies[:, CONTEXTS:] @ theta)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return cls(tallies, shares, effects, np.array([numbers[name] for name in names], dtype=np.int64))

    def white(self, contexts: Array) -> Array:
        """Contexts (K, d) less k s."""
        return contexts - self.shares[:, None] * self.tallies[:, CONTEXTS : CONTEXTS + contexts.shape[1]]

    def joint(self, covariance: Array, variance: float) -> Array:
        """(d + N, d + N) the covariance of θ and of u of the N names, for σ²V⁻¹ (d, d) and σ²."""
        size, count = len(covariance), int(self.names.max()) + 1
        pulls, own = np.zeros((size, count)), np.zeros(count)
        pulls[:, self.names] = (self.shares[:, None] * self.tallies[:, CONTEXTS : CONTEXTS + size]).T
        own[self.names] = self.shares
        across = -covariance @ pulls
        return np.block([[covariance, across], [across.T, variance * np.diag(own) - pulls.T @ across]])


class DifferingFeatures(NamedTuple):
    """The features in which the K actions of a decision differ, as a caller has them, and own records.

    own: what was known of names then; None if that is not known.
    effects: (K,) what own records add to the expected reward: if `own` is None, together with uncertainty, as
        shares say. None if they play no part.
    """

    names: list[str]
    values: list[list[Any]]  # of each feature, K; empty of a product
    alike: list[str]
    contexts: Array  # (K, d)
    theta: Array  # (d,)
    owners: Coordinates  # (d,) the number of each column's feature, -1 for what is alike
    own: OwnThen | None = None
    effects: Array | None = None

    def means(self) -> Array:
        """Each feature's sum of θ_j x_j, and what own records add (K, F)."""
        columns = by_owner(self.contexts * self.theta, self.owners, len(self.names))
        if self.effects is not None:
            columns[:, -1] += self.effects
        return columns

    def spread(self, covariance: Array, variance: float) -> Spread:
        """What splits uncertainty by feature, for σ²V⁻¹ and σ² of that time."""
        covariance = covariance[: self.theta.size, : self.theta.size]  # columns were appended since
        own, arms = self.own, len(self.contexts)
        if own is None:
            return Spread(self.contexts, covariance, self.owners)
        if len(self.names) == 1 or arms > MOST_SPLIT:  # only variances count
            rows = own.white(self.contexts)
            sds = np.sqrt((rows * (rows @ covariance)).sum(axis=1) + variance * own.shares)
            return Spread(sds[:, None], np.eye(1), np.zeros(1, dtype=np.int64))
        columns = np.eye(int(own.names.max()) + 1)[own.names]
        last = -1 if self.effects is None else len(self.names) - 1
        owners = np.concatenate([self.owners, np.full(columns.shape[1], last, dtype=np.int64)])
        return Spread(np.hstack([self.contexts, columns]), own.joint(covariance, variance), owners)

    def compared(self) -> list[list[Compared]]:
        """Each feature of every action, with the mean of the others or, of a level, their share with it."""
        arms = len(self.contexts)
        table: list[list[Compared]] = []
        for name, values in zip(self.names, self.values, strict=True):
            if not values or arms == 1 or name == OWN_RECORD:
                table.append([(each, None) for each in values or [None] * arms])
            elif isinstance(values[0], float):
                total = math.fsum(values)
                table.append([(own, (total - own) / (arms - 1)) for own in values])
            else:
                times = Counter(values)
                table.append([(own, (times[own] - 1) / (arms - 1)) for own in values])
        return table


def described(served: ServedAgent, stored: StoredDecision) -> DifferingFeatures:
    """What the actions of a decision differ in, but for own records.

    A product belongs to the one of its features in which actions differ; if they differ in both, it counts as
    a feature of its own.
    """
    theta, schema, contexts = stored.theta, served.agent.schema, stored.contexts
    if served.featureless:
        rewards, owner = contexts @ theta, np.zeros(theta.size, dtype=np.int64)
        return DifferingFeatures([EXPECTED], [rewards.tolist()], [], contexts, theta, owner)
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


def with_own(features: DifferingFeatures, own: OwnThen | None) -> DifferingFeatures:
    """The features, and what own records add, of which this was known then; as they are without any."""
    if own is None:
        return features
    if features.names == [EXPECTED]:
        rewards = features.contexts @ features.theta + own.effects
        return features._replace(values=[rewards.tolist()], own=own, effects=own.effects)
    counts = own.tallies[:, RECORDS].tolist()
    if not any(counts):  # nobody has one yet
        return features._replace(own=own)
    return _with_row(features, counts)._replace(own=own, effects=own.effects)


def _inferred(agent: Agent, stored: StoredDecision, features: DifferingFeatures) -> DifferingFeatures:
    """The features, and what own records and uncertainty add together, as shares say."""
    merit, weights = agent.merit, weights_of(stored)
    if not isinstance(merit, Exponential):
        return features
    logs = log_merits(stored.policy, agent.options.minimum_share, weights) / merit.steepness
    effects = logs - features.contexts @ features.theta
    if not np.isfinite(effects).all():
        return features
    if features.names == [EXPECTED]:
        return features._replace(values=[[]], effects=effects)
    return _with_row(features, [])._replace(effects=effects)


def _with_row(features: DifferingFeatures, values: list[Any]) -> DifferingFeatures:
    return features._replace(names=[*features.names, OWN_RECORD], values=[*features.values, values])


def explain(served: ServedAgent, stored: StoredDecision) -> schemas.Explanation:
    """Explain a decision; for admins, since values and contributions tell contexts."""
    agent = served.agent
    features, parts = parts_of(agent, stored, described(served, stored), then=_then(agent, stored))
    weights = weights_of(stored)
    whole, names, arms, values = sum(weights), stored.names, stored.policy.size, features.compared()
    known, records = known_then(agent, stored), features.own
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
                record=None if records is None else _record(records, action),
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
        statement=_statement(agent, parts, features),
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


def _record(own: OwnThen, action: int) -> schemas.OwnRecordCounts:
    """How many rewards an action's own record had, and how far it counted."""
    count = float(own.tallies[action, RECORDS])
    return schemas.OwnRecordCounts(count, count * float(own.shares[action]))


def parts_of(
    agent: Agent,
    stored: StoredDecision,
    features: DifferingFeatures,
    *,
    then: Iterable[Agent],
    split: bool = True,
) -> tuple[DifferingFeatures, Contributions]:
    """The features with own records, and their parts of log merit.

    then: the agent, as it may have been then.
    split: whether to split uncertainty by feature too, by the covariance of that time.
    """
    expecting = agent.rule == EXPECTED_MERIT
    more: dict[str, Any] = {
        "expecting": expecting,
        "minimum_share": agent.options.minimum_share,
        "weights": weights_of(stored),
    }
    exponential, named = isinstance(agent.merit, Exponential), by_name(agent, stored)
    whole = features
    if (expecting and exponential and split) or (named and agent.rule != THOMPSON):
        for each in then:
            theta, size = each.estimate, stored.theta.size
            if not np.allclose(theta[:size], stored.theta, rtol=1e-9, atol=1e-12):
                continue
            whole = with_own(features, OwnThen.of(each, stored) if named else None)
            if not (expecting and exponential and split):
                return whole, contributions(whole.means(), stored.policy, agent.merit, **more)
            spread = whole.spread(each.covariance, each.noise_sd**2)
            parts = contributions(whole.means(), stored.policy, agent.merit, spread=spread, **more)
            if parts.by_feature is not None:
                return whole, parts
    if named and whole.own is None:
        whole = _inferred(agent, stored, features)
    return whole, contributions(whole.means(), stored.policy, agent.merit, **more)


def by_name(agent: Agent, stored: StoredDecision) -> bool:
    """Whether own records may have played a part in a decision."""
    return bool(agent.names) and stored.names is not None


def _then(agent: Agent, stored: StoredDecision) -> Iterator[Agent]:
    """The agent as it is now, and as it was before a decision."""
    yield agent
    again = Replay(agent, stored.seq).before(stored.seq)
    if again is not None:
        yield again


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


def _statement(agent: Agent, parts: Contributions, features: DifferingFeatures) -> str:
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
    known = features.effects is None or features.own is not None
    if known and parts.uncertainty is not None and parts.by_feature is None and parts.features.shape[1] > 1:
        text += (
            " What was not known is not split by feature: the model of that time can't be computed again, or "
            "there are more than 2000 actions."
        )
    if features.effects is not None and features.own is None and agent.rule == EXPECTED_MERIT:
        text += (
            " The model of that time can't be computed again: what was not known yet counts with the "
            f"{features.names[-1]}."
        )
    if not np.isfinite(parts.log_merit).all():
        text += " Slots or the minimum share hide what a feature changed in the share: changes are of merit."
    return text
