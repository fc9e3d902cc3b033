"""Records that count less with age, held against records with weights; and who may not have that."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
import posterior_reference as oracle
from fedfairx.agent import persistence
from fedfairx.agent.half_life import STEPS, as_half_life
from fedfairx.errors import InvalidInput, MessageRefused
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Release, SimulatedNoise, private
from states import told

FIXED = ffx.Prior(mean=0.2, sd=0.7, noise_sd=0.4, learn=False)
START = 4_000_000_000_000_000  # microseconds: ahead of the real clock
seeds = st.integers(0, 2**32 - 1)


class Clock:
    """A clock that a test sets."""

    def __init__(self, *agents: ffx.Agent) -> None:
        self.now = START
        for agent in agents:
            if agent.durable:
                agent.journal.log.clock = lambda: self.now * 1000
            else:
                assert agent._model.aging is not None
                agent._model.aging.clock = lambda: self.now

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * 1e6)


def records(rng: np.random.Generator, count: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.random((count, d)) / math.sqrt(d), rng.random(count)


# --- what records count -----------------------------------------------------------------------------------


@given(seeds, st.floats(0.2, 64.0), st.sampled_from(["expected-merit", "greedy", "thompson"]))
def test_a_posterior_is_that_of_records_with_weights(seed: int, half_life: float, rule: str) -> None:
    rng = np.random.default_rng(seed)
    d, count = int(rng.integers(1, 5)), int(rng.integers(1, 60))
    agent = ffx.Agent(d, half_life=half_life, prior=FIXED, rule=rule, seed=0, intercept=False)
    xs, ys = np.zeros((count, d)), rng.random(count)
    for at in range(count):
        made = agent.decide(rng.random((3, d)) / 2)
        xs[at] = made.context
        agent.observe(made, reward=float(ys[at]))
    ages = count - 1.0 - np.arange(count)
    V, theta = oracle.weighted_posterior(xs, ys, 0.5 ** (ages / half_life), FIXED.ridge, FIXED.mean)
    np.testing.assert_allclose(agent.gram, V, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(agent.estimate, theta, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(np.linalg.inv(agent.gram), agent._model.learner.inverse, rtol=1e-8, atol=1e-10)
    assert agent.observed == count


def test_after_one_half_life_a_record_counts_half() -> None:
    agent = ffx.Agent(actions=["ann", "ben"], half_life=10, prior=FIXED, seed=0)
    agent.learn(["ann"], [1.0])
    agent.learn(["ben"] * 10, [0.5] * 10)
    assert agent.record_of("ann").rewards == pytest.approx(0.5, rel=1e-12)
    agent.learn(["ben"] * 20, [0.5] * 20)
    assert agent.record_of("ann").rewards == pytest.approx(0.125, rel=1e-12)
    many = 1000  # by then the weights of ben are those of a geometric series
    agent.learn(["ben"] * many, [0.5] * many)
    assert agent.record_of("ben").rewards == pytest.approx(1 / (1 - 0.5**0.1), rel=1e-9)
    assert agent._model.learner.observed == pytest.approx(1 / (1 - 0.5**0.1), rel=1e-9)
    assert agent.record_of("ann").effect == pytest.approx(0.0, abs=1e-12)  # back to the prior


@pytest.mark.parametrize("half_life", [64.0, 65.0, 400.0, 5000.0])
def test_no_weight_is_off_by_more_than_a_step(half_life: float) -> None:
    arms = [str(number) for number in range(300)]  # each seen once: its count is its weight
    agent = ffx.Agent(actions=arms, half_life=half_life, prior=FIXED, seed=0)
    agent.learn(arms, [0.5] * len(arms))
    weights = np.array([agent.record_of(name).rewards for name in arms])
    meant = oracle.weights_of(np.arange(1, 301), half_life)
    np.testing.assert_allclose(weights, meant, rtol=1e-12)
    exact = 0.5 ** (np.arange(299, -1, -1) / half_life)
    assert np.abs(np.log2(weights / exact)).max() <= 1 / STEPS + 1e-9
    if half_life <= STEPS:
        np.testing.assert_allclose(weights, exact, rtol=1e-12)


@given(seeds, st.sampled_from(["1h", "90m", "2d"]))
def test_time_is_that_of_the_rewards(seed: int, half_life: str) -> None:
    rng = np.random.default_rng(seed)
    hours = {"1h": 1.0, "90m": 1.5, "2d": 48.0}[half_life]
    agent = ffx.Agent(2, half_life=half_life, prior=FIXED, seed=0, intercept=False)
    clock = Clock(agent)
    xs, ys = records(rng, 30, 2)
    when = np.zeros(30)
    for at in range(30):
        clock.wait(float(rng.choice([0.0, 1.0, 600.0, 40_000.0])))
        made = agent.decide(xs[at : at + 1])
        clock.wait(100.0)  # the reward's time counts, not the decision's
        agent.observe(made, reward=float(ys[at]))
        when[at] = (clock.now - START) / 3.6e9
    weights = oracle.weights_of(when + START / 3.6e9, hours)
    assert np.abs(np.log2(weights) - (when - when[-1]) / hours).max() <= 1 / STEPS + 1e-9
    V, theta = oracle.weighted_posterior(xs, ys, weights, FIXED.ridge, FIXED.mean)
    np.testing.assert_allclose(agent.gram, V, rtol=1e-7)
    np.testing.assert_allclose(agent.estimate, theta, rtol=1e-6, atol=1e-9)


def test_a_clock_that_goes_back_changes_no_weight() -> None:
    agent = ffx.Agent(actions=["ann"], half_life="1h", prior=FIXED, seed=0)
    clock = Clock(agent)
    agent.learn(["ann"], [0.5])
    clock.wait(-36_000.0)
    agent.learn(["ann"], [0.5])
    assert agent.record_of("ann").rewards == pytest.approx(2)
    clock.wait(36_000.0 + 3_600.0)
    agent.learn(["ann"], [0.5])
    assert agent.record_of("ann").rewards == pytest.approx(2 / 2 + 1)


def test_neither_a_decision_nor_waiting_changes_what_is_known() -> None:
    agent = ffx.Agent(2, half_life="1h", seed=0)
    clock = Clock(agent)
    agent.learn(*records(np.random.default_rng(0), 20, 2))
    x = np.eye(2)
    before, model = agent.policy(x), agent.gram
    clock.wait(1e7)
    assert agent.decide(x).policy.tobytes() == before.tobytes()
    assert agent.gram.tobytes() == model.tobytes()


@pytest.mark.long
@given(seeds, st.floats(0.5, 200.0))
def test_sizes_are_learnt_from_records_with_weights(seed: int, half_life: float) -> None:
    rng = np.random.default_rng(seed)
    assumed = ffx.Prior(mean=0.1, sd=0.5, noise_sd=0.5)
    agent = ffx.Agent(2, half_life=half_life, prior=assumed, seed=0, intercept=False)
    xs, ys = records(rng, 40, 2)
    fits = 1  # at the first reward, then when rewards double or as many have come as counted
    for at in range(1, 41):
        agent.learn(xs[at - 1 : at], ys[at - 1 : at])
        if at == fits:
            weights = oracle.weights_of(np.arange(1, at + 1), half_life)
            known = oracle.Prior(np.full(2, 0.1), 0.5, 0.5, True)
            variance, ridge = oracle.likeliest(xs[:at], ys[:at], known, weights)
            fits = min(2 ** at.bit_length(), at + math.ceil(weights.sum()))
            found = agent._model.learner.noise_variance, agent._model.learner.ridge
            if found != pytest.approx((variance, ridge), rel=1e-7):  # two λ may be as likely as each other
                assert found[0] == pytest.approx(variance, rel=0.05)
    assert agent._model.refit_at == fits


def test_noise_that_grows_is_noticed() -> None:
    rng = np.random.default_rng(0)
    agents = [ffx.Agent(actions=["ann"], half_life=h, reward_range=(0, 1), seed=0) for h in (100, None)]
    for agent in agents:
        agent.learn(["ann"] * 4100, 0.5 + 0.05 * rng.choice([-1, 1], 4100))
        assert agent.noise_sd < 0.1
        agent.learn(["ann"] * 1000, 0.5 + 0.5 * rng.choice([-1, 1], 1000))
    assert agents[0].noise_sd == pytest.approx(0.5, rel=0.1)
    assert agents[1].noise_sd < 0.1  # looks again at 8192 rewards


def test_slots_are_rewards_one_after_the_other() -> None:
    one, other = (ffx.Agent(2, half_life=4.0, prior=FIXED, seed=0) for _ in range(2))
    x, weights = np.array([[0.9, 0.1], [0.2, 0.7], [0.4, 0.4]]), [1.0, 0.6, 0.3]
    for _ in range(5):
        made = one.decide(x, slots=weights)
        one.observe(made, rewards=[0.3, 0.8, 0.1])
        other.learn(x[made.actions], [0.3, 0.8, 0.1], weights=weights)
    assert one.gram.tobytes() == other.gram.tobytes()
    assert one.observed == other.observed == 15


@pytest.mark.long
@pytest.mark.parametrize(
    ("half_life", "count"),
    [(0.01, 2_000), (1.0, 5_000), (500.0, 20_000), pytest.param(1e4, 1_000_000, marks=pytest.mark.slow)],
)
def test_a_million_rewards_neither_overflow_nor_vanish(half_life: float, count: int) -> None:
    agent = ffx.Agent(actions=["ann", "ben"], half_life=half_life, seed=0)
    agent.learn(["ben"], [0.9])
    rewards = np.random.default_rng(0).random(count)
    with np.errstate(over="raise", invalid="raise"):
        agent.learn(["ann"] * count, rewards)
    held = 1 / (1 - 0.5 ** (1 / half_life))
    assert agent._model.learner.observed == pytest.approx(held, rel=1.1 / STEPS)
    assert agent.policy().sum() == pytest.approx(1.0)
    assert np.isfinite(agent.estimate).all()
    assert agent.record_of("ben").effect == pytest.approx(0.0, abs=1e-9)  # as unknown as at first
    assert agent.release().count == count + 1


# --- releases ---------------------------------------------------------------------------------------------


def test_a_release_ages_with_its_receiver() -> None:
    rng = np.random.default_rng(0)
    h, here, there = 8.0, 5, 7
    (xs, ys), (us, vs), (zs, ws) = records(rng, here, 2), records(rng, there, 2), records(rng, 6, 2)
    one, other, third = (
        ffx.Agent(2, half_life=h, prior=FIXED, name=name, seed=0, intercept=False)
        for name in ("one", "other", "third")
    )
    one.learn(xs, ys)
    other.learn(us, vs)
    one.absorb({"other": other.release(), "one": one.release()})
    one.learn(zs, ws)
    own = 0.5 ** (np.arange(here + 6 - 1, -1, -1) / h)
    theirs = 0.5 ** ((np.arange(there - 1, -1, -1) + 6) / h)  # by its own rewards, then by ours
    xs, ys = np.concatenate([xs, zs, us]), np.concatenate([ys, ws, vs])
    V, theta = oracle.weighted_posterior(xs, ys, np.concatenate([own, theirs]), FIXED.ridge, FIXED.mean)
    np.testing.assert_allclose(one.gram, V, rtol=1e-10)
    np.testing.assert_allclose(one.estimate, theta, rtol=1e-9)
    one.absorb({"third": third.release(), "one": one.release()})  # which has no record: nothing changes
    np.testing.assert_allclose(one.gram, V, rtol=1e-10)
    one.drop_peers(["third"])  # nor does it if ages are kept
    np.testing.assert_allclose(one.gram, V, rtol=1e-10)
    other.learn(zs[:1], ws[:1])
    one.absorb({"other": other.release()})  # replaces the earlier one, and is new
    theirs = 0.5 ** (np.arange(there, -1, -1) / h)
    xs, ys = np.concatenate([xs, zs[:1]]), np.concatenate([ys, ws[:1]])
    V, _ = oracle.weighted_posterior(xs, ys, np.concatenate([own, theirs]), FIXED.ridge, FIXED.mean)
    np.testing.assert_allclose(one.gram, V, rtol=1e-10)


def test_a_release_by_time_is_as_of_when_it_is_made_and_taken() -> None:
    one, other = (
        ffx.Agent(actions=["ann", "ben"], half_life="1h", prior=FIXED, name=name, seed=0)
        for name in ("one", "other")
    )
    clock = Clock(one, other)
    one.learn(["ann"], [1.0])
    other.learn(["ben"], [1.0])
    clock.wait(3_600)
    one.absorb({"other": other.release()})  # both are an hour old, though nothing was learnt since
    assert [one.record_of(name).rewards for name in one.names] == pytest.approx([0.5, 0.5], rel=1e-12)
    clock.wait(3_600)
    one.learn(["ann"], [1.0])
    assert [one.record_of(name).rewards for name in one.names] == pytest.approx([1.25, 0.25], rel=1e-12)
    assert one.release().packed[0] == pytest.approx(1.25)


@pytest.mark.long
@pytest.mark.parametrize("partners", ["alike", "differ"])
def test_a_federation_forgets_what_changed(partners: str) -> None:
    rng = np.random.default_rng(0)
    theta, errors = np.array([0.8, 0.1]), {}
    for half_life in (None, 60):
        fed = ffx.Federation(
            agents=3, dimension=2, horizon=500, seed=0, partners=partners, half_life=half_life
        )
        for t in range(500):
            truth = theta if t < 250 else theta[::-1]
            for agent in fed.agents:
                made = agent.decide(rng.random((4, 2)) / math.sqrt(2))
                agent.observe(made, reward=float(made.context[:2] @ truth + 0.05 * rng.normal()))
            fed.end_round()
        errors[half_life] = np.linalg.norm(fed.agents[0].estimate[:2] - theta[::-1])
    assert errors[60] < 0.1 < 0.3 < errors[None]


# --- kept -------------------------------------------------------------------------------------------------


def live(agents: list[ffx.Agent], clock: Clock, rounds: int, seed: int) -> None:
    """The same for every agent: decide, observe, learn, release, absorb."""
    rng = np.random.default_rng(seed)
    waiting: list[list[Any]] = []
    for t in range(1, rounds + 1):
        clock.wait(float(rng.choice([0.0, 10.0, 2_000.0])))
        x = rng.random((4, 2)) / 2
        waiting.append([agent.decide(x) for agent in agents])
        if len(waiting) > 3:
            reward = float(rng.random())
            for agent, made in zip(agents, waiting.pop(int(rng.integers(4))), strict=True):
                agent.observe(made, reward=reward)
        if t % 5 == 0:
            xs, ys = records(rng, 2, 2)
            packed = np.array([1.0, 0.2, 0.2, 1.0, 0.2, 1.0, *rng.random(3)])
            for agent in agents:
                agent.learn(xs, ys)
                digest = agent.release().mechanism
                number = agent.released
                agent.absorb({agent.name: agent.release(number), "peer": Release(number, packed, 3, digest)})
        if t % 11 == 0:
            for agent in agents:
                agent.drop_peers(["peer"])


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")  # this test is ahead of the clock
@pytest.mark.parametrize(
    ("partners", "half_life"),
    [
        ("alike", 20),
        pytest.param("differ", 20, marks=pytest.mark.slow_on_server),
        pytest.param("alike", "1h", marks=pytest.mark.slow_on_server),
        ("differ", "1h"),
    ],
)
def test_a_durable_one_continues_to_the_bit(
    place: str, half_life: Any, partners: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 23)  # some steps come after the last one
    given: Any = {"half_life": half_life, "partners": partners, "seed": 4, "name": "a"}
    never = ffx.Agent(2, **given)
    ffx.Agent.open(place, dimension=2, **given).close()
    now = START
    for life in range(4):
        with ffx.Agent.open(place) as agent:
            clock = Clock(agent, never)
            clock.now = now
            live([agent, never], clock, 25, life)
            assert told(agent) | {"pending": 0} == told(never) | {"pending": 0}
            assert agent.privatizer.state() == never.privatizer.state()
            now = clock.now + 10**9
            if life % 2:  # as a crash would leave it
                agent.journal.log.closing.clear()
    with ffx.Agent.open(place, half_life=half_life) as agent:
        assert told(agent) | {"pending": 0} == told(never) | {"pending": 0}
        agent.verify()


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")
def test_a_refused_message_leaves_what_a_replay_makes(place: str) -> None:
    with ffx.Agent.open(place, dimension=2, half_life="1h", seed=0, name="a") as agent:
        clock = Clock(agent)
        agent.learn(*records(np.random.default_rng(0), 5, 2))
        digest = agent.release().mechanism
        bad = Release(1, np.array([-1e3, 0.0, 1.0, 0.0, 0.0]), 3, digest)
        for _ in range(10):  # rounding differs from that of all at once
            clock.wait(234.5)
            with pytest.raises(MessageRefused):
                agent.absorb({"peer": bad})
            clock.wait(89.1)
            with pytest.raises(InvalidInput):
                agent.release(7)
        agent.learn([[0.1, 0.2]], [0.3])
        agent.verify()
        before = told(agent)
        agent.journal.log.closing.clear()
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")
def test_a_replaced_reward_has_the_age_of_the_first(place: str) -> None:
    x, rewards = np.eye(2)[:1], [0.2, 0.5, 0.9]
    with ffx.Agent.open(place, dimension=2, half_life="1h", prior=FIXED, seed=0) as agent:
        clock, ids = Clock(agent), []
        for reward in rewards:
            made = agent.decide(x)
            clock.wait(3_600)
            agent.observe(made, reward=reward)
            ids.append(made.id)
        clock.wait(3_600)
        agent.observe(ids[1], reward=0.7, replace=True)
        assert agent.moment[0] - FIXED.ridge * FIXED.mean == pytest.approx(0.25 * 0.2 + 0.5 * 0.7 + 0.9)
        agent.verify()


@pytest.mark.parametrize("half_life", [7, "1h"])
def test_a_saved_one_continues_to_the_bit(tmp_path: Path, half_life: Any) -> None:
    agent = ffx.Agent(2, half_life=half_life, seed=0, name="a")
    clock = Clock(agent) if isinstance(half_life, str) else Clock()
    live([agent], clock, 40, 0)
    agent.save(tmp_path / "a.db")
    again = ffx.Agent.load(tmp_path / "a.db")
    assert again.options == agent.options
    assert told(again) == told(agent)
    if isinstance(half_life, str):
        now, clock = clock.now, Clock(agent, again)
        clock.now = now
    live([agent, again], clock, 40, 1)
    assert told(again) == told(agent)


def test_the_stored_one_may_not_be_contradicted(place: str) -> None:
    ffx.Agent.open(place, dimension=2, half_life=timedelta(days=30)).close()
    with ffx.Agent.open(place, half_life="720h") as agent:
        assert agent.options.half_life == "30d"
    with pytest.raises(InvalidInput, match="half_life must be the stored one, '30d', got half_life='31d'"):
        ffx.Agent.open(place, half_life="31d")


# --- who may have one -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        (1000, 1000.0),
        ("1000", 1000.0),
        (0.5, 0.5),
        ("30d", "30d"),
        ("720h", "30d"),
        ("1.5d", "36h"),
        ("14d", "2w"),
        ("90 m", "90m"),
        (timedelta(hours=1), "1h"),
        (timedelta(seconds=1.5), "1.5s"),
    ],
)
def test_a_number_is_of_rewards_and_a_unit_makes_a_time(given: Any, kept: float | str | None) -> None:
    assert as_half_life(given) == kept
    assert as_half_life(kept) == kept


@pytest.mark.parametrize(
    "given", [0, -1, True, math.nan, math.inf, 1e13, "", "0.5s", "5y", "1.2.3d", "d", "-1d", [], "1e400d"]
)
def test_other_values_are_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"half_life must be a number of rewards .* or a time such as 30d"):
        ffx.Options(half_life=given)


def test_private_agents_and_terms_refuse_it(tmp_path: Path) -> None:
    text = "half_life must be left out where sums are private: noise and accounting are for sums in which"
    with pytest.raises(InvalidInput, match=text):
        ffx.Options(algorithm="priv-fairx-bayes", epsilon=1.0, half_life=10)
    noisy = private(2, epsilon=1.0, delta=1e-6, releases=5, noise=SimulatedNoise(0), intercept=True)
    with pytest.raises(InvalidInput, match=text):
        ffx.Agent(2, half_life=10, privatizer=noisy)
    budget = ffx.Budget(epsilon=1.0, delta=1e-6, releases=5)
    with pytest.raises(InvalidInput, match=text):
        ffx.Agent.open(tmp_path / "a.db", dimension=2, half_life=10, budget=budget)
    with ffx.Agent.open(tmp_path / "a.db", dimension=2) as agent:  # nothing was made
        assert agent.options.half_life is None
    shared: Any = {"dimension": 2, "agents": 2, "horizon": 100}
    with pytest.raises(InvalidInput, match="half_life must be left to each member"):
        Terms(**shared, algorithm="fed-fairx-bayes", half_life=10)
    with pytest.raises(InvalidInput, match=text):
        Terms(**shared, epsilon=1.0).agent("a", noise=SimulatedNoise(0), half_life=10)
    terms = Terms(**shared, algorithm="fed-fairx-bayes")
    members = [terms.agent(name, half_life=half_life) for name, half_life in (("a", 10), ("b", None))]
    for member in members:
        member.learn(*records(np.random.default_rng(0), 50, 2))
    for one, other in (members, members[::-1]):  # each accepts what the other sends
        release = other.release()
        assert one.accepted({other.name: release}, limits=terms.limits.check) == {other.name: release}


def test_optimism_and_simulations_refuse_it() -> None:
    with pytest.raises(InvalidInput, match="half_life is not for rule='optimism'"):
        ffx.Agent(2, rule="optimism", half_life=10)
    with pytest.raises(InvalidInput, match="half_life must be left out: in a simulation"):
        ffx.simulate(ffx.Scenario(horizon=10), half_life=10)
