"""Compiling in advance what an agent needs: a request must not wait for it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedfairx.core.json_numbers import read_matrices
from fedfairx.core.slates import ONE, as_weights
from fedfairx.privacy import Bounds, SimulatedNoise, private

_warmed: set[tuple[object, ...]] = set()  # kinds of agents that are compiled


def warm(agent: Any) -> None:
    """Compile what this agent's calls need, with two agents of its kind that are thrown away.

    Also what reads contexts from JSON, for a service. From a filled cache it takes a moment; compiling would
    stop all requests for seconds.
    """
    if is_warm(agent):
        return
    options, slots = agent.options, as_weights(agent.options.slots)
    names = [str(number) for number in range(max(2, len(slots)))]
    arms: dict[str, Any] = {"dimension": agent.dimension} if agent.dimension else {"actions": names}
    noisy = partial(
        private,
        agent.dimension,
        intercept=agent.columns > agent.dimension,
        epsilon=1.0,
        releases=4,
        noise=SimulatedNoise(0),
        bounds=Bounds(slots=slots),
        decide_from=agent.privatizer.guarantee.decide_from,
    )
    one, other = (
        type(agent)(**arms, options=options, privatizer=noisy() if agent.private else None) for _ in range(2)
    )
    contexts = np.zeros((len(names), agent.dimension)) if agent.dimension else None
    for labels in (None, names, names) if contexts is not None else (None,):
        for weights in {slots} if agent.private else {slots, ONE, ONE * 2}:
            together = one.decide_many([contexts], slots=weights, names=[labels])
            for decision in (one.decide(contexts, slots=weights, names=labels), *together):
                one.observe(decision, rewards=[0.0] * len(weights))
    assert one.posterior.gram.size
    read_matrices([b"[[0]]"])
    one.absorb({one.name: one.release(), other.name: other.release()})
    _warmed.add(_kind(agent))


def is_warm(agent: Any) -> bool:
    """Whether an agent of this kind was compiled by this process."""
    return _kind(agent) in _warmed


def _kind(agent: Any) -> tuple[object, ...]:
    slots, half_life = as_weights(agent.options.slots), agent.options.half_life
    return agent.rule, type(agent.merit), bool(agent.dimension), agent.private, slots, half_life
