"""Exp 10: partners who differ. Does joining still not hurt where members' θ are not the same?"""

from collections.abc import Iterator
from dataclasses import replace

from fedfairx.evaluation import Estimate
from paper import figures, partners
from paper import world as env
from paper.experiment import OURS, Experiment, Part, Picture, Results, Run, Size, glossary
from paper.partners import ALIKE, ALONE, DIFFER, HOWS, JOINING, PRIVATE_DIFFER, SELDOM
from paper.scores import Claim, Table, below, judge, worst

DISTANCES = (0.0, 0.1, 0.3, 1.0)
LONGEST = 20_000  # rounds: what differs shows early
NO_WORSE, NEAR_BEST = 1.02, 1.03


def key(how: str, distance: float) -> str:
    """The name of a run."""
    return f"{how}, {distance:g}"


def runs(size: Size) -> Iterator[Run]:
    """Alone, and together in four ways, where members' θ are so far from a common one."""
    least = partners.SEEDS if size.full else 0
    world = env.scenario(replace(size, horizon=min(size.horizon, LONGEST)))
    for distance in DISTANCES:
        for how in JOINING:
            options = {**HOWS[how].options, **(SELDOM if how != ALONE else {})}  # as the private ones have it
            apart = replace(world, distance=distance)
            yield Run(key(how, distance), apart, HOWS[how].algorithm, options, least)


def over_best(r: Results, how: str, distance: float) -> Estimate:
    """Regret over that of the better of alone and taken for alike, by their means."""
    others = [key(other, distance) for other in (ALONE, how.replace(DIFFER, ALIKE))]
    return r.over(key(how, distance), min(others, key=r.mean))


def report(r: Results, size: Size) -> Iterator[Part]:
    """Regret over that alone, and over the better of alone and pooled, by distance."""
    tried = [(how, distance) for how in (DIFFER, PRIVATE_DIFFER) for distance in DISTANCES]
    alone = {f"{how} at {d:g}": r.over(key(how, d), key(ALONE, d)) for how, d in tried}
    best = {f"{how} at {d:g}": over_best(r, how, d) for how, d in tried}
    for statement, ratios, limit, than in (
        ("joining hardly hurts at any distance that was tried", alone, NO_WORSE, "that alone"),
        ("and is near the better of alone and pooled", best, NEAR_BEST, "the better of the two"),
    ):
        where, most = worst(ratios)
        also = ", with and without privacy" * (ratios is alone)
        criterion = f"regret is at most {limit:g} times {than} at every distance{also}"
        yield Claim(statement, criterion, f"worst: {where}: {most}", judge(ratios, high=limit))
    alike, note = alone["differ at 0"], " at distance 0, without privacy"
    yield below("partners who are alike gain as before", "regret over that alone", alike, 0.5, note=note)
    yield Table(
        "Fairness regret at T by distance",
        ("distance of a member's θ from the common one", *(HOWS[how].label for how in JOINING)),
        [(f"{d:g}", *(r.regret(key(how, d)) for how in JOINING)) for d in DISTANCES],
        f"ten agents, geometric schedule, exact sums or (ε, δ) = ({partners.EPSILON:g}, 10⁻⁶) and own ones; "
        f"T = {min(size.horizon, LONGEST)}",
    )

    figure, (axes,) = figures.canvas(width=6.4, height=3.6)
    places = range(len(DISTANCES))  # the first place is no distance at all
    ends = [
        figures.draw_points(axes, places, [r[key(how, d)].final() for d in DISTANCES], *HOWS[how][2:])
        for how in JOINING
    ]
    figures.log_ticks(axes.yaxis)
    axes.set_xticks(places, [f"{distance:g}" for distance in DISTANCES])
    axes.set(xlabel="distance of each member's θ from a common one", ylabel="fairness regret at T")
    figures.end_labels(axes, ends)
    yield Picture(
        "exp10-partners",
        "Exp 10, fairness regret at T against how far members' θ are apart. Pooled as alike, as the paper "
        "does, partners who differ make everybody worse; where each learns from its own rewards how far the "
        "others speak of its own θ, joining helps where they agree and costs next to nothing where not.",
        figure,
    )


QUESTION = "Does joining still not hurt where members' θ are not the same?"
WORDS = glossary("expected merit")
EXPERIMENT = Experiment("exp10", "Partners who differ", QUESTION, runs, report, OURS, WORDS)
