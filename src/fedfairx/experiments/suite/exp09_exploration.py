"""Exp 9: how to explore fairly: the paper's rule and others in many worlds; when joining pays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import (
    FAIRNESS,
    REWARD,
    Experiment,
    Outcome,
    Outcomes,
    Picture,
    Run,
    Size,
)
from fedfairx.experiments.report.figures import canvas, error_bar, log_ticks, plain_log, power
from fedfairx.experiments.scores import (
    Claim,
    Estimate,
    Scores,
    Table,
    Verdict,
    below,
    estimate,
    holds,
    number,
    ratio,
)
from fedfairx.experiments.suite import exp09_worlds as worlds
from fedfairx.experiments.suite.exp09_worlds import HOWS, MERIT, ONE_HOT, PAPER, RULES, WORLDS, key, rules_of
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import band, end_labels, few_rounds, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUARTER = 0.25  # of optimism's regret, that expected merit should not exceed in the paper's world
POOLED = 0.36  # of the regret alone; perfect pooling of ten is 0.316
FIFTH = 0.2  # of optimism's regret, among arms that stay
SERVED, SERVED_FROM = 0.7, 500  # the weakest arm's share of what it is due, on the mean, from this round on
NEVER_BELOW, NEVER_FROM = 0.3, 5_000  # in no seed
SHORT_HOWS = {"alone": "alone", "fed": "together", "priv": "together,\nprivate"}
TOP = 2.0  # of an axis of shares; early on, when all are shown alike, the weakest is far beyond it
# Joining a private federation.
EPSILONS = (0.1, 1.0, 2.0, 10.0)
DELTAS = (0.1, 1e-6)
SHORT = 10_000
CROWDS = (2, env.AGENTS, 40)
CROWD_DELTA = 1e-6
HARMLESS = 1.02  # times learning alone, which joining should never exceed
_COLOURS = dict(zip(EPSILONS, ("#D55E00", "#E69F00", "#56B4E9", "#0072B2"), strict=True))
_CROWD_COLOURS = dict(zip(CROWDS, ("#AA3377", "#009E73", "#0072B2"), strict=True))


def runs(size: Size) -> tuple[Run, ...]:
    """The paper's world at its size, every rule in every world, and joining."""
    return (*paper_runs(size), *worlds.world_runs(size), *joining_runs(size))


def paper_runs(size: Size) -> tuple[Run, ...]:
    """The paper's rule and expected merit; private from releases alone, centred."""
    private: dict[str, Any] = {"epsilon": env.EPSILON, "delta": env.DELTA, "decide_from": "released"}
    found = []
    for rule in (PAPER, MERIT):
        for how in HOWS:
            given = env.options() if rule == PAPER else {}
            given |= private if how == "priv" else {}
            world, named = env.scenario(size), worlds.algorithm_of(rule, how)
            found.append(Run(key("paper", rule, how), world, named, given, worlds.least_seeds(size)))
    return tuple(found)


def score(outcomes: Outcomes, size: Size) -> Scores:
    """Expected merit against optimism: in the paper's world, among arms that stay, where it might fail."""
    joined = joining_scores(outcomes, size)
    claims = (*_paper_claims(outcomes), *_one_hot_claims(outcomes), _worst(outcomes))
    tables = (
        _paper_table(outcomes, size),
        *(_table(outcomes, how) for how in HOWS),
        _weakest_table(outcomes),
    )
    notes = (_beside_greedy(outcomes), *joined.notes)
    return Scores((), (*claims, *joined.claims), (*tables, *joined.tables), notes, headline(outcomes, size))


def headline(outcomes: Outcomes, size: Size) -> str:
    """What was found, in a few sentences."""
    parts = []
    for how in HOWS:
        found = ratio(outcomes[key("paper", MERIT, how)].final(), outcomes[key("paper", PAPER, how)].final())
        parts.append(f"{100 * found.value:.0f} % {HOWS[how]}")
    least = {}
    for rule in (PAPER, MERIT):
        outcome = outcomes[key(ONE_HOT, rule, "alone")]
        least[rule] = float(outcome.weakest[:, _after(outcome.rounds, SERVED_FROM)].mean(axis=0).min())
    return (
        "Showing each arm in proportion to its expected merit, and not, as the paper's rule does, to its "
        "merit under the most promising of the plausible parameters, leaves of the fairness regret after "
        f"{number(size.horizon)} rounds {', '.join(parts[:-1])} and {parts[-1]}. Of eight arms that "
        "stay, the weakest sinks to "
        f"{least[PAPER]:.2f} of its fair share under the paper's rule, and to {least[MERIT]:.2f} under ours "
        f"(the least after round {number(SERVED_FROM)}, means over seeds)."
    )


def _paper_claims(outcomes: Outcomes) -> tuple[Claim, ...]:
    final = {name: outcome.final() for name, outcome in outcomes.items()}

    def over(name: str, other: str) -> Estimate:
        return ratio(final[name], final[other])

    alone = over(key("paper", MERIT, "alone"), key("paper", PAPER, "alone"))
    fed = over(key("paper", MERIT, "fed"), key("paper", PAPER, "fed"))
    pooled = over(key("paper", MERIT, "fed"), key("paper", MERIT, "alone"))
    statement = (
        "expected merit has at most a quarter of optimism's fairness regret, {} (ours, not the paper's)"
    )
    return (
        Claim(
            statement.format("alone"),
            f"the 95 % interval of fairx-bayes over fairx-linucb lies below {QUARTER:g}",
            f"{alone}",
            below(alone, QUARTER),
        ),
        Claim(
            statement.format("together"),
            f"the 95 % interval of fed-fairx-bayes over fed-fairx-linucb lies below {QUARTER:g}",
            f"{fed}",
            below(fed, QUARTER),
        ),
        Claim(
            "expected merit gains from learning together as optimism does (ours, not the paper's)",
            f"the 95 % interval of fed-fairx-bayes over fairx-bayes lies below {POOLED:g}",
            f"{pooled}; perfect pooling would give 1/√m = {1 / math.sqrt(env.AGENTS):.3f}",
            below(pooled, POOLED),
        ),
    )


def _one_hot_claims(outcomes: Outcomes) -> tuple[Claim, ...]:
    merit = outcomes[key(ONE_HOT, MERIT, "alone")]
    against = {
        rule: ratio(merit.final(), outcomes[key(ONE_HOT, rule, "alone")].final())
        for rule in (worlds.WIDE, PAPER)
    }
    hardest = max(against.values(), key=lambda found: found.high)
    served = merit.weakest[:, _after(merit.rounds, SERVED_FROM)].mean(axis=0)
    lows = merit.weakest[:, _after(merit.rounds, NEVER_FROM)].min(axis=1)
    theirs = outcomes[key(ONE_HOT, PAPER, "alone")]
    their_lows = theirs.weakest[:, _after(theirs.rounds, NEVER_FROM)].min(axis=1)
    return (
        Claim(
            "of eight arms that stay, a fifth of optimism's fairness regret (ours, not the paper's)",
            f"the 95 % interval of it over the paper's rule lies below {FIFTH:g} at either radius",
            f"radius × 1: {against[worlds.WIDE]}, radius × 0.5: {against[PAPER]}",
            below(hardest, FIFTH),
        ),
        Claim(
            "the weakest of eight arms that stay is not starved (ours, not the paper's)",
            f"of its fair share, at least {SERVED:g} at every point after round {number(SERVED_FROM)}, "
            f"mean over seeds, and at least {NEVER_BELOW:g} in every seed after round {number(NEVER_FROM)}",
            f"least on the mean {served.min():.2f}, least of a seed {lows.min():.2f}; below {NEVER_BELOW:g} "
            f"in {(lows < NEVER_BELOW).sum()} of {lows.size} seeds (the paper's rule, radius × 0.5: "
            f"{(their_lows < NEVER_BELOW).sum()}, least {their_lows.min():.2f})",
            holds(served.min() >= SERVED and lows.min() >= NEVER_BELOW),
        ),
    )


def _after(rounds: Any, first: int) -> Any:
    """The points after a round; of a run that was shorter, the last."""
    found = rounds > first
    found[-1] = True
    return found


def _worst(outcomes: Outcomes) -> Claim:
    """Where expected merit does worst against the paper's rule at half its radius."""
    found = {
        f"{world.label}, {HOWS[how]}": ratio(
            outcomes[key(name, MERIT, how)].final(), outcomes[key(name, PAPER, how)].final()
        )
        for name, world in WORLDS.items()
        for how in HOWS
    }
    worse = [f"{where}: {item}" for where, item in found.items() if item.low > 1]
    worst = max(found, key=lambda where: found[where].value)
    return Claim(
        "in no world is expected merit worse than the paper's rule (ours, not the paper's)",
        f"nowhere in Exp 9's {len(WORLDS)} worlds, alone, together or private, does the 95 % interval of its "
        "fairness regret over the paper's rule's (radius × 0.5) lie above 1",
        f"worse in: {'; '.join(worse)}" if worse else f"worst: {worst}: {found[worst]}",
        holds(not worse),
    )


def _beside_greedy(outcomes: Outcomes) -> str:
    """Where expected merit and its mere point estimate differ beyond chance."""
    found = []
    for name, world in WORLDS.items():
        for how in ("alone", "fed"):
            item = ratio(
                outcomes[key(name, MERIT, how)].final(), outcomes[key(name, worlds.GREEDY, how)].final()
            )
            if item.high < 1 or item.low > 1:
                found.append(f"{world.label}, {HOWS[how]}: {item}")
    return (
        "Greedy takes the estimate for the truth. Where contexts and the fair policy itself explore, that "
        "does as well as expected merit; the 95 % interval of expected merit's regret over greedy's excludes "
        f"1 in: {'; '.join(found) or 'no world'}."
    )


def _paper_table(outcomes: Outcomes, size: Size) -> Table:
    rows = []
    for rule in (PAPER, MERIT):
        for how, text in HOWS.items():
            outcome = outcomes[key("paper", rule, how)]
            rows.append(
                (
                    RULES[rule].label,
                    text,
                    str(estimate(outcome.final(FAIRNESS))),
                    str(estimate(outcome.final(REWARD))),
                )
            )
    seeds = outcomes[key("paper", MERIT, "alone")].seeds.size
    return Table(
        f"The paper's world at T = {number(size.horizon)}, m = {env.AGENTS}, {seeds} seeds",
        ("rule", "agents learn", "fairness regret", "reward regret"),
        tuple(rows),
        "Private from the releases alone, records centred at the middle of their public box. Reward regret "
        "is against the fair policy: optimism earns more than its fair share by favouring good arms.",
    )


def _table(outcomes: Outcomes, how: str) -> Table:
    """Fairness regret of every rule in every world, and reward regret behind it."""
    rules = rules_of(how)
    rows = []
    for name, world in WORLDS.items():
        cells, rounds = [], outcomes[key(name, MERIT, how)].rounds[-1]
        for rule in rules:
            outcome = outcomes[key(name, rule, how)]
            cells.append(f"{estimate(outcome.final())}; {number(float(outcome.final(REWARD).mean()))}")
        rows.append((world.label, f"{number(rounds)} × {1 if how == 'alone' else world.agents}", *cells))
    note = ""
    if how == "priv":
        note = "; ".join(f"{RULES[rule].label}: {worlds.DECIDE_FROM[rule]}" for rule in rules) + "."
    seeds = outcomes[key(ONE_HOT, MERIT, how)].seeds.size
    return Table(
        f"Fairness regret [95 % interval]; reward regret. Agents learn {HOWS[how]}; {seeds} seeds",
        ("world", "T × m", *(RULES[rule].label for rule in rules)),
        tuple(rows),
        note,
    )


def _weakest_table(outcomes: Outcomes) -> Table:
    rows = []
    for name, world in WORLDS.items():
        cells = []
        for rule in RULES:
            values = outcomes[key(name, rule, "alone")].weakest
            halves = np.array_split(values, 2, axis=1) if values.shape[1] > 1 else [values, values]
            cells.append(" → ".join(f"{np.nanmean(half):.2f}" for half in halves))
        rows.append((world.label, *cells))
    return Table(
        "What the weakest arm is shown over what it is due, alone: first half → second half of the rounds",
        ("world", *(rule.label for rule in RULES.values())),
        tuple(rows),
        "Where contexts are drawn anew, the weakest is the arm that is last in its round.",
    )


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """The summary, which the report shows first; rules by world; the weakest arm; joining."""
    yield summary_figure(outcomes, size)
    yield worlds_figure(outcomes, size)
    yield weakest_figure(outcomes, size)
    yield joining_figure(outcomes, size)


def summary_figure(outcomes: Outcomes, size: Size) -> Picture:
    """Fairness regret of the two rules; the weakest arm's share over time."""
    figure, (regret, share) = canvas(size, panels=2, width=7.8, height=3.4)
    width = 0.38
    for i, rule in enumerate((PAPER, MERIT)):
        for place, how in enumerate(HOWS):
            values = outcomes[key("paper", rule, how)].final()
            x = place + (i - 0.5) * width
            half = float(error_bar(values))
            label = RULES[rule].label.partition(",")[0] if place == 0 else None
            regret.bar(
                x,
                values.mean(),
                0.92 * width,
                yerr=half,
                color=RULES[rule].colour,
                label=label,
                error_kw={"lw": 0.9, "capsize": 2},
            )
            text = number(float(f"{values.mean():.3g}"))
            regret.annotate(
                text, (x, values.mean() + half), (0, 2), textcoords="offset points", ha="center", fontsize=8
            )
    regret.set_xticks(range(len(HOWS)), [SHORT_HOWS[how] for how in HOWS])
    regret.grid(visible=False, axis="x")
    regret.margins(y=0.12)
    regret.set_ylim(bottom=0)
    thousands(regret.yaxis)
    regret.set_ylabel(f"fairness regret after {number(size.horizon)} rounds")
    regret.set_title("(a) distance from fair shares, summed up")
    regret.legend(loc="upper right")
    _over_time(share, outcomes, (PAPER, MERIT))
    share.set_title("(b) the weakest of eight arms that stay")
    return Picture(
        "exp9-summary",
        "The paper's rule (optimism, with the radius fitted to the paper's curves) and exposure by expected "
        f"merit. (a) Fairness regret in the paper's world, m = {env.AGENTS} agents that learn alone, "
        f"together, or together with noise that makes it private (ε = {env.EPSILON:g}, δ = {env.DELTA:g}). "
        "(b) What the weakest arm is shown over what it is due, alone: mean over "
        f"{outcomes[key(ONE_HOT, MERIT, 'alone')].seeds.size} seeds with its 95 % band; 1 is fair, and "
        f"at first, when all are shown alike, it is far above {TOP:g}.",
        figure,
    )


def _over_time(axes: Axes, outcomes: Outcomes, rules: tuple[str, ...]) -> None:
    """What the weakest one-hot arm is shown over what it is due, since the last point."""
    ends = []
    for name in rules:
        outcome, rule = outcomes[key(ONE_HOT, name, "alone")], RULES[name]
        mean = outcome.weakest.mean(axis=0)
        axes.plot(outcome.rounds, mean, color=rule.colour)
        band(axes, outcome.rounds, outcome.weakest, rule.colour)
        ends.append((float(mean[-1]), rule.label.partition(",")[0], rule.colour))
    _finish(axes, ends)


def _finish(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    axes.axhline(1.0, color="#333333", lw=0.9, ls="--")
    axes.set_ylim(0, TOP)
    axes.margins(x=0)
    few_rounds(axes)
    thousands(axes.xaxis)
    axes.set_xlabel("round t")
    axes.set_ylabel("share of exposure, over the fair share")
    end_labels(axes, ends, gap=0.1)


def worlds_figure(outcomes: Outcomes, size: Size) -> Picture:
    """Every rule's fairness regret over the paper's rule at half its radius, by world."""
    figure, panels = canvas(size, panels=len(HOWS), width=9.6, height=5.0)
    names = list(WORLDS)
    places = np.arange(len(names))[::-1]
    for axes, (how, text) in zip(panels, HOWS.items(), strict=True):
        rules = [rule for rule in rules_of(how) if rule != PAPER]
        for i, name in enumerate(rules):
            rule = RULES[name]
            found = [
                ratio(outcomes[key(world, name, how)].final(), outcomes[key(world, PAPER, how)].final())
                for world in names
            ]
            values = np.array([item.value for item in found])
            spread = np.nan_to_num([[v.value - v.low for v in found], [v.high - v.value for v in found]])
            axes.errorbar(
                values,
                places + 0.13 * ((len(rules) - 1) / 2 - i),
                xerr=spread,
                color=rule.colour,
                marker=rule.marker,
                ms=5,
                lw=0,
                elinewidth=1.1,
                label=rule.label,
            )
        axes.axvline(1.0, color=RULES[PAPER].colour, lw=1.1, ls="--")
        axes.set_xscale("log")
        axes.set_yticks(
            places, [WORLDS[world].label for world in names] if axes is panels[0] else [""] * len(names)
        )
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_title(text.replace("private (", "private\n("))
    low = min(axes.get_xlim()[0] for axes in panels)
    high = max(axes.get_xlim()[1] for axes in panels)
    for axes in panels:
        axes.set_xlim(low, high)
        log_ticks(axes.xaxis, low, high)
    panels[1].set_xlabel("fairness regret at T, over that of the paper's rule at radius × 0.5 (dashed)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    return Picture(
        "exp9-worlds",
        "Exp 9, fairness regret of every rule over that of the paper's rule at half its radius (left of the "
        "dashed line is better), in twelve worlds; 95 % intervals, paired seeds. Sizes are in the tables.",
        figure,
    )


def weakest_figure(outcomes: Outcomes, size: Size) -> Picture:
    """All rules among eight arms that stay: on the mean over seeds, and in the unluckiest seed."""
    figure, (mean, least) = canvas(size, panels=2, width=8.2, height=3.6)
    for axes, title, over in (
        (mean, "(a) mean over seeds", np.mean),
        (least, "(b) the unluckiest seed at each time", np.min),
    ):
        ends = []
        for name, rule in RULES.items():
            outcome = outcomes[key(ONE_HOT, name, "alone")]
            curve = over(outcome.weakest, axis=0)
            axes.plot(outcome.rounds, curve, color=rule.colour, lw=1.3)
            ends.append((float(curve[-1]), rule.label.replace(", ", ",\n"), rule.colour))
        axes.set_title(title)
        _finish(axes, ends if axes is least else [])
    least.set_ylabel("")
    return Picture(
        "exp9-weakest",
        "Exp 9, what the weakest of eight arms that stay, known by name alone, is shown over what it is due; "
        "each agent alone; 1 (dashed) is fair. At first all are shown alike, which is far more than "
        f"the weakest is due; above {TOP:g} the curves are cut.",
        figure,
    )


def horizons(size: Size) -> tuple[int, ...]:
    """A short federation and a long one; of a reduced size, only one."""
    return tuple(sorted({min(size.horizon, SHORT), size.horizon}))


def alone_key(horizon: int, agents: int = env.AGENTS) -> str:
    return f"{agents} alone for {horizon}"


def joined_key(horizon: int, epsilon: float, delta: float, agents: int = env.AGENTS) -> str:
    return f"{agents} joined for {horizon}, ε={epsilon:g}, δ={delta:g}"


def joining_runs(size: Size) -> tuple[Run, ...]:
    """Expected merit alone, and with own+released for every budget; short federations of three sizes."""
    found = []
    short = horizons(size)[0]
    settings = [(horizon, env.AGENTS) for horizon in horizons(size)]
    settings += [(short, agents) for agents in CROWDS if agents != env.AGENTS]
    for horizon, agents in settings:
        world = env.scenario(size, horizon=horizon, agents=agents)
        # A large federation has as many agents to average over as a small one has seeds.
        least = worlds.least_seeds(size) if agents * horizon <= env.AGENTS * SHORT else 0
        found.append(Run(alone_key(horizon, agents), world, "fairx-bayes", {}, least))
        for delta in DELTAS if agents == env.AGENTS else (CROWD_DELTA,):
            for epsilon in EPSILONS:
                private = {"epsilon": epsilon, "delta": delta, "decide_from": "own+released"}
                name = joined_key(horizon, epsilon, delta, agents)
                found.append(Run(name, world, "priv-fairx-bayes", private, least))
    return tuple(found)


def joining_scores(outcomes: Outcomes, size: Size) -> Scores:
    """The ratio to learning alone for every T, ε and δ; the worst decides."""
    ratios = {
        (horizon, delta, epsilon): _ratio(outcomes, horizon, epsilon, delta)
        for horizon in horizons(size)
        for delta in DELTAS
        for epsilon in EPSILONS
    }
    worst = max(ratios, key=lambda which: ratios[which].value)
    found = {below(item, HARMLESS) for item in ratios.values()}
    verdicts: tuple[Verdict, ...] = ("does not hold", "undecided", "holds")
    verdict = next(item for item in verdicts if item in found)
    claim = Claim(
        "joining hardly hurts, also at (0.1, 10⁻⁶) (expected merit; ours, not the paper's)",
        f"own+released over learning alone: its 95 % interval lies below {HARMLESS:g} for every T, ε and δ",
        f"worst at T = {number(worst[0])}, (ε, δ) = ({worst[2]:g}, {power(worst[1])}): "
        f"{_precise(ratios[worst])}",
        verdict,
    )
    rows = tuple(
        (
            f"{epsilon:g}, {power(delta)}",
            *(_precise(ratios[horizon, delta, epsilon]) for horizon in horizons(size)),
        )
        for delta in DELTAS
        for epsilon in EPSILONS
    )
    table = Table(
        "Joining a private federation of ten: fairness regret at T over that of learning alone",
        ("ε, δ", *(f"T = {_with_seeds(outcomes, horizon)}" for horizon in horizons(size))),
        rows,
        "Expected merit, own+released: one's own exact data and the others' releases by their worth.",
    )
    return Scores((), (claim,), (table,), (_pays(outcomes, size),))


def _ratio(outcomes: Outcomes, horizon: int, epsilon: float, delta: float) -> Estimate:
    joined = outcomes[joined_key(horizon, epsilon, delta)]
    return ratio(joined.final(), outcomes[alone_key(horizon)].final())


def _precise(found: Estimate) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _with_seeds(outcomes: Outcomes, horizon: int) -> str:
    return f"{number(horizon)} ({outcomes[alone_key(horizon)].seeds.size} seeds)"


def over_time(joined: Outcome, alone: Outcome) -> Array:
    """(seeds, points): regret so far, over that of learning alone."""
    return np.asarray(joined.fairness_regret / alone.fairness_regret)


def _pays(outcomes: Outcomes, size: Size) -> str:
    """From which round on the whole interval lies below learning alone, for each ε; and how it begins."""
    horizon = size.horizon
    alone = outcomes[alone_key(horizon)]
    found, early = [], []
    for epsilon in EPSILONS:
        curve = over_time(outcomes[joined_key(horizon, epsilon, CROWD_DELTA)], alone)
        gains = curve.mean(axis=0) + error_bar(curve) < 1
        # For good: a lucky moment at the start does not count.
        late = np.flatnonzero(~gains)
        first = 0 if late.size == 0 else late[-1] + 1
        when = f"round {number(alone.rounds[first])}" if first < alone.rounds.size else "not by then"
        found.append(f"ε = {epsilon:g}: {when}")
        early.append(f"{curve[:, 0].mean():.2f}")
    return (
        "From when on private sharing among ten pays, by the 95 % interval of the regret so far (δ = "
        f"{power(CROWD_DELTA)}, planned for T = {number(horizon)}): {', '.join(found)}. "
        f"The first releases are nearly all noise: at round {number(alone.rounds[0])} the regret so far is "
        f"{', '.join(early)} times that of learning alone."
    )


def joining_figure(outcomes: Outcomes, size: Size) -> Picture:
    """The ratio to learning alone over time by ε, and at the short horizon by ε and number of agents."""
    short, long = horizons(size)[0], size.horizon
    figure, (time, crowd) = canvas(size, panels=2, width=7.6)
    ends = []
    alone = outcomes[alone_key(long)]
    for epsilon in EPSILONS:
        curve = over_time(outcomes[joined_key(long, epsilon, CROWD_DELTA)], alone)
        mean, half = curve.mean(axis=0), error_bar(curve)
        time.plot(alone.rounds, mean, color=_COLOURS[epsilon])
        time.fill_between(alone.rounds, mean - half, mean + half, color=_COLOURS[epsilon], alpha=0.18, lw=0)
        ends.append((float(mean[-1]), f"ε = {epsilon:g}", _COLOURS[epsilon]))
    time.set_xscale("log")
    time.set_xlim(alone.rounds[0], long)
    plain_log(time.xaxis, [10.0**k for k in range(2, 6) if alone.rounds[0] <= 10**k <= long])
    time.set_xlabel("round t")
    time.set_ylabel("fairness regret so far, over learning alone")
    time.set_title(f"(a) ten agents, δ = {power(CROWD_DELTA)}")
    labels = []
    seeds = [str(outcomes[alone_key(short, agents)].seeds.size) for agents in CROWDS]
    for agents in CROWDS:
        base = outcomes[alone_key(short, agents)].final()
        found = [
            ratio(outcomes[joined_key(short, epsilon, CROWD_DELTA, agents)].final(), base)
            for epsilon in EPSILONS
        ]
        values = [item.value for item in found]
        spread = [[v.value - v.low for v in found], [v.high - v.value for v in found]]
        colour = _CROWD_COLOURS[agents]
        crowd.errorbar(
            EPSILONS, values, yerr=np.nan_to_num(spread), color=colour, marker="o", ms=4.5, capsize=2.5
        )
        labels.append((values[-1], f"{agents} agents", colour))
    crowd.set_xscale("log")
    plain_log(crowd.xaxis, EPSILONS)
    crowd.set_xlabel("privacy budget ε")
    crowd.set_title(f"(b) T = {number(short)}, δ = {power(CROWD_DELTA)}")
    for axes, names in ((time, ends), (crowd, labels)):
        axes.set_ylim(0, 1.3)
        axes.axhline(1.0, color="#333333", lw=0.9, ls="--")
        end_labels(axes, names)
    return Picture(
        "exp9-joining",
        "Exp 9, when private sharing pays: fairness regret of joining (expected merit, own+released) over "
        f"that of learning alone (dashed: 1). (a) over time, by ε, {alone.seeds.size} seeds. (b) by ε and "
        f"the number of agents in a short federation; {', '.join(seeds)} seeds.",
        figure,
    )


QUESTION = (
    "What does optimism cost in fairness, and which rule of exploring costs least? Every rule in "
    f"{len(WORLDS)} worlds, {worlds.SEEDS} seeds each at full size; and when joining a private federation "
    "pays."
)
EXPERIMENT = Experiment("exp9", "How to explore fairly", QUESTION, runs, score, plot)
