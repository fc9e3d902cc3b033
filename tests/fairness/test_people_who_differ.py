"""People who differ beyond their features: what a model of features alone takes for a change or for merit.

The same worlds (`tests/support/people.py`) are right for a model that knows each one's own record.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.fairness.change_test import ChangeTest
from own_record_reference import Records, draws, pairs
from people import OFFERED, PERSONAL, STEEPNESS, People, Played, batches, covered, judged, play
from posterior_reference import Prior


@pytest.mark.long
def test_another_mix_of_people_is_a_change_to_features_alone() -> None:
    """And none to the dense model, with a column for each name. At a rate of 1 % there are two alarms of 6
    with probability 0.15 %."""
    found = np.zeros((6, 2))
    for seed, alarms in enumerate(found):
        features, dense = ChangeTest(0.5), ChangeTest(0.5)
        for batch in batches(seed):
            features.add(batch.contexts, batch.rewards)
            dense.add(batch.with_columns(20), batch.rewards)
        alarms[:] = features.change.alarm, dense.change.alarm
    assert found[:, 0].sum() >= 4
    assert found[:, 1].sum() <= 1


@pytest.mark.long
def test_a_turned_effect_is_a_change_to_the_dense_model() -> None:
    """The world has something to find: it does at 16 of 20 seeds."""
    alarms = 0
    for seed in range(5):
        test = ChangeTest(0.5)
        for batch in batches(seed, mix=False, change="effect"):
            test.add(batch.with_columns(20), batch.rewards)
        alarms += test.change.alarm
    assert alarms >= 3


def dense_shares(played: Played, tau: float, rng: np.random.Generator) -> np.ndarray:
    """(K, 400) draws of the shares that names are due, by the oracle."""
    names = len(played.people.beyond)
    xs = np.array([np.asarray(told.contexts)[told.action] for told in played.log])
    ys = np.array([told.reward for told in played.log])
    grid = 4.0 ** np.arange(-5, 7)
    constant = np.eye(xs.shape[1])[-1]
    prior = Prior(np.zeros(xs.shape[1]), 0.3, 0.5, True, constant)
    found = draws(Records(xs, np.array(played.who), ys, names), prior, tau, grid, grid, count=400, rng=rng)
    due = np.zeros((names, 400))
    for told in played.log:
        near = np.array([played.people.names.index(name) for name in told.names or ()])
        means = pairs(np.asarray(told.contexts), near, names) @ found.T
        merit = np.exp(STEEPNESS * (means - means.max(axis=0)))
        due[near] += merit / merit.sum(axis=0)
    return due / played.sums[:, :1]


@pytest.mark.long
def test_the_oracles_intervals_hold_where_people_differ() -> None:
    """40 worlds of 40 rewards as the model assumes them: 95 %, up to three standard errors, 1 in 700."""
    parts = []
    for seed in range(40):
        rng = np.random.default_rng([seed, 8])
        played = play(People.likely(rng, 8, tau=0.3), 40, rng)
        low, high = np.quantile(dense_shares(played, 0.3, rng), [0.025, 0.975], axis=1)
        truth = played.sums[:, 3] / played.sums[:, 0]
        parts.append(np.mean((low <= truth) & (truth <= high)))
    error = np.std(parts, ddof=1) / np.sqrt(len(parts))
    assert abs(np.mean(parts) - 0.95) <= 3 * error


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::fedfairx.errors.ScaleWarning")
@pytest.mark.parametrize(("kind", "tau"), [(People.likely, 0.3), (People.of_a_city, 0.15)])
def test_features_alone_are_sure_of_what_is_not_so(kind: Callable[..., People], tau: float) -> None:
    """20 worlds of 200 rewards. Intervals hold where people do not differ, up to three standard errors; else
    they miss more than a quarter of the shares, and a fifth of the verdicts are wrong."""
    for differ in (0.0, tau):
        parts, verdicts = [], np.zeros(2)
        for seed in range(20):
            rng = np.random.default_rng([seed, 7])
            people, agent = kind(rng, 8, tau=differ), ffx.Agent(PERSONAL + OFFERED, seed=seed)
            played = play(people, 200, rng, agent=agent, told=False)
            table = ffx.exposure(played.log, merit=agent.merit, posterior=agent.posterior)
            parts.append(covered(played, table))
            verdicts += judged(played, table)
        if differ:
            assert np.mean(parts) < 0.75
            assert verdicts[1] > 0.2 * verdicts[0] > 1
        else:
            assert np.mean(parts) >= 0.95 - 3 * np.std(parts, ddof=1) / np.sqrt(len(parts))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::fedfairx.errors.ScaleWarning")
def test_own_records_are_as_sure_as_they_say() -> None:
    """60 worlds of 200 rewards, where people differ as an agent first guesses: intervals hold up to three
    standard errors, and of the verdicts a twentieth is wrong at most, up to three standard errors as if all
    of a world were wrong together. With features alone both fail."""
    parts, verdicts = np.zeros((60, 2)), np.zeros((60, 2, 2))
    for seed in range(60):
        rng = np.random.default_rng([seed, 9])
        people, agent = People.likely(rng, 8, tau=0.05), ffx.Agent(PERSONAL + OFFERED, seed=seed)
        played = play(people, 200, rng, agent=agent)
        for column, belief in enumerate((agent.posterior, by_features_alone(played))):
            table = ffx.exposure(played.log, merit=agent.merit, posterior=belief)
            parts[seed, column] = covered(played, table)
            verdicts[seed, column] = judged(played, table)
    errors = parts.std(axis=0, ddof=1) / np.sqrt(60)
    assert abs(parts[:, 0].mean() - 0.95) <= 3 * errors[0]
    assert parts[:, 1].mean() < 0.95 - 3 * errors[1]
    given, wrong = verdicts[:, 0].T
    assert given.sum() > 10
    assert wrong.sum() <= 0.05 * given.sum() + 3 * np.sqrt(0.05 * np.square(given).sum())
    assert verdicts[:, 1, 1].sum() > 0.1 * verdicts[:, 1, 0].sum()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::fedfairx.errors.ScaleWarning")
def test_people_who_differ_more_than_first_guessed() -> None:
    """Three times as much, 30 worlds of 200 rewards: the guess holds intervals back to about 85 %, where
    features alone have about half. The mean varies by 0.025 (sd)."""
    parts = np.zeros((30, 2))
    for seed in range(30):
        rng = np.random.default_rng([seed, 9])
        people, agent = People.of_a_city(rng, 8, tau=0.15), ffx.Agent(PERSONAL + OFFERED, seed=seed)
        played = play(people, 200, rng, agent=agent)
        for column, belief in enumerate((agent.posterior, by_features_alone(played))):
            table = ffx.exposure(played.log, merit=agent.merit, posterior=belief)
            parts[seed, column] = covered(played, table)
    assert parts[:, 0].mean() > 0.76
    assert parts[:, 1].mean() < 0.62


def by_features_alone(played: Played) -> ffx.Posterior:
    """What an agent without own records believes that has learnt the same."""
    agent = ffx.Agent(PERSONAL + OFFERED, seed=0, own_record=False)
    rows = [np.asarray(told.contexts)[told.action, :-1] for told in played.log]
    agent.learn(rows, [told.reward for told in played.log])
    return agent.posterior


@pytest.mark.long
def test_what_is_certain_holds_where_people_differ() -> None:
    """With columns for names, at all times with probability 95 %: in none of 20 worlds of 3 000 rewards is a
    due share outside of its interval, which is no longer everything. With features alone it would be in most,
    where people differ far: the interval is of another model."""
    outside, widths = np.zeros((20, 2)), []
    for seed in range(20):
        rng = np.random.default_rng([seed, 10])
        people = People.of_a_city(rng, 4, tau=0.3)
        played = play(people, 3_000, rng, near=3)
        agent = ffx.Agent(PERSONAL + OFFERED, seed=0)
        rows = [np.asarray(told.contexts)[told.action, :-1] for told in played.log]
        names = [people.names[k] for k in played.who]
        agent.learn(rows, [told.reward for told in played.log], names=names)
        for column, belief in enumerate((agent.posterior, by_features_alone(played))):
            table = ffx.exposure(played.log, merit=ffx.merit.Exponential(2.0), noise_sd=0.5, posterior=belief)
            assert table.by_name == (column == 0)
            assert any("differ by name" in claim for claim in table.claims()) == table.by_name
            for row in table.actions:
                due = entitled(people, played, row.name, steepness=2.0)
                outside[seed, column] += not row.entitled.low <= due <= row.entitled.high
                if not column:
                    widths.append(row.entitled.high - row.entitled.low)
    assert outside[:, 0].sum() == 0
    assert np.count_nonzero(outside[:, 1]) >= 5
    assert max(widths) < 0.5


def entitled(people: People, played: Played, name: str, *, steepness: float) -> float:
    """The mean share that a name is due where it was near."""
    due = []
    for told in played.log:
        near = np.array([people.names.index(each) for each in told.names or ()])
        merits = np.exp(steepness * people.means(near, np.asarray(told.contexts)[:, :-1]))
        place = list(told.names or ()).index(name) if name in (told.names or ()) else None
        due += [] if place is None else [merits[place] / merits.sum()]
    return float(np.mean(due))
