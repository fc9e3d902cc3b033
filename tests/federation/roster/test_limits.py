"""What can't be a sum of so many bounded records is refused; what can be is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedfairx.agent.schedules import EveryRound
from fedfairx.core.statistics import pack, packed_size, unpack
from fedfairx.errors import MessageRefused
from fedfairx.federation.roster.limits import FALSE_REFUSAL, ReleaseLimits
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Bounds, Centring, Release
from fedfairx.util.arrays import Array
from member_helpers import terms

D = 4
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "much noise": {"epsilon": 0.05},
    "little noise": {"epsilon": 50.0},
    "tree": {"mechanism": "tree"},
    "exact": {"algorithm": "fed-fairx-bayes", "epsilon": None, "schedule": EveryRound()},
    "other bounds": {"bounds": Bounds(context_norm=3.0, reward=0.2, gram_share=0.25)},
    "centred": {"centring": Centring.unit_box(D)},
    "centred far": {
        "centring": Centring(
            context=(5.0, 0.0, 0.0, -3.0), context_radius=0.5, reward=-4.0, reward_radius=1.0, constant=0.3
        )
    },
}


def agreed(**changes: Any) -> Terms:
    return terms(**({"dimension": D, "horizon": 64, "intercept": False} | changes))


def release(limits: ReleaseLimits, gram: Array, moment: Array, *, number: int = 8, count: int = 8) -> Release:
    return Release(number, pack(gram, moment), count, limits.mechanism.digest())


def why(limits: ReleaseLimits, made: Release, before: Release | None = None) -> str:
    with pytest.raises(MessageRefused) as refused:
        limits.check("org1", made, before)
    assert refused.value.reason == "absurd"
    return str(refused.value)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("records", ["largest", "random", "none", "aligned"])
@pytest.mark.parametrize("intercept", [True, False])
def test_honest_releases_pass(name: str, records: str, intercept: bool) -> None:
    """Real privatizers with real noise, at the limits of what they take: 64 releases of each, none refused.

    A right check refuses one of all these with a chance below 64 * 1e-9.
    """
    here = agreed(**SETTINGS[name], intercept=intercept)
    from fedfairx.privacy import SimulatedNoise

    privatizer = here.privatizer(SimulatedNoise(3, agent=len(name)))
    assert privatizer is not None
    rng = np.random.default_rng(0)
    before = None
    for _ in range(here.releases):
        if records != "none":
            x = rng.normal(size=here.columns) if records == "random" else np.full(here.columns, 1e6)
            if records == "largest":
                x *= rng.choice([-1.0, 1.0], size=here.columns)
            privatizer.add(x, 1e6 if records == "aligned" else float(rng.choice([-1e6, 1e6])))
        made = privatizer.release()
        here.limits.check("org1", made, before)
        before = made
    assert made.number == 64


@pytest.mark.long
def test_the_bounds_of_the_noise_hold_as_often_as_they_say() -> None:
    """At a failure of 0.3 for all 64 releases instead of 1e-9, fewer than 0.3 of 200 streams leave them.

    The count is binomial with at most 0.3: more than 85 of 200 has a chance below 1e-4.
    """
    import fedfairx.federation.roster.limits as module

    limits = agreed().limits
    mechanism = limits.mechanism
    rng = np.random.default_rng(1)
    scale = Bounds().entry_scale(D)
    usual = module.FALSE_REFUSAL
    module.FALSE_REFUSAL = 0.3
    try:
        bounds = [limits._noise(number) for number in range(1, 65)]
    finally:
        module.FALSE_REFUSAL = usual
    left = 0
    for _ in range(200):
        noise = mechanism.sample(rng, packed_size(D)) * scale  # type: ignore[attr-defined]
        for row, (matrix, vector, trace) in zip(noise, bounds, strict=True):
            gram, moment = unpack(row)
            values = np.linalg.eigvalsh(gram)
            if np.abs(values).max() > matrix or np.linalg.norm(moment) > vector or values.sum() > trace:
                left += 1
                break
    assert left <= 85
    assert FALSE_REFUSAL == 1e-9


def test_absurd_statistics_are_refused() -> None:
    limits = agreed(epsilon=8.0).limits
    matrix, vector, trace = limits._noise(8)
    nothing, eye = np.zeros(D), np.eye(D)
    limits.check("org1", release(limits, 2.0 * eye, nothing))  # eight records of length 1
    assert "more negative" in why(limits, release(limits, -1.01 * matrix * eye, nothing))
    first = np.zeros((D, D))
    first[0, 0] = 1.0
    far = release(limits, (8.0 + 1.01 * matrix) * first - 0.5 * matrix * (eye - first), nothing)
    assert "larger" in why(limits, far)
    wide = (8.0 + 1.01 * trace) / D * eye
    assert "trace" in why(limits, release(limits, wide, nothing))
    large = np.array([8.0 + 1.01 * vector, 0.0, 0.0, 0.0])
    assert "moment is larger" in why(limits, release(limits, 2.0 * eye, large))


def test_a_large_moment_beside_a_small_gram_is_refused() -> None:
    """Each is within its own limit, and together they would be an estimate far beyond any."""
    limits = agreed(epsilon=50.0, horizon=64, spare=10_000).limits
    count = 10_000
    moment = np.array([0.9 * count, 0.0, 0.0, 0.0])
    gram = np.diag([0.0, count / 2, count / 4, 0.0])
    made = release(limits, gram, moment, number=64, count=count)
    assert "contradicts" in why(limits, made)
    limits.check(
        "org1", release(limits, np.diag([0.95 * count, 0.0, 0.0, 0.0]), moment, number=64, count=count)
    )


def test_how_many_records_there_can_be() -> None:
    here = agreed(spare=5)
    eye, nothing = np.eye(D), np.zeros(D)
    here.limits.check("org1", release(here.limits, eye, nothing, number=3, count=8))
    assert "claims 9 records, at most 8" in why(
        here.limits, release(here.limits, eye, nothing, number=3, count=9)
    )
    assert "at most 64 releases" in why(here.limits, release(here.limits, eye, nothing, number=65))
    before = release(here.limits, eye, nothing, number=2, count=7)
    assert "fewer records" in why(here.limits, release(here.limits, eye, nothing, number=3, count=6), before)
    assert agreed(algorithm="b1", schedule=None).limits.records.tolist() == [128] * 64


EXACT = {"algorithm": "fed-fairx-bayes", "epsilon": None}


def test_exact_sums_of_plausible_records_are_taken() -> None:
    limits = agreed(**EXACT).limits
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, D))
    limits.check("org1", release(limits, x.T @ x, x.sum(axis=0)))
    limits.check("org1", release(limits, np.zeros((D, D)), np.zeros(D), count=0))


@pytest.mark.parametrize(
    ("gram", "moment", "count", "reason"),
    [
        (np.diag([1.0, 1.0, 1.0, -0.1]), np.zeros(D), 8, "more negative"),
        (np.eye(D), np.full(D, 1e6), 50, "moment is larger"),
        (1e190 * np.eye(D), np.zeros(D), 1, "larger trace"),
        (1e6 * np.eye(D), np.zeros(D), 0, "larger trace"),
        (np.eye(D), np.full(D, 30.0), 0, "larger trace"),
        (1e-6 * np.eye(D), np.full(D, 500.0), 4, "contradicts"),
    ],
)
def test_one_absurd_message_of_exact_sums_is_refused(
    gram: np.ndarray, moment: np.ndarray, count: int, reason: str
) -> None:
    limits = agreed(**EXACT).limits
    assert reason in why(limits, release(limits, gram, moment, count=count))


def test_exact_sums_hold_no_more_records_than_their_round() -> None:
    terms = agreed(**EXACT, spare=5)
    first = int(terms.times.rounds(terms.plan)[0])
    sums = np.eye(D), np.zeros(D)
    terms.limits.check("org1", release(terms.limits, *sums, number=1, count=first + 5))
    assert "at most" in why(terms.limits, release(terms.limits, *sums, number=1, count=first + 6))


def test_a_known_reward_range_leaves_less_room() -> None:
    moment, gram = np.array([9.0, 0.0, 0.0, 0.0]), np.diag([8.0, 0.0, 0.0, 0.0])
    agreed(**EXACT).limits.check("org1", release(agreed(**EXACT).limits, gram, moment))
    narrow = agreed(**EXACT, reward_range=(0.0, 1.0), bounds=Bounds()).limits
    assert "moment is larger" in why(narrow, release(narrow, gram, moment))
