"""Recorded offers: what arms are due, what is asked of agents, and that nobody looks ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfairx import Federation
from paper import Outcome, Run
from paper.offers import Offers, OffersScenario, asked, due, hindsight, play, shares
from paper.scores import Array

AGENTS, DAYS, DAILY, ARMS = 2, 8, 5, ("ann", "ben", "cid", "dora")


def made_up(seed: int = 0) -> Offers:
    """Some decisions among two to four arms, for two agents whose θ differ; one has a single arm."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(AGENTS * DAYS * DAILY):
        agent, day = number % AGENTS, number // AGENTS % DAYS
        count = 1 if number == 3 else int(rng.integers(2, 5))
        rows += [(number, agent, day, arm) for arm in rng.permutation(len(ARMS))[:count]]
    rng.shuffle(rows)  # in any order
    numbers, agents, days, arms = (np.array(column) for column in zip(*rows, strict=True))
    contexts = rng.random((len(rows), 3)) / np.sqrt(3)
    theta = np.array([[0.9, 0.1, 0.2], [0.1, 0.8, 0.4]])
    means = (contexts * theta[agents]).sum(axis=1)
    rewards = np.clip(means + rng.normal(0.0, 0.1, len(rows)), 0.0, 1.0)
    names = [ARMS[arm] for arm in arms]
    return Offers.of(contexts, rewards, names, decisions=numbers, agents=agents, days=days)


def run(offers: Offers, algorithm: str = "fairx-bayes", each: int = 3, **options) -> Run:
    return Run("made up", OffersScenario.of(offers, each), algorithm, options, 0, play)


def rows_of(offers: Offers, decision: int) -> range:
    return range(offers.first[decision], offers.first[decision + 1])


def test_decisions_of_one_arm_are_left_out_and_the_others_are_whole():
    offers = made_up()
    assert offers.agents.size == AGENTS * DAYS * DAILY - 1
    assert np.diff(offers.first).min() >= 2
    assert offers.names == ARMS
    for decision in range(offers.agents.size):
        arms = offers.arms[list(rows_of(offers, decision))]
        assert len(set(arms.tolist())) == arms.size


def test_days_between_are_counted_from_0_and_keep_their_rows():
    offers = made_up()
    part = offers.between(2, 5)
    kept = np.flatnonzero((offers.days >= 2) & (offers.days < 5))
    assert part.agents.size == kept.size
    for new, old in enumerate(kept):
        assert part.days[new] == offers.days[old] - 2
        assert part.agents[new] == offers.agents[old]
        np.testing.assert_array_equal(
            part.contexts[list(rows_of(part, new))], offers.contexts[list(rows_of(offers, old))]
        )


def literal_due(offers: Offers) -> Array:
    """What arms are due, one decision after the other; the merit doubles every 7 % of the range, nearly."""
    found = np.empty(offers.rewards.size)
    for agent in range(AGENTS):
        own = [i for i in range(offers.agents.size) if offers.agents[i] == agent]
        rows = [row for i in own for row in rows_of(offers, i)]
        x, y = offers.contexts[rows], offers.rewards[rows]
        theta = np.linalg.inv(x.T @ x) @ x.T @ y
        for i in own:
            merits = [np.exp(10.0 * offers.contexts[row] @ theta) for row in rows_of(offers, i)]
            found[list(rows_of(offers, i))] = np.array(merits) / sum(merits)
    return found


def test_due_is_the_fair_policy_of_each_agents_own_least_squares():
    offers = made_up()
    np.testing.assert_allclose(due(offers), literal_due(offers), rtol=1e-9)
    assert hindsight(offers).std() > 0.05


def test_every_agent_is_asked_at_most_so_often_a_day_and_never_twice():
    offers = made_up()
    first, again, other = (asked(offers, 3, seed) for seed in (0, 0, 1))
    for day, numbers in enumerate(first):
        assert (offers.days[numbers] == day).all()
        for agent in range(AGENTS):
            there = int(((offers.days == day) & (offers.agents == agent)).sum())
            assert (offers.agents[numbers] == agent).sum() == min(3, there)
    made = np.concatenate(first)
    assert np.unique(made).size == made.size
    np.testing.assert_array_equal(made, np.concatenate(again))
    assert np.concatenate(other).tolist() != made.tolist()


def federation(**options) -> Federation:
    return Federation(agents=AGENTS, dimension=3, horizon=DAYS, reward_range=(0.0, 1.0), seed=4, **options)


SHARING = {"algorithm": "fed-fairx-bayes", "schedule": "every-round", "partners": "differ"}


def test_agents_decide_a_whole_day_before_they_learn_it_and_then_share():
    offers = made_up()
    by_day = asked(offers, 3, seed=0)
    found, fed, expected = shares(federation(**SHARING), offers, by_day), federation(**SHARING), {}
    for numbers in by_day:
        for place, agent in enumerate(fed.agents):
            made = []
            for i in (int(i) for i in numbers if offers.agents[i] == place):
                rows = list(rows_of(offers, i))
                made.append((agent.decide(offers.contexts[rows]), rows))
                expected |= dict(zip(rows, made[-1][0].policy, strict=True))
            for decision, rows in made:
                agent.observe(decision, reward=offers.rewards[rows[decision.action]])
        fed.synchronise()
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(found)), sorted(expected))
    for row, share in expected.items():
        assert found[row] == share


@pytest.mark.parametrize("options", [{"algorithm": "fairx-bayes"}, SHARING])
def test_nobody_looks_ahead(options):
    """Other rewards from a day on change no decision up to that day; those after it they do change."""
    offers, day = made_up(), 4
    later = offers.days[offers.decisions] >= day
    other = replace(offers, rewards=np.where(later, 1.0 - offers.rewards, offers.rewards))
    by_day = asked(offers, 3, seed=0)
    one, two = (shares(federation(**options), each, by_day) for each in (offers, other))
    until = offers.days[offers.decisions] <= day
    np.testing.assert_array_equal(one[until], two[until])
    after = ~until & ~np.isnan(one)
    assert np.abs(one[after] - two[after]).max() > 1e-3


def test_regret_is_what_a_loop_over_decisions_finds():
    offers = made_up()
    played = run(offers)
    outcome = play(played, (7,))
    by_day, fair = asked(offers, 3, seed=7), literal_due(offers)
    options = {"reward_range": (0.0, 1.0), "algorithm": "fairx-bayes", "intercept": False}
    fed = Federation(agents=AGENTS, dimension=3, horizon=DAYS, seed=7, **options)
    shown = shares(fed, offers, by_day)
    fairness, reward = np.zeros((AGENTS, DAYS)), np.zeros((AGENTS, DAYS))
    given = dict.fromkeys(ARMS, 0.0)
    for day, numbers in enumerate(by_day):
        for i in numbers:
            rows = list(rows_of(offers, i))
            fairness[offers.agents[i], day] += sum(abs(shown[row] - fair[row]) for row in rows)
            best = max(offers.rewards[row] for row in rows)
            reward[offers.agents[i], day] += best - sum(shown[row] * offers.rewards[row] for row in rows)
            for row in rows:
                given[offers.names[offers.arms[row]]] += shown[row]
    total = sum(len(numbers) for numbers in by_day)
    assert outcome.rounds.tolist() == list(range(1, DAYS + 1))
    np.testing.assert_allclose(outcome.by_agent[0], fairness.cumsum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(outcome.fairness_regret[0], fairness.mean(axis=0).cumsum(), rtol=1e-9)
    np.testing.assert_allclose(outcome.reward_regret[0], reward.mean(axis=0).cumsum(), rtol=1e-9)
    np.testing.assert_allclose(outcome.exposure[0], [given[name] / total for name in ARMS], rtol=1e-9)


def test_what_is_due_has_no_fairness_regret_and_what_others_lose_it_loses_too():
    due_ones = play(run(made_up(), "due"), (0, 1))
    assert isinstance(due_ones, Outcome)
    assert due_ones.by_agent.max() == 0.0
    assert due_ones.reward_regret[:, -1].min() > 0.0
    np.testing.assert_allclose(due_ones.exposure.sum(axis=1), 1.0)


def test_the_identity_of_a_run_depends_on_the_data():
    offers = made_up()
    changed = replace(offers, rewards=np.where(np.arange(offers.rewards.size) == 9, 0.123, offers.rewards))
    first, again, other = (run(each).identity("x") for each in (offers, made_up(), changed))
    assert first == again
    assert first != other
