"""Exp 6: starvation. Of actions that stay, who is shown how often?"""

from collections.abc import Iterator

import numpy as np

from paper import figures
from paper.experiment import OURS, Experiment, Part, Picture, Results, Run, Size, glossary
from paper.figures import COLOURS
from paper.scores import Array, Claim, Table, estimate, judge, number
from paper.slots import ranked_due
from paper.worlds import MERIT, PAPER, PERSISTENT, RULES, WORLDS, least_seeds, world_run

HOWS = {"alone": "alone", "fed": "together"}
# Label, colour and marker of each policy.
POLICIES = {
    "linucb": ("LinUCB", COLOURS["linucb"], "v"),
    "minimum-share": ("minimum share", COLOURS["minimum-share"], "D"),
    PAPER: ("paper's rule", RULES[PAPER].colour, "s"),
    MERIT: ("expected merit", RULES[MERIT].colour, "o"),
}
STARVED, SERVED = 0.5, 0.9
FLOOR = 0.004  # of the figure: what is below is drawn there
WORLD = WORLDS[PERSISTENT]


def runs(size: Size) -> Iterator[Run]:
    """Every policy, alone and together, with exposure measured."""
    for name in POLICIES:
        for how in HOWS:
            key = f"{name}, {how}"
            if name in RULES:
                yield world_run(PERSISTENT, name, how, size, key)
            else:  # winner takes all and the minimum share learn together as the paper's rule does
                together = {"schedule": "paper"} if how == "fed" else {}
                options = WORLD.options(PAPER, size) | together
                yield Run(key, WORLD.scenario(size, how), name, options, least_seeds(size))


def over_fair(r: Results, size: Size, name: str, how: str) -> Array:
    """(seeds, K): each rank's share over its fair share."""
    outcome = r[f"{name}, {how}"]
    return np.asarray(outcome.exposure / fair_shares(size, outcome.seeds))


def fair_shares(size: Size, seeds: Array) -> Array:
    """(seeds, K): the share of each rank under the fair policy of the true θ*, the best first."""
    return ranked_due(WORLD.scenario(size, "alone"), np.ones(1), seeds.tolist())


def report(r: Results, size: Size) -> Iterator[Part]:
    """The last action's share against its fair share; share over fair share by rank; fairness regret."""
    shares = {(name, how): over_fair(r, size, name, how) for name in POLICIES for how in HOWS}
    last = {key: estimate(values[:, -1]) for key, values in shares.items()}
    both = {name: " and ".join(f"{last[name, how].value:.2f}" for how in HOWS) for name in POLICIES}
    starved = judge({how: last["linucb", how] for how in HOWS}, high=STARVED)
    served = judge({how: last[MERIT, how] for how in HOWS}, low=SERVED)
    yield Claim(
        "winner-takes-all starves actions, fair exposure does not",
        f"of actions that stay, the last gets below {STARVED:g} of its fair share from LinUCB, and "
        f"above {SERVED:g} of it from expected merit, alone and together",
        f"alone and together: LinUCB {both['linucb']}, the paper's rule {both[PAPER]}, expected merit "
        f"{both[MERIT]} of the fair share",
        served if starved == "holds" else starved,
    )
    world, usual = WORLD.scenario(size, "fed"), f"{MERIT}, alone"
    fair = fair_shares(size, r[usual].seeds).mean(axis=0)
    columns = ("policy", "agents learn", "share of the best action", "share of the last action")
    over = ("last action, over its fair share", "the same in the worst seed", "fairness regret at T")
    rows = []
    for (name, how), values in shares.items():
        run = f"{name}, {how}"
        ends = [estimate(r[run].exposure[:, rank]) for rank in (0, -1)]
        worst = f"{values[:, -1].min():.3f}"
        rows.append((POLICIES[name][0], HOWS[how], *ends, last[name, how], worst, r.regret(run)))
    yield Table(
        f"Exposure of {world.arms} actions that stay, by rank of merit; one agent alone or {world.agents} "
        f"together, T = {number(world.horizon)}, {r.seeds(usual)} seeds",
        (*columns, *over),
        rows,
        f"Fair shares: best {number(fair[0])}, last {number(fair[-1])}.",
    )

    figure, panels = figures.canvas(panels=3, width=10.4, height=3.7)
    for axes, how, letter in zip(panels, HOWS, "ab", strict=False):
        figures.by_rank(axes, {name: shares[name, how] for name in POLICIES}, POLICIES, FLOOR)
        axes.set_title(f"({letter}) who is shown, agents learn {HOWS[how]}")
    panels[0].set_ylabel("share of exposure, over the fair share")
    axes, regrets = panels[2], {(name, how): r.regret(f"{name}, {how}") for name, how in shares}
    for (name, how), regret in regrets.items():
        alone, (_, colour, marker) = how == "alone", POLICIES[name]
        place = len(POLICIES) - 1 - list(POLICIES).index(name) + (0.12 if alone else -0.12)
        style = {"color": colour, "mfc": colour if alone else "white", "marker": marker, "ms": 6}
        figures.mark(axes, place, [regret], across=True, capsize=3, **style)
    axes.set_yticks(range(len(POLICIES)), [label for label, _, _ in reversed(POLICIES.values())])
    means = [regret.value for regret in regrets.values()]
    figures.log_ticks(axes.xaxis, (0.5 * min(means), 1.5 * max(means)))
    axes.set(
        ylim=(-0.5, len(POLICIES) - 0.5),
        xlabel="fairness regret at T",
        title="(c) what it costs; open: together",
    )
    figures.legend_below(figure, panels[0])
    yield Picture(
        "exp6-starvation",
        "Exp 6, exposure by rank of merit over the fair share (dashed: 1 is fair), of ten actions that stay. "
        "LinUCB gives all to the action with the largest upper bound; the minimum-share policy adds a floor "
        "of 0.02 for each action (after Patil et al. 2020), whatever its merit. What is below "
        f"{FLOOR:g} is drawn there.",
        figure,
    )


QUESTION = (
    "Of actions that stay, who is starved of exposure by winner-takes-all and by optimism, and does a "
    "minimum share mend it?"
)
WORDS = glossary("the paper's rule", "expected merit")
EXPERIMENT = Experiment("exp6", "Starvation", QUESTION, runs, report, OURS, WORDS)
