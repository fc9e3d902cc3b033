"""Why the actions of a stored decision have their shares, by the model of that time.

θ, contexts and shares are stored with a decision. So nothing is replayed, and all is of that time: today's
covariance is used only where it gives the stored shares (`fairness/contributions.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedfairx.core.rules import RULES
from fedfairx.core.slates import ONE
from fedfairx.fairness.contributions import Contributions, contributions
from fedfairx.service import schemas, serializers
from fedfairx.storage.records import StoredDecision
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    from fedfairx.service.served_agent import ServedAgent

EXPECTED_MERIT = RULES[0]


def explain(served: ServedAgent, stored: StoredDecision) -> schemas.Explanation:
    """Explain a decision; for admins, since contributions tell contexts."""
    agent = served.agent
    expecting = agent.rule == EXPECTED_MERIT
    columns, means, variances = _parts(served, stored, agent.covariance if expecting else None)
    found = contributions(
        means,
        stored.policy,
        agent.merit,
        variances=variances,
        expecting=expecting,
        minimum_share=agent.options.minimum_share,
        weights=tuple(slot.weight for slot in stored.slots) or ONE,
    )
    names = stored.names
    return schemas.Explanation(
        decision_id=stored.id,
        model_version=stored.model_version,
        merit=repr(agent.merit),
        rule=agent.rule,
        unit="log merit" if found.adding else "reward",
        columns=columns,
        actions=[
            schemas.ActionExplained(
                action=row,
                action_id=None if names is None else names[row],
                share=float(stored.policy[row]),
                log_merit=_number(found.log_merit[row]),
                contributions=found.features[row].tolist(),
                uncertainty=None if found.uncertainty is None else _number(found.uncertainty[row]),
                uncertainties=None if found.by_feature is None else found.by_feature[row].tolist(),
            )
            for row in range(len(means))
        ],
        statement=_statement(found, expecting=expecting),
    )


def _parts(
    served: ServedAgent, stored: StoredDecision, covariance: Array | None
) -> tuple[list[str], Array, Array | None]:
    """What each contribution is of, θ_j x_j (K, d), and x_j (Σx)_j; Σ may have grown since by new actions."""
    theta = stored.theta
    if stored.featureless:
        places = np.frombuffer(stored.packed, "<i4")
        spread = None if covariance is None else np.diagonal(covariance)[places][:, None]
        return ["expected reward"], theta[places][:, None], spread
    contexts, columns = stored.contexts, serializers.columns(served)[: theta.size]
    if covariance is not None:
        covariance = covariance[: theta.size, : theta.size]
    return columns, contexts * theta, None if covariance is None else contexts * (contexts @ covariance)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _statement(found: Contributions, *, expecting: bool) -> str:
    """How to read an explanation."""
    average = "Numbers are differences from the average action of this decision, by the model of that time."
    if not found.adding:
        return (
            f"{average} Contributions add up to the expected reward. Merit is no exponential function of it, "
            "so log merit is no sum over features."
        )
    added = " and uncertainty" if expecting else ""
    text = f"{average} Contributions{added} add up to log merit, and a share is in proportion to merit."
    if expecting and found.by_feature is None and found.features.shape[1] > 1:
        text += " The model has learnt since, so the part of uncertainty is not split by feature."
    if not np.isfinite(found.log_merit).all():
        text += " Slots or the minimum share hide how large the part of uncertainty is."
    return text
