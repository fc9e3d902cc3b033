"""Flights: what is known before a trip, that no number looks ahead, and what claims would say of others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiment_helpers import said
from fedfairx import Federation
from paper import FULL, SMOKE, Claim, Outcome, Results, Table, flights
from paper.datasets import missing
from paper.flights import (
    AIRPORTS,
    CHOSEN,
    EXPERIMENT,
    JANUARY,
    MEMBERS,
    NUMBERS,
    YEARS,
    contexts,
    earlier,
    january,
    offers,
)
from paper.offers import OffersScenario, asked, shares
from paper.partners import DIFFER, HOWS, PRIVATE_DIFFER, key
from paper.scores import Array, estimate


def year(days: int = 45, seed: int = 0) -> pd.DataFrame:
    """Made-up days of three airports, two routes and four carriers, some of which do not fly every day."""
    rng = np.random.default_rng(seed)
    rows = [
        (airport, day, dest, carrier)
        for airport in AIRPORTS
        for day in range(days)
        for dest in ("BOS", "ORD")
        for carrier in ("AA", "B6", "DL", "UA")
        if rng.random() < 0.8
    ]
    found = pd.DataFrame(rows, columns=["airport", "day", "dest", "carrier"])
    count = rng.integers(1, 6, len(found))
    return found.assign(
        flights=count, hour=rng.uniform(6.0, 22.0, len(found)), on_time=rng.binomial(count, 0.75) / count
    )


def test_earlier_punctuality_is_that_of_the_days_before():
    flown = year()
    found = earlier(flown, ["airport", "carrier"], 7, prior=0.6, weight=2.0)
    for i, row in flown.sample(120, random_state=0).iterrows():
        same = flown[(flown["airport"] == row["airport"]) & (flown["carrier"] == row["carrier"])]
        same = same[(same["day"] < row["day"]) & (same["day"] >= row["day"] - 7)]
        on_time = (same["flights"] * same["on_time"]).sum()
        assert found[i] == pytest.approx((on_time + 2.0 * 0.6) / (same["flights"].sum() + 2.0))


@pytest.mark.parametrize("numbers", NUMBERS)
def test_no_number_looks_ahead(numbers: str):
    """Nothing of a day or after it changes a context of that day; those of later days it does change."""
    flown, day = year(), JANUARY + 5
    later = flown["day"] >= day
    other = flown.assign(on_time=flown["on_time"].where(~later, 1.0 - flown["on_time"]))
    before, after = contexts(flown, numbers), contexts(other, numbers)
    until = (flown["day"] <= day).to_numpy()
    np.testing.assert_array_equal(before[until], after[until])
    assert np.abs(before[~until] - after[~until]).max() > 1e-3
    shorter = contexts(flown[~later], numbers)
    np.testing.assert_array_equal(before[(~later).to_numpy()], shorter)


def test_no_decision_looks_ahead():
    """Other flights from a day on change no decision up to that day, from the table to the draw."""
    flown, day = year(), JANUARY + 5
    other = flown.assign(on_time=flown["on_time"].where(flown["day"] < day, 1.0 - flown["on_time"]))
    made = []
    for table in (flown, other):
        trips = offers(table).between(JANUARY, JANUARY + 10)
        options = HOWS[DIFFER].options
        size = trips.contexts.shape[-1]
        fed = Federation(agents=3, dimension=size, horizon=10, reward_range=(0.0, 1.0), seed=0, **options)
        made.append(shares(fed, trips, asked(trips, 10, seed=0)))
    until = trips.days[trips.decisions] <= 5
    np.testing.assert_array_equal(made[0][until], made[1][until])
    assert np.abs(made[0][~until] - made[1][~until]).max() > 1e-3


@pytest.mark.parametrize("numbers", NUMBERS)
def test_contexts_are_in_the_unit_ball_and_begin_with_the_same_scale(numbers: str):
    found = contexts(year(), numbers)
    assert np.linalg.norm(found, axis=1).max() <= 1.0 + 1e-12
    expected = {"carriers": 3 + 4, "records": 7, "both": 7 + 4, "products": 7 + 21}
    assert found.shape[1] == expected[numbers] + 1  # the intercept


def test_a_decision_is_a_route_on_a_day():
    flown = year()
    found = offers(flown)
    count = flown.groupby(["airport", "day", "dest"]).size()
    assert found.agents.size == (count > 1).sum()
    assert found.names == ("AA", "B6", "DL", "UA")
    first = flown[(flown["airport"] == "EWR") & (flown["day"] == 0) & (flown["dest"] == "BOS")]
    np.testing.assert_array_equal(found.rewards[: len(first)], first["on_time"])
    assert [found.names[arm] for arm in found.arms[: len(first)]] == first["carrier"].tolist()


# --- scores ----------------------------------------------------------------------------------------------


def outcome(regret: Array, lost: float = 100.0, seeds: int = 10) -> Outcome:
    """Regret (airports,) at the end, with a little of the seed's own in it."""
    numbers = np.arange(seeds)
    by_agent = regret[:, None] * np.array([0.5, 1.0]) * (1.0 + 0.001 * numbers)[:, None, None]
    return Outcome(
        seeds=numbers,
        rounds=np.array([100, 334]),
        fairness_regret=by_agent.mean(axis=1),
        reward_regret=np.full((seeds, 2), lost) + 0.01 * numbers[:, None],
        syncs=np.full(seeds, 14),
        exposure=np.full((seeds, 4), 0.25),
        weakest=np.empty((seeds, 0)),
        by_agent=by_agent,
    )


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, Outcome]:
    """Weighing has 0.8 of the regret alone at every airport, in both years."""
    flown = offers(year())
    monkeypatch.setattr(flights, "evaluated", lambda _year, _size: OffersScenario.of(flown, 10))
    alone = np.array([100.0, 200.0, 300.0])
    found = {key("2023", how): outcome(alone, seeds=5 if "paper" in how else 10) for how in (*HOWS, "due")}
    found |= {key("2013", how): outcome(alone) for how in YEARS["2013"]}
    found |= {key(which, DIFFER): outcome(0.8 * alone) for which in YEARS}
    return found | {
        key(january(name), DIFFER): outcome(alone, 5.0 if name == CHOSEN else 6.0) for name in NUMBERS
    }


def verdicts(outcomes: dict[str, Outcome]) -> list[str]:
    return [claim.verdict for claim in said(EXPERIMENT, outcomes, FULL, Claim)]


def test_claims_say_what_is_true(made_up: dict[str, Outcome]):
    alone = np.array([100.0, 200.0, 300.0])
    assert verdicts(made_up) == ["holds", "holds", "holds", "holds", "holds", "undecided"]
    worse = made_up | {key("2023", DIFFER): outcome(alone * [0.8, 0.8, 1.06])}  # on the mean they gain
    assert verdicts(worse)[:4] == ["holds", "does not hold", "holds", "holds"]
    no_gain = made_up | {key("2013", DIFFER): outcome(0.95 * alone)}
    assert verdicts(no_gain)[:4] == ["holds", "holds", "does not hold", "holds"]
    hurt = made_up | {key("2023", PRIVATE_DIFFER): outcome(1.2 * alone)}
    assert verdicts(hurt)[4:] == ["does not hold", "does not hold"]


def test_ratios_are_of_the_same_seeds(made_up: dict[str, Outcome]):
    few = MEMBERS.by_member(Results(made_up), "2023", "paper")
    np.testing.assert_allclose(few, np.ones((5, 3)))


def test_the_tables_name_what_january_chose(made_up: dict[str, Outcome]):
    _, _, chosen, carriers = said(EXPERIMENT, made_up, FULL, Table)
    assert chosen.note.startswith(f"The least: {NUMBERS[CHOSEN]}.")
    other = made_up | {key(january("both"), DIFFER): outcome(np.ones(3), 1.0)}
    assert said(EXPERIMENT, other, FULL, Table)[2].note.startswith(f"The least: {NUMBERS['both']}.")
    assert [row[:2] for row in carriers.rows] == [(name, "25.0 %") for name in ("AA", "B6", "DL", "UA")]


@pytest.mark.long
@pytest.mark.skipif(bool(missing(flights.EXPERIMENT.libraries)), reason="needs the extra data")
def test_january_tells_of_no_better_numbers_than_those_that_are_used():
    runs = {run.key: run for run in flights.runs(SMOKE) if run.key.startswith("January")}  # of any size
    outcomes = {name: run.play(run, range(10)) for name, run in runs.items() if run.play is not None}
    lost = {name: MEMBERS.lost(Results(outcomes), key(january(name), DIFFER)) for name in NUMBERS}
    assert all(estimate(lost[CHOSEN] - others).low <= 0.0 for others in lost.values())
    assert estimate(lost["products"] - lost[CHOSEN]).low > 0.0  # it does tell some apart
