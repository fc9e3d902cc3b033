"""STAR: who may go to which class, what that gives, and what its claims would say of other results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiment_helpers import said
from paper import FULL, QUICK, Claim, Outcome, Table
from paper.offers import OffersScenario
from paper.partners import ALIKE, ALONE, DIFFER, key, runs_in
from paper.star import (
    ALIKE_IN,
    EXPERIMENT,
    LINEAR,
    OF_A_CLASS,
    OF_A_PUPIL,
    PLACES,
    PRODUCTS,
    PUPILS,
    ROUNDS,
    WORLDS,
    choices,
    contexts,
    offers,
)


def pupils(count: int = 3000, seed: int = 0) -> pd.DataFrame:
    """Made-up pupils of two grades and eight schools, two of each place, with three classes each."""
    rng = np.random.default_rng(seed)
    school, grade, number = (rng.integers(0, top, count) for top in (8, 2, 3))
    class_ = (grade * 8 + school) * 3 + number
    teachers = np.random.default_rng(1)
    experience, master = teachers.integers(0, 40, 48).astype(float), teachers.integers(0, 2, 48)
    return pd.DataFrame(
        {
            "grade": grade,
            "place": np.array(PLACES)[school % 4],
            "school": school,
            "pupil": np.arange(count),
            "group": np.array(["small", "regular", "regular+aide"])[number],
            "class_": class_,
            "experience": experience[class_],
            "master": master[class_].astype(float),
            "girl": rng.integers(0, 2, count).astype(float),
            "free_lunch": rng.integers(0, 2, count).astype(float),
            "passed": rng.integers(0, 2, count).astype(float),
        }
    )


@pytest.mark.long
def test_a_pupil_may_go_to_the_classes_of_the_school_that_have_pupils_alike():
    given = pupils()
    found = choices(given)
    assert found["decision"].nunique() == len(given)
    for _, row in found.sample(200, random_state=0).iterrows():
        like = given[(given[ALIKE_IN] == row[ALIKE_IN].astype(float)).all(axis=1)]
        there = like[like["class_"] == row["class_"]]
        assert row["reward"] == pytest.approx(there["passed"].mean())
        assert row["small"] == float(there["group"].iloc[0] == "small")
    one = found[found["decision"] == 0]
    like = given[(given[ALIKE_IN] == given.loc[0, ALIKE_IN].astype(float)).all(axis=1)]
    assert set(one["class_"]) == set(like["class_"])


def test_every_pupil_has_one_round_of_its_grade_and_rounds_are_alike():
    found = choices(pupils()).drop_duplicates("decision")
    assert (found["round"] // ROUNDS == found["grade"]).all()
    sizes = found.groupby(["place", "round"]).size()
    assert sizes.groupby("place").max().max() - sizes.groupby("place").min().min() <= 5


def test_scales_come_from_kindergarten_alone():
    known = choices(pupils())
    later = known["grade"] > 0
    other = known.assign(experience=known["experience"].where(~later, 5.0))
    for numbers in (LINEAR, PRODUCTS):
        one, two = contexts(known, numbers), contexts(other, numbers)
        np.testing.assert_array_equal(one[(~later).to_numpy()], two[(~later).to_numpy()])
        assert np.linalg.norm(one, axis=1).max() <= 1.0 + 1e-12
        assert np.abs(one - two).max() > 0.01


def test_products_are_of_all_pairs():
    known = choices(pupils())
    raw = known[OF_A_CLASS + OF_A_PUPIL].to_numpy()
    pairs = [raw[:, i] * raw[:, j] for i in range(6) for j in range(i + 1, 6)]
    expected = np.column_stack([raw, *pairs, np.ones(len(raw))])
    found = contexts(known, PRODUCTS)
    ratio = found[:, -1:]  # of the intercept, which is 1 before scaling
    np.testing.assert_allclose(found, expected * ratio, atol=1e-12)


def test_a_decision_is_a_pupil():
    found = offers(choices(pupils()), LINEAR)
    assert found.contexts.shape[1] == 7
    assert set(np.unique(found.agents)) == {0, 1, 2, 3}
    assert found.days.max() == 2 * ROUNDS - 1


def test_only_what_a_claim_judges_has_ten_seeds():
    world = OffersScenario.of(offers(choices(pupils()), LINEAR), PUPILS)
    for size, counts in ((FULL, {"w: alone": 10, "w: differ": 5}), (QUICK, {"w: alone": 3, "w: differ": 3})):
        runs = runs_in("w", world, (ALONE, DIFFER), size, judged=(ALONE,))
        assert {run.key: len(run.seeds(size.seeds)) for run in runs} == counts


def outcome(regret: float | np.ndarray, lost: float = 200.0) -> Outcome:
    numbers = np.arange(10)
    by_agent = np.ones((4, 1)) * np.reshape(regret, (-1, 1)) * np.ones((10, 1, 1))
    by_agent = by_agent * (1.0 + 0.001 * numbers)[:, None, None]
    return Outcome(
        seeds=numbers,
        rounds=np.array([160]),
        fairness_regret=by_agent.mean(axis=1),
        reward_regret=np.full((10, 1), lost * PUPILS * 160 / 1000.0) + 0.01 * numbers[:, None],
        syncs=np.zeros(10, dtype=np.int64),
        exposure=np.empty((10, 0)),
        weakest=np.empty((10, 0)),
        by_agent=by_agent,
    )


def test_claims_say_what_is_true():
    found = {key(LINEAR, how): outcome(100.0) for how in WORLDS[LINEAR][1]}
    found |= {key(PRODUCTS, how): outcome(100.0, 190.0) for how in WORLDS[PRODUCTS][1]}
    found |= {key(LINEAR, DIFFER): outcome(90.0), key(LINEAR, ALIKE): outcome(np.array([130.0, 90, 90, 40]))}

    def verdicts(outcomes):
        return [claim.verdict for claim in said(EXPERIMENT, outcomes, FULL, Claim)]

    assert verdicts(found) == ["holds", "does not hold", "holds", "holds"]
    lost = found | {key(LINEAR, DIFFER): outcome(np.array([107.0, 100, 100, 100]))}
    assert verdicts(lost) == ["does not hold", "does not hold", "does not hold", "holds"]
    no_help = found | {key(PRODUCTS, ALONE): outcome(100.0, 201.0)}
    assert verdicts(no_help)[3] == "does not hold"
    gain = said(EXPERIMENT, found, FULL, Table)[2].rows[0]
    assert gain[0] == "alone"
    assert gain[3].startswith("-10 ")
