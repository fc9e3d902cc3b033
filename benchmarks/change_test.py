"""Which changes of merit the test of a service finds, after how many rewards: rewards of 0 and 1.

A batch of rewards is as large as a service makes it. After 2 000 rewards the merit of one action of K falls,
of all of them, or θ of d features, and 4 000 more rewards come. It prints in how many of 60
worlds there is an alarm by then, the median of the rewards until the alarm, and how many a test finds that is
told the moment and is made once, at the end, with the same error of 1 %: a likelihood ratio of two parameters
against one. The last rows are worlds without a change, in which an alarm is false.

    python benchmarks/change_test.py --quick
    python benchmarks/change_test.py
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from scipy.stats import chi2

from fedfairx.fairness.change_test import ERROR, ChangeTest, batch_of
from fedfairx.util.formatting import text_table

BEFORE = 2_000
AFTER = (1_000, 4_000)
#: How many actions or features, whether they are features, and how many change.
WORLDS = {
    "one of 3 actions": (3, False, 1),
    "one of 20 actions": (20, False, 1),
    "all of 20 actions": (20, False, 20),
    "5 features": (5, True, 5),
}
CHANGES = (0.4, 0.2, 0.1)


def world(
    seed: int, size: int, features: bool, changing: int, change: float
) -> tuple[int | None, list[bool]]:
    """Rewards until an alarm, if any, and whether the test that is made once finds the change by each end."""
    rng = np.random.default_rng(seed)
    rounds = BEFORE + AFTER[-1]
    if features:
        contexts = rng.random((rounds, size))
        first = rng.uniform(0.6, 0.9, size) / size
        second = first - change / size * 2.0 * (rng.random(size) < 0.5)  # on average `change` of the merit
    else:
        contexts = np.eye(size)[rng.integers(size, size=rounds)]
        first = rng.uniform(0.5, 0.9, size)
        second = first - change * (np.arange(size) < changing)
    merits = np.where(np.arange(rounds) < BEFORE, contexts @ first, contexts @ second)
    rewards = (rng.random(rounds) < merits).astype(float)
    test, batch, alarm = ChangeTest(0.5, separate=not features), batch_of(size), None
    for at in range(0, rounds - batch + 1, batch):
        test.add(contexts[at : at + batch], rewards[at : at + batch])
        if test.change.alarm:
            alarm = at + batch
            break
    return alarm, [once(contexts[: BEFORE + more], rewards[: BEFORE + more]) for more in AFTER]


def once(contexts: np.ndarray, rewards: np.ndarray) -> bool:
    """Whether two parameters, before and after the moment, fit better than one, with an error of 1 %."""
    size, parts = contexts.shape[1], (slice(0, BEFORE), slice(BEFORE, None), slice(None))
    errors = []
    for part in parts:
        theta, *_ = np.linalg.lstsq(contexts[part], rewards[part])
        errors.append(float(np.square(rewards[part] - contexts[part] @ theta).sum()))
    variance = (errors[0] + errors[1]) / (len(rewards) - 2 * size)
    return (errors[2] - errors[0] - errors[1]) / variance > chi2.ppf(1.0 - ERROR, size)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="3 worlds each instead of 60")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    seeds = range(3 if given.quick else 60)
    rows: list[list[object]] = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for name, values in WORLDS.items():
            for change in (*CHANGES, 0.0):
                size, features, changing = values
                try_one = partial(world, size=size, features=features, changing=changing, change=change)
                found = list(pool.map(try_one, seeds))
                told = [alarm - BEFORE for alarm, _ in found if alarm is not None]
                cells = [
                    f"{sum(each <= more for each in told)} ({sum(by_then[i] for _, by_then in found)})"
                    for i, more in enumerate(AFTER)
                ]
                median = f"{np.median(told):.0f}" if 2 * len(told) > len(found) else "–"
                rows.append([name, f"{change:g}", *cells, median])
    print(text_table(["what changes", "by", *(f"{more} after" for more in AFTER), "median"], rows))


if __name__ == "__main__":
    main()
