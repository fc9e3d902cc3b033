"""Exp 9: how to explore fairly: the paper's rule and others in many worlds; when joining pays."""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedfairx.evaluation import Estimate
from paper import figures, late, people, scores, worlds
from paper import world as env
from paper.experiment import METRICS, OURS, REWARD, Experiment, Part, Picture, Results, Run, Size, glossary
from paper.figures import power
from paper.scores import Array, Claim, Headline, Table, below, judge, listed, number, worst
from paper.worlds import GREEDY, HOWS, MERIT, ONE_HOT, PAPER, RULES, WIDE, WORLDS, key, rules_of

QUARTER = 0.25  # of optimism's regret, that expected merit should not exceed in the paper's world
POOLED = 0.36  # of the regret alone; perfect pooling of ten is 0.316
FIFTH = 0.2  # of optimism's regret, among actions that stay
SERVED, SERVED_FROM = 0.7, 500  # the weakest action's share over its due, on the mean, from this round on
NEVER_BELOW, NEVER_FROM = 0.3, 5_000  # in no seed
TOP = 2.0  # of an axis of shares; early on, when all are shown alike, the weakest is far beyond it
# Joining a private federation.
EPSILONS = {0.1: "#D55E00", 1.0: "#E69F00", 2.0: "#56B4E9", 10.0: "#0072B2"}  # with their colours
DELTAS = (0.1, 1e-6)
SHORT = 10_000
CROWDS = {2: "#AA3377", env.AGENTS: "#009E73", 40: "#0072B2"}  # numbers of agents, with their colours
CROWD_DELTA = 1e-6
HARMLESS = 1.02  # times learning alone, which joining should never exceed


def runs(size: Size) -> Iterator[Run]:
    """The paper's world at its size, every rule in every world, late rewards, and joining."""
    for rule, how in product((PAPER, MERIT), HOWS):
        private = {"epsilon": env.EPSILON, "delta": env.DELTA, "decide_from": "released"}
        options: Mapping[str, Any] = private if how == "priv" else {}
        if rule == PAPER:  # clipped around the middle of its box, as the other's
            run = env.run("", env.scenario(size), RULES[PAPER].algorithm(how))
            options = {**run.options, "centring": "scenario"} if how == "priv" else run.options
        least = worlds.least_seeds(size, worlds.FEWER if how == "priv" else worlds.SEEDS)
        yield Run(key("paper", rule, how), env.scenario(size), RULES[rule].algorithm(how), options, least)
    yield from worlds.world_runs(size)
    yield from late.runs(size)
    yield from people.runs(size)
    # Joining: alone, and with own+released for every budget; short federations of three sizes.
    crowds = [(horizons(size)[0], agents) for agents in CROWDS if agents != env.AGENTS]
    for horizon, agents in [*((horizon, env.AGENTS) for horizon in horizons(size)), *crowds]:
        world = env.scenario(size, horizon=horizon, agents=agents)
        # A large federation has as many agents to average over as a small one has seeds.
        least = worlds.least_seeds(size) if agents * horizon <= env.AGENTS * SHORT else 0
        yield Run(alone_key(horizon, agents), world, "fairx-bayes", {}, least)
        for delta, epsilon in product(DELTAS if agents == env.AGENTS else (CROWD_DELTA,), EPSILONS):
            private = {"epsilon": epsilon, "delta": delta, "decide_from": "own+released"}
            name = joined_key(horizon, epsilon, delta, agents)
            yield Run(name, world, "priv-fairx-bayes", private, least)


def horizons(size: Size) -> tuple[int, ...]:
    """A short federation and a long one; of a reduced size, only one."""
    return tuple(sorted({min(size.horizon, SHORT), size.horizon}))


def alone_key(horizon: int, agents: int = env.AGENTS) -> str:
    return f"{agents} alone for {horizon}"


def joined_key(horizon: int, epsilon: float, delta: float, agents: int = env.AGENTS) -> str:
    return f"{agents} joined for {horizon}, ε={epsilon:g}, δ={delta:g}"


# --- what is asked of the results ------------------------------------------------------------------------


def against(r: Results, world: str, how: str, rule: str = MERIT, other: str = PAPER) -> Estimate:
    """Fairness regret of a rule over that of another, by default the paper's at half its radius."""
    return r.over(key(world, rule, how), key(world, other, how))


def weakest_after(r: Results, rule: str, first: int) -> Array:
    """(seeds, points) of the weakest one-hot action after a round; of a run that was shorter, the last."""
    outcome = r[key(ONE_HOT, rule, "alone")]
    points = outcome.rounds > first
    points[-1] = True
    return np.asarray(outcome.weakest[:, points])


def least_mean(r: Results, rule: str) -> float:
    """The least share of the weakest action over what it is due, of the mean over seeds."""
    return float(weakest_after(r, rule, SERVED_FROM).mean(axis=0).min())


def joining(r: Results, size: Size) -> dict[tuple[float, float, int], Estimate]:
    """Joining over learning alone, by δ, ε and T."""
    return {
        (delta, epsilon, horizon): r.over(joined_key(horizon, epsilon, delta), alone_key(horizon))
        for horizon, delta, epsilon in product(horizons(size), DELTAS, EPSILONS)
    }


def over_time(r: Results, horizon: int) -> dict[float, Array]:
    """(seeds, points) by ε: regret so far among ten, over that of learning alone."""
    alone = r[alone_key(horizon)].fairness_regret
    return {e: r[joined_key(horizon, e, CROWD_DELTA)].fairness_regret / alone for e in EPSILONS}


def _precise(value: Estimate) -> str:
    """An estimate with three decimals."""
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


# --- what the report says --------------------------------------------------------------------------------


def report(r: Results, size: Size) -> Iterator[Part]:
    """Expected merit against optimism: in the paper's world, among actions that stay, where it might fail."""
    left = {how: f"{100 * against(r, 'paper', how).value:.0f} % {HOWS[how]}" for how in HOWS}
    yield Headline(
        "Showing each action in proportion to its expected merit, and not, as the paper's rule does, to its "
        "merit under the most promising of the plausible parameters, leaves of the fairness regret after "
        f"{number(size.horizon)} rounds {left['alone']}, {left['fed']} and {left['priv']}. Of eight actions "
        f"that stay, the weakest sinks to {least_mean(r, PAPER):.2f} of its fair share under the paper's "
        f"rule, and to {least_mean(r, MERIT):.2f} under ours (the least after round {number(SERVED_FROM)}, "
        "means over seeds)."
    )
    yield from _claims(r, size)
    yield from _tables(r, size)
    yield _beside_greedy(r)
    yield _pays(r, size)
    yield _summary_figure(r, size)
    yield _worlds_figure(r)
    yield _weakest_figure(r)
    yield late.picture(r)
    yield people.picture(r)
    yield _joining_figure(r, size)


def _claims(r: Results, size: Size) -> Iterator[Claim]:
    quarter = "expected merit has at most a quarter of optimism's fairness regret"
    regrets = {how: against(r, "paper", how) for how in ("alone", "fed")}
    yield below(f"{quarter}, alone", "fairx-bayes over fairx-linucb", regrets["alone"], QUARTER)
    yield below(f"{quarter}, together", "fed-fairx-bayes over fed-fairx-linucb", regrets["fed"], QUARTER)
    pooled = r.over(key("paper", MERIT, "fed"), key("paper", MERIT, "alone"))
    yield below(
        "expected merit gains from learning together as optimism does",
        "fed-fairx-bayes over fairx-bayes",
        pooled,
        POOLED,
        f"{pooled}; perfect pooling would give 1/√m = {1 / math.sqrt(env.AGENTS):.3f}",
    )
    radii = {"radius × 1": WIDE, "radius × 0.5": PAPER}
    yield below(
        "of eight actions that stay, a fifth of optimism's fairness regret",
        "it over the paper's rule",
        {radius: against(r, ONE_HOT, "alone", other=other) for radius, other in radii.items()},
        FIFTH,
        note=" at either radius",
    )
    mean = least_mean(r, MERIT)
    ours, theirs = (weakest_after(r, rule, NEVER_FROM).min(axis=1) for rule in (MERIT, PAPER))  # by seed
    yield Claim(
        "the weakest of eight actions that stay is not starved",
        f"of its fair share, at least {SERVED:g} at every point after round {number(SERVED_FROM)}, mean over "
        f"seeds, and at least {NEVER_BELOW:g} in every seed after round {number(NEVER_FROM)}",
        f"least on the mean {mean:.2f}, least of a seed {ours.min():.2f}; below {NEVER_BELOW:g} in "
        f"{(ours < NEVER_BELOW).sum()} of {ours.size} seeds (the paper's rule, radius × 0.5: "
        f"{(theirs < NEVER_BELOW).sum()}, least {theirs.min():.2f})",
        "holds" if mean >= SERVED and ours.min() >= NEVER_BELOW else "does not hold",
    )
    over = {
        f"{world.label}, {HOWS[how]}": against(r, name, how) for name, world in WORLDS.items() for how in HOWS
    }
    where, most = worst(over)
    worse = {name: each for name, each in over.items() if scores.outside(each, high=1.0)}
    yield Claim(
        "in no world is expected merit worse than the paper's rule",
        f"nowhere in Exp 9's {len(WORLDS)} worlds, alone, together or private, does the 95 % interval of its "
        "fairness regret over the paper's rule's (radius × 0.5) lie above 1",
        f"worse in: {listed(worse)}" if worse else f"worst: {where}: {most}",
        judge(over, high=1.0, by="doubt"),
    )
    yield from late.claims(r)
    yield from people.claims(r)
    joined = {
        f"T = {number(horizon)}, (ε, δ) = ({epsilon:g}, {power(delta)})": each
        for (delta, epsilon, horizon), each in joining(r, size).items()
    }
    where, most = worst(joined)
    yield Claim(
        "expected merit: joining hardly hurts, also at (0.1, 10⁻⁶)",
        f"own+released over learning alone: its 95 % interval lies below {HARMLESS:g} for every T, ε and δ",
        f"worst at {where}: {_precise(most)}",
        judge(joined, high=HARMLESS, by="interval"),
    )


def _tables(r: Results, size: Size) -> Iterator[Table]:
    count, private = (r.seeds(key("paper", MERIT, how)) for how in ("alone", "priv"))
    labels = [rule.label for rule in RULES.values()]
    yield Table(
        f"The paper's world at T = {number(size.horizon)}, m = {env.AGENTS}, {count} seeds (private: "
        f"{private})",
        ("rule", "agents learn", "fairness regret", "reward regret"),
        [
            (RULES[rule].label, text, *(r.regret(key("paper", rule, how), metric) for metric in METRICS))
            for rule in (PAPER, MERIT)
            for how, text in HOWS.items()
        ],
        "Private from the releases alone, records centred at the middle of their public box. Reward regret "
        "is against the fair policy: optimism earns more than its fair share by favouring good actions.",
    )
    yield from (_worlds_table(r, how) for how in HOWS)
    yield Table(
        "What the weakest action is shown over what it is due, alone: first half → second half of the rounds",
        ("world", *labels),
        [(world.label, *(_halves(r, name, rule) for rule in RULES)) for name, world in WORLDS.items()],
        "Where contexts are redrawn every round, the weakest is the action that is last in its round.",
    )
    yield from late.tables(r)
    yield people.table(r)
    seeds, over = {horizon: r.seeds(alone_key(horizon)) for horizon in horizons(size)}, joining(r, size)
    yield Table(
        "Joining a private federation of ten: fairness regret at T over that of learning alone",
        ("ε, δ", *(f"T = {number(horizon)} ({count} seeds)" for horizon, count in seeds.items())),
        [
            (f"{epsilon:g}, {power(delta)}", *(_precise(over[delta, epsilon, horizon]) for horizon in seeds))
            for delta, epsilon in product(DELTAS, EPSILONS)
        ],
        "Expected merit, own+released: the agent's own exact data and the others' releases by their worth.",
    )


def _worlds_table(r: Results, how: str) -> Table:
    """Fairness regret of every rule in every world, and reward regret behind it."""
    rules, rows = rules_of(how), []
    for name, world in WORLDS.items():
        long = f"{number(r[key(name, MERIT, how)].rounds[-1])} × {1 if how == 'alone' else world.agents}"
        tried = [key(name, rule, how) for rule in rules]
        rows.append(
            (world.label, long, *(f"{r.regret(run)}; {number(r.mean(run, REWARD))}" for run in tried))
        )
    decide_from = "; ".join(f"{RULES[rule].label}: {text}" for rule, text in worlds.DECIDE_FROM.items())
    fewer = " and ".join(RULES[rule].label for rule in rules if rule not in worlds.JUDGED)
    return Table(
        f"Fairness regret [95 % interval]; reward regret. Agents learn {HOWS[how]}; "
        f"{r.seeds(key(ONE_HOT, MERIT, how))} seeds",
        ("world", "T × m", *(RULES[rule].label for rule in rules)),
        rows,
        f"{decide_from}."
        if how == "priv"
        else f"At full size {fewer} have {worlds.FEWER} seeds, except alone among actions without features.",
    )


def _halves(r: Results, world: str, rule: str) -> str:
    """What the weakest action is shown in the first half of the rounds, and in the second."""
    values = r[key(world, rule, "alone")].weakest
    split = np.array_split(values, 2, axis=1) if values.shape[1] > 1 else [values, values]
    return " → ".join(f"{np.nanmean(half):.2f}" for half in split)


def _beside_greedy(r: Results) -> str:
    """Where expected merit and its mere point estimate differ beyond chance."""
    over = {
        f"{world.label}, {HOWS[how]}": against(r, name, how, other=GREEDY)
        for (name, world), how in product(WORLDS.items(), ("alone", "fed"))
    }
    differ = {name: each for name, each in over.items() if scores.side(each, 1.0) != "across"}
    return (
        "Greedy takes the estimate for the truth. Where contexts and the fair policy itself explore, that "
        "does as well as expected merit; the 95 % interval of expected merit's regret over greedy's excludes "
        f"1 in: {listed(differ) or 'no world'}."
    )


def _pays(r: Results, size: Size) -> str:
    """From which round on the whole interval lies below learning alone, for each ε; and how it begins."""
    rounds = r[alone_key(size.horizon)].rounds
    moments, early = [], []
    for epsilon, curve in over_time(r, size.horizon).items():
        gains = curve.mean(axis=0) + np.nan_to_num(scores.half_width(curve)) < 1
        late = np.flatnonzero(~gains)  # for good: a lucky moment at the start does not count
        first = 0 if late.size == 0 else late[-1] + 1
        when = f"round {number(rounds[first])}" if first < rounds.size else "not by then"
        moments.append(f"ε = {epsilon:g}: {when}")
        early.append(f"{curve[:, 0].mean():.2f}")
    return (
        "From when on private sharing among ten pays, by the 95 % interval of the regret so far (δ = "
        f"{power(CROWD_DELTA)}, planned for T = {number(size.horizon)}): {', '.join(moments)}. The first "
        f"releases are nearly all noise: at round {number(rounds[0])} the regret so far is "
        f"{', '.join(early)} times that of learning alone."
    )


# --- figures ---------------------------------------------------------------------------------------------


def _summary_figure(r: Results, size: Size) -> Picture:
    """Fairness regret of the two rules; the weakest action's share over time. The report shows it first."""
    figure, (bars, share) = figures.canvas(panels=2, width=7.8, height=3.4)
    ends = []
    for rule, shift in ((PAPER, -0.19), (MERIT, 0.19)):
        label, colour = RULES[rule].label.partition(",")[0], RULES[rule].colour
        for place, how in enumerate(HOWS):
            values, named = r[key("paper", rule, how)].final(), label if place == 0 else None
            end = figures.draw_bar(bars, place + shift, values, 0.92 * 0.38, colour, label=named)
            text, at, more = number(float(f"{values.mean():.3g}")), (place + shift, end), "offset points"
            bars.annotate(text, at, (0, 2), textcoords=more, ha="center", fontsize=8)
        outcome = r[key(ONE_HOT, rule, "alone")]
        ends.append(figures.draw_curve(share, outcome.rounds, outcome.weakest, label, colour))
    bars.set_xticks(range(len(HOWS)), ["alone", "together", "together,\nprivate"])
    bars.grid(visible=False, axis="x")
    bars.margins(y=0.12)
    bars.set_ylim(bottom=0)
    figures.thousands(bars.yaxis)
    bars.set(
        ylabel=f"fairness regret after {number(size.horizon)} rounds",
        title="(a) distance from fair shares, summed up",
    )
    bars.legend(loc="upper right")
    _finish(share, ends)
    share.set_title("(b) the weakest of eight actions that stay")
    return Picture(
        "exp9-summary",
        "The paper's rule (optimism, with the radius fitted to the paper's curves) and exposure by expected "
        f"merit. (a) Fairness regret in the paper's world, m = {env.AGENTS} agents that learn alone, "
        f"together, or together with noise that makes it private (ε = {env.EPSILON:g}, δ = {env.DELTA:g}). "
        "(b) What the weakest action is shown over what it is due, alone: mean over "
        f"{r.seeds(key(ONE_HOT, MERIT, 'alone'))} seeds with its 95 % band; 1 is fair, and at first, when "
        f"all are shown alike, it is far above {TOP:g}.",
        figure,
    )


def _finish(axes: Axes, ends: list[figures.End]) -> None:
    """Complete a panel of the weakest action's share over time."""
    figures.level(axes)
    axes.set_ylim(0, TOP)
    figures.round_axis(axes)
    axes.set_ylabel("share of exposure, over the fair share")
    figures.end_labels(axes, ends, gap=0.1)


def _worlds_figure(r: Results) -> Picture:
    """Every rule's fairness regret over the paper's rule at half its radius, by world."""
    figure, panels = figures.canvas(panels=len(HOWS), width=9.6, height=5.0)
    places = np.arange(float(len(WORLDS)))[::-1]
    for axes, (how, text) in zip(panels, HOWS.items(), strict=True):
        others = {rule: RULES[rule] for rule in rules_of(how) if rule != PAPER}
        ratios = {rule: [against(r, world, how, rule) for world in WORLDS] for rule in others}
        figures.draw_ratios(axes, places, ratios, others, 0.13)
        axes.axvline(1.0, color=RULES[PAPER].colour, lw=1.1, ls="--")
        axes.set_xscale("log")
        first = axes is panels[0]
        axes.set_yticks(places, [world.label if first else "" for world in WORLDS.values()])
        axes.set(ylim=(-0.6, len(WORLDS) - 0.4), title=text.replace("private (", "private\n("))
    limits = (min(axes.get_xlim()[0] for axes in panels), max(axes.get_xlim()[1] for axes in panels))
    for axes in panels:
        figures.log_ticks(axes.xaxis, limits)
    panels[1].set_xlabel("fairness regret at T, over that of the paper's rule at radius × 0.5 (dashed)")
    figures.legend_below(figure, panels[0])
    return Picture(
        "exp9-worlds",
        "Exp 9, fairness regret of every rule over that of the paper's rule at half its radius (left of the "
        "dashed line is better), in twelve worlds; 95 % intervals, paired seeds. Sizes are in the tables.",
        figure,
    )


def _weakest_figure(r: Results) -> Picture:
    """All rules among eight actions that stay: on the mean over seeds, and in the unluckiest seed."""
    figure, (mean, least) = figures.canvas(panels=2, width=8.2, height=3.6)
    ends = []
    for name, rule in RULES.items():
        outcome = r[key(ONE_HOT, name, "alone")]
        mean.plot(outcome.rounds, outcome.weakest.mean(axis=0), color=rule.colour, lw=1.3)
        unluckiest = outcome.weakest.min(axis=0)
        least.plot(outcome.rounds, unluckiest, color=rule.colour, lw=1.3)
        ends.append((float(unluckiest[-1]), rule.label.replace(", ", ",\n"), rule.colour))
    _finish(mean, [])
    _finish(least, ends)
    mean.set_title("(a) mean over seeds")
    least.set(title="(b) the unluckiest seed at each time", ylabel="")
    return Picture(
        "exp9-weakest",
        "Exp 9, what the weakest of eight actions that stay, known by name alone, is shown over what it is "
        "due; each agent alone; 1 (dashed) is fair. At first all are shown alike, which is far more than "
        f"the weakest is due; above {TOP:g} the curves are cut.",
        figure,
    )


def _joining_figure(r: Results, size: Size) -> Picture:
    """The ratio to learning alone over time by ε, and at the short horizon by ε and number of agents."""
    short, long = horizons(size)[0], size.horizon
    figure, (time, crowd) = figures.canvas(panels=2, width=7.6)
    rounds = r[alone_key(long)].rounds
    ends = [
        figures.draw_curve(time, rounds, curve, f"ε = {epsilon:g}", EPSILONS[epsilon])
        for epsilon, curve in over_time(r, long).items()
    ]
    figures.plain_log(time.xaxis, [10.0**k for k in range(2, 6) if rounds[0] <= 10**k <= long])
    time.set(
        xlim=(rounds[0], long),
        xlabel="round t",
        ylabel="fairness regret so far, over learning alone",
        title=f"(a) ten agents, δ = {power(CROWD_DELTA)}",
    )
    labels = []
    for agents, colour in CROWDS.items():
        joined = [joined_key(short, epsilon, CROWD_DELTA, agents) for epsilon in EPSILONS]
        over = [r.over(run, alone_key(short, agents)) for run in joined]
        figures.mark(crowd, list(EPSILONS), over, color=colour, marker="o", ms=4.5, capsize=2.5)
        labels.append((over[-1].value, f"{agents} agents", colour))
    figures.plain_log(crowd.xaxis, list(EPSILONS))
    crowd.set(xlabel="privacy budget ε", title=f"(b) T = {number(short)}, δ = {power(CROWD_DELTA)}")
    for axes, names in ((time, ends), (crowd, labels)):
        axes.set_ylim(0, 1.3)
        figures.level(axes)
        figures.end_labels(axes, names)
    seeds = ", ".join(str(r.seeds(alone_key(short, agents))) for agents in CROWDS)
    return Picture(
        "exp9-joining",
        "Exp 9, when private sharing pays: fairness regret of joining (expected merit, own+released) over "
        f"that of learning alone (dashed: 1). (a) over time, by ε, {r.seeds(alone_key(long))} seeds. (b) "
        f"by ε and the number of agents in a short federation; {seeds} seeds.",
        figure,
    )


QUESTION = (
    "What does optimism cost in fairness, and which rule of exploring costs least? Every rule in "
    f"{len(WORLDS)} worlds, {worlds.SEEDS} seeds each at full size; where rewards are late, newcomers join "
    "or one action never answers; and when joining a private federation pays."
)
WORDS = glossary("the paper's rule", "expected merit")
EXPERIMENT = Experiment("exp9", "How to explore fairly", QUESTION, runs, report, OURS, WORDS)
