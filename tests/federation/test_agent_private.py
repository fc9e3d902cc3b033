"""A private agent: its name, its odd numbers, no copies of it, and one run after another."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import InvalidInput, PrivacyError
from fedfairx.privacy import Bounds, Centring, KeyedNoise, StreamPrivatizer, calibrate, private

D = 3


def contexts(rng: np.random.Generator, arms: int = 5) -> np.ndarray:
    return rng.random((arms, D)) / np.sqrt(D)


def taught(agent: ffx.Agent, rounds: int) -> ffx.Agent:
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        agent.observe(agent.decide(contexts(rng)), reward=float(rng.random()))
    return agent


def keyed(name: str, **more: Any) -> StreamPrivatizer:
    mechanism = calibrate("blt", epsilon=4.0, delta=0.1, releases=20, sensitivity=Bounds().sensitivity)
    return StreamPrivatizer(D, mechanism=mechanism, noise=KeyedNoise(bytes(32), agent=name, run="r"), **more)


def test_a_private_agent_bears_the_name_of_its_noise() -> None:
    assert ffx.Agent(D, privatizer=keyed("clinic-3")).name == "clinic-3"
    assert ffx.Agent(D, privatizer=keyed("clinic-3"), name="clinic-3").name == "clinic-3"
    assert ffx.Agent(D).name.startswith("agent-")
    centred = private(
        D,
        epsilon=1.0,
        releases=4,
        noise=KeyedNoise(bytes(32), agent="clinic-3", run="r"),
        centring=Centring.unit_box(D),
    )
    for privatizer in (keyed("clinic-3"), centred):
        with pytest.raises(
            InvalidInput, match="name must be the one that its noise was made for, 'clinic-3'"
        ):
            ffx.Agent(D, privatizer=privatizer, name="clinic-4")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_private_agent_is_not_copied(copied: Callable[[object], object]) -> None:
    agent = ffx.Agent(D, privatizer=keyed("a"))
    if copied is copy.copy:  # the copy shares its privatizer, which counts for both
        assert copied(agent).privatizer is agent.privatizer
        return
    with pytest.raises(PrivacyError, match="can't be copied or pickled"):
        copied(agent)


@pytest.mark.parametrize("decide_from", ["released", "released+local", "own+released"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e200, -(10**400)])
def test_a_private_agent_refuses_no_number(decide_from: str, odd: float) -> None:
    """A refusal would show in the public count. It is clipped, and nothing is spoilt."""
    agent = ffx.Agent(D, privatizer=keyed("a", decide_from=decide_from), seed=0)
    rng = np.random.default_rng(0)
    agent.observe(agent.decide(contexts(rng)), reward=odd)
    agent.observe_many([agent.decide(contexts(rng))], [odd])
    release = agent.release()
    assert release.count == 2
    assert agent.privatizer.clipped == 2
    assert np.isfinite(release.packed).all()
    agent.absorb({agent.name: release})
    assert np.isfinite(agent.decide(contexts(rng)).policy).all()
    assert np.isfinite(agent.estimate).all()
    with pytest.raises(InvalidInput, match="reward must be a number"):
        agent.observe(agent.decide(contexts(rng)), reward="much")  # type: ignore[arg-type]


def test_a_new_run_goes_on_with_what_was_learnt_and_adds_its_cost() -> None:
    agent = taught(ffx.Agent(D, privatizer=keyed("a"), seed=0), 30)
    spent = agent.privatizer.guarantee.mu
    agent.begin_run(keyed("a"))
    assert agent.privatizer.guarantee.mu == spent  # nothing was sent before
    last = agent.release()
    agent.absorb({"a": last})
    agent.begin_run(keyed("a"))
    assert agent.privatizer.guarantee.mu == pytest.approx(math.sqrt(2) * spent)
    before = agent.estimate
    taught(agent, 12)
    assert (agent.estimate == before).all()
    following = agent.release()
    assert (following.number, following.count) == (2, last.count + 12)
    agent.absorb({"a": following})
    assert (agent.estimate != before).any()
    with pytest.raises(InvalidInput, match="privatizer must be private and decide from 'released'"):
        agent.begin_run(keyed("a", decide_from="own+released"))
