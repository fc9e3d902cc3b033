"""Which rewards are taken: one absurd number must not spoil a model for good."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from federation_helpers import D, bare, contexts, private_agent
from fedfairx.agent.options import Options
from fedfairx.agent.reward_limits import ENOUGH, FIRST, LEAST, USUAL, RewardLimits
from fedfairx.core.confidence import LARGEST_SETTING, Confidence
from fedfairx.core.posterior import Prior
from fedfairx.errors import InvalidInput, ScaleWarning
from fedfairx.util.arrays import Array

RNG = np.random.default_rng(0)
X = contexts(RNG)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


# --- the limits by themselves -----------------------------------------------------------------------------


@given(low=NUMBERS, high=NUMBERS, reward=st.floats())
def test_with_a_range_what_is_inside_is_taken_and_nothing_else(
    low: float, high: float, reward: float
) -> None:
    if not -LARGEST_SETTING <= low < high <= LARGEST_SETTING:
        with pytest.raises(
            InvalidInput, match=r"^reward_range must be (2 values, each|two numbers, low < high)"
        ):
            Options(reward_range=(low, high))
        return
    limits = RewardLimits(Prior(), Options(reward_range=(low, high)).reward_range)
    limits.look(1000, 1e6, 1e6, 1000.0)  # a range is a range, whatever comes
    assert limits.ends == (low, high)
    if low <= reward <= high:
        limits.check(reward)
        assert limits.clipped(reward) == reward
    else:
        with pytest.raises(InvalidInput) as caught:
            limits.check(reward)
        if math.isfinite(reward):  # the text tells the range, and no reward
            told = f"reward must be from {low:g} to {high:g} (reward_range), got one outside"
            assert str(caught.value) == told
        assert low <= limits.clipped(reward) <= high or math.isnan(reward)
    assert limits.contradiction is None


@pytest.mark.parametrize(
    "value",
    [
        (1.0,),
        (1, 2, 3),
        (0, 1e99),
        "ab",
        ("0", "1"),
        3,
        (0.0, math.nan),
        (2.0, 1.0),
        (1.0, 1.0),
        (0.0, math.inf),
        (0, 10**400),
    ],
)
def test_a_range_is_two_numbers(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^reward_range must be"):
        Options(reward_range=value)


@pytest.mark.parametrize("value", [[0, 1], (np.float32(0), np.int64(1)), np.array([0.0, 1.0])])
def test_a_range_may_come_from_numpy(value: Any) -> None:
    assert Options(reward_range=value).reward_range == (0.0, 1.0)


@given(
    sd=st.floats(1e-3, 1e3),
    noise_sd=st.floats(1e-3, 1e3),
    rms=st.floats(0.0, 1e6),
    observed=st.integers(0, 10_000),
)
def test_without_a_range_it_is_by_what_is_expected_and_by_what_came(
    sd: float, noise_sd: float, rms: float, observed: int
) -> None:
    limits = RewardLimits(Prior(mean=0.0, sd=sd, noise_sd=noise_sd), None)
    first = FIRST * math.hypot(max(sd, noise_sd), noise_sd)
    assert limits.ends == pytest.approx((-first, first))
    limits.look(observed, observed * rms**2, observed * rms**2, float(observed))
    most = first if observed < ENOUGH else max(LEAST / FIRST * first, USUAL * rms)
    assert limits.ends == pytest.approx((-most, most))
    limits.check(0.999 * most)
    limits.check(-0.999 * most)
    for wild in (1.001 * most, -1.001 * most):
        with pytest.raises(InvalidInput, match=r"at most .* reward_range=\(low, high\)"):
            limits.check(wild)
    for odd in (math.nan, math.inf, -math.inf):
        with pytest.raises(InvalidInput, match="must be finite"):
            limits.check(odd)


def test_optimism_has_its_own_size() -> None:
    limits = RewardLimits(Confidence(parameter_norm=3.0, noise_sd=4.0), None)
    assert limits.ends == (-5000.0, 5000.0)


# --- an agent's -------------------------------------------------------------------------------------------


def refuses(agent: ffx.Agent, reward: float, match: str) -> None:
    """Whichever way it comes, and nothing changes."""
    made, other = agent.decide(X), agent.decide(X)
    before = bare(agent)
    for take in (
        lambda: agent.observe(made, reward=reward),
        lambda: agent.observe_many([other, made], [0.5, reward]),
        lambda: agent.learn(X[:2], [0.5, reward]),
    ):
        with pytest.raises(InvalidInput, match=match):
            take()
        assert bare(agent) == before
    agent.forget_many([made, other])


@pytest.mark.parametrize("rule", ["expected-merit", "optimism"])
def test_a_wild_reward_is_refused(rule: str) -> None:
    agent = ffx.Agent(D, rule=rule, seed=0)
    for wild in (-1e100, 1e100, 1e4, math.nan, math.inf):
        refuses(agent, wild, "reward must be")
    ranged = ffx.Agent(D, rule=rule, seed=0, reward_range=(1.0, 5.0))
    refuses(ranged, 0.999, "from 1 to 5")
    refuses(ranged, 5.001, "from 1 to 5")
    ranged.observe(ranged.decide(X), reward=1.0)
    ranged.observe(ranged.decide(X), reward=5.0)
    assert ranged.observed == 2


def test_who_has_large_rewards_may_have_larger_ones() -> None:
    agent = ffx.Agent(D, seed=0)
    refuses(agent, 9_000.0, "at most")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        for _ in range(40):
            agent.observe(agent.decide(X), reward=100.0)
        agent.observe(agent.decide(X), reward=29_000.0)
        refuses(agent, 31_000.0, "at most 30000 in size")


def test_an_agent_that_is_opened_again_still_says_that_rewards_are_large(tmp_path: Path) -> None:
    """It is looked at after 32, 64, ... rewards: the next time may be far away."""
    with ffx.Agent.open(tmp_path / "agent.db", actions=["a", "b"], seed=0) as agent:
        with pytest.warns(ScaleWarning, match="4 times as large"):
            agent.observe_many(agent.decide_many([None] * 40), [0.0, 200.0] * 20)
        said, limits = agent.warnings, agent.reward_limits
    with ffx.Agent.open(tmp_path / "agent.db") as agent:
        assert agent.warnings == said != []
        assert agent.reward_limits == limits
        with pytest.warns(ScaleWarning, match="4 times as large"):
            agent.observe(agent.decide(), reward=100.0)


MEANS = {"ann": 0.5, "ben": 0.6, "cid": 0.7}


def shares_of_the_best(seed: int, rewards: Callable[[int, float], float], rounds: int) -> tuple[Array, int]:
    """Cid's share in each round, and how many rewards were refused; `rewards` changes those of 0 and 1."""
    agent, rng = ffx.Agent(actions=list(MEANS), seed=seed), np.random.default_rng(seed)
    shares, refused = np.empty(rounds), 0
    for t in range(rounds):
        made = agent.decide()
        shares[t] = made.policy[2]
        try:
            agent.observe(made, reward=rewards(t, float(rng.random() < MEANS[made.name])))
        except InvalidInput:
            refused += 1
            agent.forget(made)
    return shares, refused


def test_an_outlier_changes_no_shares() -> None:
    """Of 20 seeds, one reward of 800 times the root mean square (0.77), the 101st.

    While it was learnt, Cid had 0.41 of the next hundred decisions and 0.34 of the five hundred after them.
    """
    shares = []
    for seed in range(20):
        plain, none = shares_of_the_best(seed, lambda _, reward: reward, 700)
        found, one = shares_of_the_best(seed, lambda t, reward: 800 * 0.77 if t == 100 else reward, 700)
        assert (none, one) == (0, 1)
        assert (plain[:101] == found[:101]).all()
        shares.append((plain[101:].mean(), found[101:].mean()))
    before, after = np.mean(shares, axis=0)
    assert after == pytest.approx(before, abs=0.02)
    assert after > 0.55


def test_rewards_that_become_a_hundred_times_larger_are_learnt() -> None:
    """All of them: not even one is refused while their size is still that of the smaller ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        for seed in range(5):
            _, refused = shares_of_the_best(seed, lambda t, reward: reward * (100 if t >= 500 else 1), 1500)
            assert refused == 0


def test_rare_rewards_are_no_outliers() -> None:
    agent = ffx.Agent(actions=["ann", "ben"], seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        for t in range(2000):
            agent.observe(agent.decide(), reward=float(t == 1000))
    assert agent.reward_limits[1] >= 50.0  # though their root mean square is 0.02
    agent.observe(agent.decide(), reward=1.0)


@pytest.mark.parametrize("arms", [{"actions": ["ann", "ben"]}, {"dimension": D}])
def test_a_replay_learns_what_was_taken_under_wider_limits(tmp_path: Path, arms: dict[str, Any]) -> None:
    """A wrong reward widens the limits; once it is replaced, they would refuse what came after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        with ffx.Agent.open(tmp_path / "agent.db", **arms, seed=0) as agent:
            given = () if "actions" in arms else (X,)
            made = [agent.decide(*given) for _ in range(60)]
            for t, each in enumerate(made):
                agent.observe(each, reward=500.0 if t == 5 else 3_000.0 if t == 50 else 0.5)
            agent.observe(made[5], reward=0.5, replace=True)
            assert agent.reward_limits[1] < 3_000.0
            model, moment = agent._model, agent.moment.copy()
            assert model.sums is not None
            assert model.records is not None
            assert model.learner.statistics == pytest.approx(model.records.whitened(model.sums.total))
            assert model.sums.total.max() > 1_000.0
            agent.verify()
        with ffx.Agent.open(tmp_path / "agent.db") as agent:
            assert (agent.moment == moment).all()


def test_limits_are_the_same_after_a_restart(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
            for _ in range(40):
                agent.observe(agent.decide(X), reward=100.0)
            before = agent.reward_limits
        with ffx.Agent.open(tmp_path / "agent.db") as agent:
            assert agent.reward_limits == before == pytest.approx((-30_000.0, 30_000.0))
            with pytest.raises(InvalidInput, match="at most 30000"):
                agent.observe(agent.decide(X), reward=-31_000.0)
            assert agent.journal.counts()["pending"] == 1


@pytest.mark.parametrize("decide_from", ["released", "released+local", "own+released"])
def test_a_private_one_takes_any_number_and_clips_it(decide_from: str) -> None:
    wild, tame = (private_agent(decide_from) for _ in range(2))
    most = wild.reward_limits[1]
    for agent, values in ((wild, (1e100, -math.inf, math.nan)), (tame, (most, -most, 0.0))):
        agent.observe(agent.decide(X), reward=values[0])
        agent.observe_many([agent.decide(X)], [values[1]])
        agent.learn(X[:1], [values[2]])
    assert (wild.estimate == tame.estimate).all()
    assert np.isfinite(wild.decide(X).policy).all()
    assert wild.observed == 3
    assert wild.privatizer.clipped == 3
    assert (wild.privatizer._position.leaf == tame.privatizer._position.leaf).all()


def test_rewards_of_another_size_are_told_once() -> None:
    for reward, text in ((50.0, "differences .* more than 4 times as large"), (0.01, "10 times as small")):
        agent = ffx.Agent(D, seed=0)
        with pytest.warns(ScaleWarning, match=text) as told:
            _seventy(agent, reward)
        assert len(told) == 1
        assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for agent in (ffx.Agent(D, seed=0, reward_range=(0.0, 100.0)), ffx.Agent(D, seed=0)):
            _seventy(agent, 50.0 if agent.options.reward_range else 0.5)


def _seventy(agent: ffx.Agent, reward: float) -> None:
    for t in range(70):
        agent.observe(agent.decide(X), reward=reward * (t % 2))


def test_a_warning_made_an_error_has_lost_no_reward() -> None:
    agent = ffx.Agent(D, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)
        with pytest.raises(ScaleWarning):
            agent.learn(np.tile(X[0], (40, 1)), [50.0, 0.0] * 20)
        agent.observe(agent.decide(X), reward=50.0)
    assert agent.observed == 41
