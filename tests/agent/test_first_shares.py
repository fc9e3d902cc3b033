"""Shares while little is known: newcomers, a first reward, rewards that never come, rows with features."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
import posterior_reference as oracle
from fedfairx.core.marginal_likelihood import POINTS, SMALLEST
from fedfairx.core.own_record import ENOUGH, RATIOS
from fedfairx.demo import couriers
from fedfairx.errors import ScaleWarning
from fedfairx.features import Schema
from own_record_reference import Records, Sizes, believe, log_evidence

seeds = st.integers(0, 2**32 - 1)


def taught(rng: np.random.Generator, names: list[str], tried: int, each: int, **more: object) -> ffx.Agent:
    """An agent of named actions, the first of which were tried, with success rates around one half."""
    agent = ffx.Agent(actions=names, seed=0, **more)
    rates = np.clip(0.5 + rng.choice([0.05, 0.15, 0.3]) * rng.standard_normal(tried), 0.0, 1.0)
    actions = rng.permutation(np.repeat(np.arange(tried), each))
    agent.learn(
        [names[k] for k in actions], (rng.random(actions.size) < rates[actions]).astype(float).tolist()
    )
    return agent


@given(seeds, st.integers(4, 9), st.integers(5, 200))
def test_an_untried_action_gets_at_most_twice_the_average(seed: int, actions: int, each: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"w{k}" for k in range(actions)]
    agent = taught(rng, names, int(rng.integers(3, actions)), each)
    assert agent.policy()[-1] <= 2.0 / actions
    agent.add_actions("new")
    assert agent.policy()[-1] <= 2.0 / (actions + 1)


def test_an_action_whose_rewards_never_come_gets_about_an_average_share() -> None:
    """One seed; it got 1 483 of 1 500 decisions when its mean stayed at 0."""
    rng, names, shown = np.random.default_rng(0), [f"w{k}" for k in range(7)], 0
    agent = ffx.Agent(actions=names, seed=0)
    for _ in range(1_500):
        decision = agent.decide()
        if decision.name == "w6":
            shown += 1
        else:
            agent.observe(decision, reward=float(rng.random() < 0.6))
    assert shown < 2 * 1_500 / 7


@given(seeds, st.integers(2, 6), st.integers(0, 30), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_between_two_refits_a_better_reward_never_lowers_a_share(
    seed: int, actions: int, each: int, one: float, two: float
) -> None:
    rng, names = np.random.default_rng(seed), [f"w{k}" for k in range(actions)]
    prior = ffx.Prior(0.5, 0.125, 0.5, learn=False)
    tried = int(rng.integers(1, actions + 1))
    shares = []
    for reward in sorted((one, two)):
        agent = taught(np.random.default_rng(seed), names, tried, each, prior=prior)
        agent.learn(["w0"], [reward])
        shares.append(agent.policy()[0])
    assert shares[0] <= shares[1] + 1e-12


@given(seeds, st.integers(2, 6), st.integers(1, 40))
def test_equal_counts_and_sums_give_equal_shares(seed: int, actions: int, each: int) -> None:
    rewards = np.random.default_rng(seed).random(each).tolist()
    names = [f"w{k}" for k in range(actions)]
    agent = ffx.Agent(actions=names, seed=0)
    for name in names:
        agent.learn([name] * each, rewards)
    assert agent.policy() == pytest.approx(1.0 / actions, abs=1e-9)


def test_one_success_does_not_lower_a_share() -> None:
    for more in ({}, {"reward_range": (0, 1)}):
        agent = ffx.Agent(actions=["ann", "ben", "cid"], seed=0, **more)
        agent.learn(["ann"], [1.0])
        assert agent.policy()[0] > 1 / 3


def test_before_any_reward_rows_with_features_get_about_equal_shares() -> None:
    """Couriers near 200 orders: nearly all get from a third of to twice the average share."""
    city = couriers.Couriers(seed=1)
    agent = ffx.Agent(schema=Schema(couriers.FEATURES, shared=list(couriers.SHARED)), seed=0)
    shares = np.array(
        [
            agent.policy(actions=order.rows, context=order.context)
            for order in (city.order() for _ in range(200))
        ]
    )
    assert ((shares >= 1 / 24) & (shares <= 1 / 4)).mean() > 0.95


def test_couriers_join_and_leave_and_rewards_come_late_or_never() -> None:
    city = couriers.Couriers(seed=0)
    orders = [city.order() for _ in range(2 * couriers.CHANGE + 1)]
    first = {each.name for order in orders[: couriers.CHANGE] for each in order.near}
    assert len(first) == couriers.COURIERS
    assert {each.group for order in orders for each in order.near} == {"first", "new"}
    assert [each.name for each in city.couriers][-1] == f"courier-{couriers.COURIERS + 1:03d}"
    after = [order.after for order in orders]
    assert 0.04 < after.count(None) / len(after) < 0.13
    assert {couriers.EARLIEST <= one <= couriers.LATEST for one in after if one is not None} == {True}
    assert all(order.entitled.sum() == pytest.approx(1.0) for order in orders)
    assert {order.reward(0) for order in orders} == {0.0, 1.0}


@pytest.mark.parametrize(
    ("size", "shift"), [(1.0, 3.0), (1.0, -20.0), (10.0, 0.0), (100.0, 500.0), (0.01, 0.0)]
)
def test_every_action_is_tried_whatever_the_size_of_rewards(size: float, shift: float) -> None:
    """Without a range, with rewards that are late. Whoever was tried first got everything for ever."""
    rng, names = np.random.default_rng(0), ["ann", "ben", "cid", "dan"]
    means, counts = shift + size * np.array([0.5, 0.6, 0.7, 0.55]), dict.fromkeys(names, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        agent, waiting = ffx.Agent(actions=names, seed=0), []
        for _ in range(300):
            waiting.append(agent.decide())
            counts[waiting[-1].name] += 1
            if len(waiting) > 20:
                decision = waiting.pop(0)
                reward = means[decision.action] + 0.1 * size * rng.standard_normal()
                agent.observe(decision, reward=float(reward))
        assert min(counts.values()) >= 2
        agent.add_actions("eve")
    assert agent.policy()[-1] <= 2 / 5 or size > 1.0
    assert agent.record_of("eve").effect == 0.0
    assert abs(agent.prior.mean - means.mean()) < size


@pytest.mark.parametrize("partners", ["differ", "alike"])
@pytest.mark.parametrize("own", [0, 1, 5])
def test_a_member_with_few_own_rewards_learns_the_mean_from_partners(own: int, partners: str) -> None:
    """Over 20 seeds, of four actions the one that nobody has tried gets from half to 1.5 times the average.

    With the mean of own rewards alone it was 0.01 to 0.48 on the mean instead of 0.26 to 0.32.
    """
    shares, names = [], ["a", "b", "c", "new"]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        member = ffx.Agent(actions=names, partners=partners, seed=0, name="m0")
        if own:
            member.learn([names[k] for k in rng.integers(0, 3, own)], rng.integers(0, 2, own).astype(float))
        alone, others = member.prior.mean, [taught(rng, names, 3, 100, name=f"m{k}") for k in range(1, 5)]
        member.absorb({each.name: each.release() for each in others})
        shares.append(member.policy()[-1])
        # Partners who may differ send sums without names, which say less of the mean than tallies do.
        assert member.prior.mean == pytest.approx(0.5, abs=0.4 if partners == "alike" else 0.45)
        member.drop_peers([each.name for each in others])
        if own < 5:  # what they taught is forgotten with them
            assert member.prior.mean == pytest.approx(alone, rel=1e-12)
    assert 0.125 <= np.mean(shares) <= 0.375


@pytest.mark.parametrize("shift", [-70.0, 0.0, 3.0])
def test_how_high_rewards_are_changes_no_share_where_there_is_an_intercept(shift: float) -> None:
    """The first reward tells how high they are; the last few digits differ."""
    schema = Schema({"price": (0, 10), "kind": ["a", "b"]})
    rows = [{"price": price, "kind": kind} for price, kind in ((0, "a"), (10, "b"), (4, "a"))]
    shares = {}
    for added in (0.0, shift):
        rng, agent = np.random.default_rng(0), ffx.Agent(schema=schema, seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScaleWarning)
            for _ in range(64):
                row = int(rng.integers(3))
                agent.learn([rows[row]], [added + 0.1 * row + 0.1 * rng.standard_normal()])
        shares[added] = agent.policy(actions=rows)
        assert all(type(mean) is float for mean in agent.prior.mean)
    assert shares[shift] == pytest.approx(shares[0.0], abs=0.02)


@given(seeds, st.integers(1, 5), st.floats(-30.0, 30.0))
def test_names_learn_sizes_and_mean_as_the_oracle_does(seed: int, actions: int, around: float) -> None:
    """After 1, 2, 4, … rewards; several sizes may be as likely as each other. The estimate is that of the
    prior that was learnt."""
    rng, names = np.random.default_rng(seed), [f"w{k}" for k in range(actions)]
    agent, chosen, rewards = ffx.Agent(actions=names, seed=0), [], []
    given_prior = agent.options.prior
    assert given_prior is not None
    known = oracle.Prior(np.zeros(1), given_prior.sd, given_prior.noise_sd, True, np.ones(1))
    ridges = SMALLEST * 2.0 ** np.arange(POINTS)
    for count in range(1, 33):
        chosen.append(int(rng.integers(actions)))
        rewards.append(float(around + rng.normal()))
        agent.learn([names[chosen[-1]]], rewards[-1:])
        if count & (count - 1) == 0:
            records = Records(np.ones((count, 1)), np.array(chosen), np.array(rewards), actions)
            logs, variances = log_evidence(records, known, given_prior.sd, ridges, RATIOS)
            prior, own = agent.prior, agent._model.records
            assert own is not None
            times = np.bincount(chosen)
            if times[times > 1].sum() < ENOUGH:
                assert own.ratio == pytest.approx((prior.noise_sd / given_prior.sd) ** 2, rel=1e-9)
                continue
            at = (
                int(np.argmin(np.abs(np.log(ridges * (prior.sd / prior.noise_sd) ** 2)))),
                own.ratio == RATIOS,
            )
            assert logs[at].item() == pytest.approx(logs.max(), abs=1e-6)
            assert prior.noise_sd**2 == pytest.approx(variances[at].item(), rel=1e-6)
            assert (prior.noise_sd / prior.sd) ** 2 == pytest.approx(ridges[at[0]], rel=1e-9)
            belief = believe(records, known, Sizes(prior.noise_sd**2, ridges[at[0]], own.ratio))
            assert prior.mean == pytest.approx(belief.shift, rel=1e-6, abs=1e-9)
            estimate = belief.mean + belief.shift * belief.slope
            assert agent.estimate == pytest.approx(estimate[:1], rel=1e-6, abs=1e-9)
            effects = [agent.record_of(name).effect for name in names]
            assert effects == pytest.approx(estimate[1:], rel=1e-6, abs=1e-7)
