"""A private agent: its name, its odd numbers, no copies of it, and one run after another."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import BudgetExhausted, ClippingWarning, InvalidInput, MessageRefused, PrivacyError
from fedfairx.privacy import (
    Bounds,
    Centring,
    KeyedNoise,
    NonPrivateSums,
    SimulatedNoise,
    StreamPrivatizer,
    calibrate,
    private,
)
from fedfairx.privacy.budget import INTERCEPT

D = 3
BOUNDS = Bounds(constant=INTERCEPT)


def contexts(rng: np.random.Generator, arms: int = 5) -> np.ndarray:
    return rng.random((arms, D)) / np.sqrt(D)


def taught(agent: ffx.Agent, rounds: int) -> ffx.Agent:
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        agent.observe(agent.decide(contexts(rng)), reward=float(rng.random()))
    return agent


def keyed(
    name: str, dimension: int = D, releases: int = 20, *, intercept: bool = True, **more: Any
) -> StreamPrivatizer:
    bounds = BOUNDS if intercept else Bounds()
    given = {"bounds": bounds, "noise": KeyedNoise(bytes(32), agent=name, run="r")} | more
    sensitivity = given["bounds"].sensitivity
    mechanism = calibrate("blt", epsilon=4.0, delta=0.1, releases=releases, sensitivity=sensitivity)
    return StreamPrivatizer(dimension + intercept, mechanism=mechanism, **given)


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
        intercept=True,
    )
    for privatizer in (keyed("clinic-3"), centred):
        with pytest.raises(
            InvalidInput, match="name must be the one that its noise was made for, 'clinic-3'"
        ):
            ffx.Agent(D, privatizer=privatizer, name="clinic-4")


def test_agents_that_centre_elsewhere_refuse_each_other() -> None:
    """The point moves and the sensitivity stays: the noise in a release is another all the same."""
    box = Centring.unit_box(D)
    agents = {}
    for name, centring in (("a", box), ("b", replace(box, context=(0.0,) * D)), ("c", box)):
        noise = KeyedNoise(bytes(32), agent=name, run="r")
        made = private(D, epsilon=1.0, releases=4, noise=noise, centring=centring, intercept=True)
        agents[name] = ffx.Agent(D, privatizer=made)
    with pytest.raises(MessageRefused, match="release of 'b' was made by another mechanism"):
        agents["a"].absorb({"b": agents["b"].release()})
    with pytest.raises(MessageRefused, match="release of 'a' was made by another mechanism"):
        agents["b"].absorb({"a": agents["a"].release()})
    agents["a"].absorb({"c": agents["c"].release()})
    assert agents["a"].held.keys() == {"a", "c"}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_private_agent_is_not_copied(copied: Callable[[object], object]) -> None:
    agent = ffx.Agent(D, privatizer=keyed("a"))
    with pytest.raises(PrivacyError, match="is private, and can't be saved or copied"):
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
    def strict() -> StreamPrivatizer:
        return keyed("a", decide_from="released")

    agent = taught(ffx.Agent(D, privatizer=strict(), seed=0), 30)
    spent = agent.privatizer.guarantee.mu
    agent.begin_run(strict())
    assert agent.privatizer.guarantee.mu == spent  # nothing was sent before
    last = agent.release()
    assert last.count == 30  # they were in no message, and are in this one
    agent.absorb({"a": last})
    agent.begin_run(strict())
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


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: NonPrivateSums(D + 1), "must be private and decide from 'released\\+local'"),
        (lambda: local("b"), "must have noise that was made for 'a'"),
        (lambda: local("a", dimension=2), "must have dimension 4"),
        (lambda: local("a", noise=SimulatedNoise(0)), "must be private, as before"),
        (lambda: local("a", public_schedule=False), "must be private and decide"),
        (
            lambda: local("a", bounds=replace(BOUNDS, adjacency="add-remove")),
            "adjacency must be that of the run",
        ),
    ],
)
def test_a_new_run_is_as_private_and_as_much_this_agents_as_the_old(
    other: Callable[[], Any], message: str
) -> None:
    agent = taught(ffx.Agent(D, privatizer=local("a"), seed=0), 5)
    agent.release()
    before = agent.privatizer
    with pytest.raises(InvalidInput, match=message):
        agent.begin_run(other())
    assert agent.privatizer is before
    with pytest.raises(InvalidInput, match="not private and has no budget"):
        ffx.Agent(D).begin_run(local("a"))


def local(name: str, **more: Any) -> StreamPrivatizer:
    return keyed(name, **({"decide_from": "released+local"} | more))


OPTIMIST: dict[str, Any] = {"rule": "optimism", "shift": 0.0}


def optimists(name: str, **more: Any) -> StreamPrivatizer:
    return local(name, intercept=False, **more)


def exact_trace(agent: ffx.Agent) -> float:
    """Of all that the agent has observed, as far as its knowledge holds it, released or fresh."""
    return float(np.trace(agent.gram))


class Still(KeyedNoise):
    """Keyed noise too small to see, that fails when told to."""

    fails = False

    def __call__(self, number: int, count: int, place: bytes) -> np.ndarray:
        if self.fails:
            raise OSError("the key store does not answer")
        return 1e-9 * super().__call__(number, count, place)


def still() -> Still:
    return Still(bytes(32), agent="a", run="r")


def test_what_was_observed_between_two_runs_stays() -> None:
    agent = ffx.Agent(D, privatizer=optimists("a", noise=still(), releases=1), seed=0, **OPTIMIST)
    agent.absorb({"a": taught(agent, 40).release()})
    taught(agent, 60)
    before = exact_trace(agent)
    agent.begin_run(optimists("a", noise=still()))
    release = agent.release()
    assert release.count == 100
    agent.absorb({"a": release})
    assert exact_trace(agent) == pytest.approx(before, rel=1e-3)


def test_what_cannot_be_carried_over_is_released_at_last_or_told() -> None:
    other = replace(BOUNDS, reward=2.0)
    agent = taught(ffx.Agent(D, privatizer=keyed("a", releases=1), seed=0), 7)
    agent.begin_run(keyed("a", bounds=other, releases=1))
    assert (agent.released, agent.privatizer.guarantee.spent) == (1, 1)
    assert taught(agent, 2).release().count == 9
    taught(agent, 3)
    with pytest.warns(UserWarning, match="3 records since the last release get into no message"):
        agent.begin_run(keyed("a"))
    assert agent.release().count == 9


@pytest.mark.parametrize("decide_from", ["released+local", "own+released"])
def test_records_after_an_interrupted_release_stay_until_they_are_released(decide_from: str) -> None:
    noise = still()
    privatizer = optimists("a", noise=noise, decide_from=decide_from)
    agent = taught(ffx.Agent(D, privatizer=privatizer, seed=0, **OPTIMIST), 10)
    noise.fails = True
    with pytest.raises(OSError, match="key store"):
        agent.release()
    noise.fails = False
    taught(agent, 90)
    before = exact_trace(agent)
    for count, left in ((10, 90), (100, 0)):
        release = agent.release()
        assert (release.count, agent.unreleased, agent.state().released_count) == (count, left, count)
        agent.absorb({"a": release})
        assert exact_trace(agent) == pytest.approx(before, rel=1e-3)
    taught(agent, 5)
    assert agent.release(2) == release  # again, and nothing is forgotten
    assert agent.release(1).count == 10
    assert (agent.released, agent.unreleased) == (2, 5)


def test_a_new_run_still_asks_whose_a_record_is() -> None:
    agent = ffx.Agent(D, privatizer=keyed("a", person_records=2), seed=0)
    agent.observe(agent.decide(np.eye(D)), reward=0.5, person="ann")
    agent.begin_run(keyed("a", person_records=2))
    assert agent.released == 1  # a last release of the old run: the new one counts persons anew
    for _ in range(3):
        agent.observe(agent.decide(np.eye(D)), reward=0.5, person="ann")
    with pytest.raises(InvalidInput, match="person must be given"):
        agent.observe(agent.decide(np.eye(D)), reward=0.5)
    assert agent.privatizer.stream.dropped == 1  # type: ignore[attr-defined]
    assert agent.release().count == 4
    assert agent.privatizer.guarantee.person_records == 2


def test_a_new_run_warns_of_clipping_again() -> None:
    agent = ffx.Agent(D, privatizer=keyed("a"), seed=0)
    agent.release()
    agent.begin_run(keyed("a"))
    decisions = agent.decide_many([np.eye(D)] * 100)
    with pytest.warns(ClippingWarning, match="100 of 100 records"):
        agent.observe_many(decisions, [9.0] * 100)


def test_releases_that_are_refused_leave_nothing_behind() -> None:
    agent = ffx.Agent(D, privatizer=keyed("a", releases=1), seed=0)
    agent.release()
    for _ in range(3):
        taught(agent, 1)
        with pytest.raises(BudgetExhausted):
            agent.release()
    assert len(agent._model.marks) == 1


def test_a_release_that_was_interrupted_is_counted_once() -> None:
    def stop(step: str) -> None:
        if step == "frozen" and stopping:
            raise KeyboardInterrupt

    settings = {"dimension": D + 1, "mechanism": keyed("a").mechanism, "bounds": BOUNDS}
    settings |= {"noise": KeyedNoise(bytes(32), agent="a", run="r"), "decide_from": "released+local"}
    stopping = True
    agent = ffx.Agent(D, privatizer=StreamPrivatizer(**settings, checkpoint=stop), seed=0)
    taught(agent, 4)
    with pytest.raises(KeyboardInterrupt):
        agent.release()
    taught(agent, 3)
    stopping = False
    released = agent.release(1)
    assert released.count == 4
    agent.absorb({"a": released})
    assert (agent.state().released_count, agent.unreleased) == (4, 3)
