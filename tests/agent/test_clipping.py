"""An owner hears of clipping once, when it is too much, and of no data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedfairx as ffx
from federation_helpers import D, contexts, private_agent
from fedfairx.errors import ClippingWarning
from fedfairx.privacy import Centring, SimulatedNoise, private


def rewarded(agent: ffx.Agent, rewards: list[float], *, at_once: bool = False) -> None:
    rng = np.random.default_rng(0)
    decisions = [agent.decide(contexts(rng)) for _ in rewards]
    if at_once:
        agent.observe_many(decisions, rewards)
        return
    for decision, reward in zip(decisions, rewards, strict=True):
        agent.observe(decision, reward=reward)


CENTRED = {"centring": Centring.unit_box(D)}


@pytest.mark.parametrize("more", [{}, CENTRED], ids=["around zero", "centred"])
@pytest.mark.parametrize("at_once", [False, True])
def test_an_owner_is_told_once_that_too_many_records_are_clipped(more: dict, at_once: bool) -> None:
    noise = SimulatedNoise(0)
    agent = ffx.Agent(
        D, privatizer=private(D, epsilon=2.0, delta=0.1, releases=5, noise=noise, intercept=True, **more)
    )
    secret = 1.7310585786300049  # no larger than is expected of rewards
    with pytest.warns(ClippingWarning, match="2 of 100 records were clipped") as told:
        rewarded(agent, [0.5] * 98 + [secret] * 2, at_once=at_once)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert "1.7" not in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rewarded(agent, [secret] * 50)  # said before


@pytest.mark.parametrize("rewards", [[0.5] * 99 + [9.0], [9.0] * 99, [0.5] * 300])
def test_few_clipped_records_are_nothing_to_speak_of(rewards: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClippingWarning)
        rewarded(private_agent(), rewards)
        rewarded(ffx.Agent(D), [9.0] * 200)  # nothing is clipped without a privatizer


def test_a_warning_made_an_error_loses_no_record() -> None:
    agent = private_agent("released+local")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ClippingWarning):
            rewarded(agent, [9.0] * 150, at_once=True)
    assert agent.pending == 0
    assert agent.release().count == 150


def test_records_of_an_earlier_life_are_not_counted() -> None:
    noise = SimulatedNoise(0)
    privatizer = private(D, epsilon=2.0, delta=0.1, releases=5, noise=noise, intercept=True)
    rewarded(ffx.Agent(D, privatizer=privatizer, seed=0), [9.0] * 90)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        later = ffx.Agent(D, privatizer=privatizer, seed=0)
        rewarded(later, [0.5] * 200)
