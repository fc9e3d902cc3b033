"""Rules of exploring, and the worlds in which Exp 9 (and, of two of them, Exp 6) compares them. Data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedfairx import Confidence, Prior, Scenario, merit
from paper import world as env
from paper.experiment import Run, Size

SEEDS, FEWER = 20, 10  # at full size; of rules that no claim judges
HOWS = {
    "alone": "alone",
    "fed": "together",
    "priv": f"together, private (ε = {env.EPSILON:g}, δ = {env.DELTA:g})",
}


class Rule(NamedTuple):
    """How a policy follows from what is known."""

    label: str
    colour: str
    name: str = "linucb"  # of its algorithms
    scale: float = 0.0  # of optimism's radius; 1 is the theorem's
    marker: str = "o"

    def algorithm(self, how: str) -> str:
        """The algorithm that follows it alone, together or privately."""
        return f"{'' if how == 'alone' else f'{how}-'}fairx-{self.name}"


PAPER, WIDE, GREEDY, THOMPSON, MERIT = "paper", "paper-1", "greedy", "thompson", "merit"
RULES = {
    WIDE: Rule("paper's rule, radius × 1", "#E69F00", scale=1.0, marker="^"),
    PAPER: Rule("paper's rule, radius × 0.5", "#555555", scale=0.5, marker="s"),
    GREEDY: Rule("greedy", "#CC79A7", "bayes", marker="v"),
    THOMPSON: Rule("Thompson", "#56B4E9", "lints", marker="D"),
    MERIT: Rule("expected merit", "#1B7837", "bayes"),
}
JUDGED = (PAPER, GREEDY, MERIT)  # by claims in every world; the others among actions without features alone
# Both leave an agent its own fresh data, and both have the paper's narrower guarantee (Definition 2).
DECIDE_FROM = {PAPER: "released+local", MERIT: "own+released"}


@dataclass(frozen=True)
class World:
    """Where rules are compared: what differs from the paper's world, for how long, and what is believed."""

    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    horizon: int = 5_000
    agents: int = 4  # that learn together
    assumed: Prior | None = None  # where beliefs about the noise are wrong; optimism takes the same σ

    def scenario(self, size: Size, how: str) -> Scenario:
        """Who learns alone is alone in it: a mean over agents would hide the one that starves an action."""
        agents, horizon = 1 if how == "alone" else self.agents, min(size.horizon, self.horizon)
        return env.scenario(size, **self.changes, agents=agents, horizon=horizon)

    def options(self, rule: str, size: Size) -> dict[str, Any]:
        """Keywords of `simulate` of a run that is not private."""
        if not RULES[rule].scale:
            greedy = {"rule": GREEDY} if rule == GREEDY else {}
            return {"exposure": True} | greedy | ({"prior": self.assumed} if self.assumed else {})
        noise_sd = self.assumed.noise_sd if self.assumed else self.scenario(size, "alone").noise_sd
        return {"exposure": True, "confidence": Confidence(noise_sd=noise_sd, scale=RULES[rule].scale)}


ONE_HOT, PERSISTENT = "one-hot", "persistent"
_WRONG = {"noise_sd": 0.5}
WORLDS = {
    "redrawn": World("contexts redrawn every round (the paper's world)"),
    PERSISTENT: World("10 actions that stay, 5 features", {"contexts": "persistent"}),
    ONE_HOT: World(  # without features an action's mean is a number of its own, here anywhere in [0, 1]
        "8 actions that stay, no features",
        {"contexts": "one-hot", "arms": 8, "dimension": 8, "theta": "box"},
        20_000,
        agents=2,
    ),
    "flat": World("merit exp(3 μ)", {"merit": merit.Exponential(3.0)}),
    "steep": World("merit exp(30 μ)", {"merit": merit.Exponential(30.0)}),
    "many": World("50 actions", {"arms": 50}, 2_000, agents=2),
    "wide": World("20 features", {"dimension": 20}, 2_000),
    "noisy": World("noise σ = 0.5", _WRONG),
    "wrong": World("σ = 0.5, 0.1 assumed and learnt", _WRONG, assumed=Prior(noise_sd=0.1)),
    "stubborn": World("σ = 0.5, 0.1 taken for granted", _WRONG, assumed=Prior(noise_sd=0.1, learn=False)),
    "delayed": World("rewards 10 rounds late", {"delay": 10.0}, 2_000),
    "drifting": World("θ* drifts, 0.001 a round", {"drift": 1e-3}),
}


def key(world: str, rule: str, how: str) -> str:
    """The name of a run."""
    return f"{world}: {rule}, {how}"


def rules_of(how: str) -> tuple[str, ...]:
    """The rules that are compared: private, only the paper's and expected merit."""
    return tuple(DECIDE_FROM) if how == "priv" else tuple(RULES)


def least_seeds(size: Size, seeds: int = SEEDS) -> int:
    """Twenty seeds at full size, or as many; as few as asked for at a reduced one."""
    return seeds if size.full else 0


def world_run(name: str, rule: str, how: str, size: Size, called: str = "") -> Run:
    """One rule in one world."""
    world = WORLDS[name]
    options = world.options(rule, size)
    if how == "priv":
        options |= {"epsilon": env.EPSILON, "delta": env.DELTA, "decide_from": DECIDE_FROM[rule]}
    judged = rule in JUDGED or (name, how) == (ONE_HOT, "alone")
    seeds = least_seeds(size, SEEDS if judged else FEWER)
    called = called or key(name, rule, how)
    return Run(called, world.scenario(size, how), RULES[rule].algorithm(how), options, seeds)


def world_runs(size: Size) -> Iterator[Run]:
    """Every rule in every world, alone and together; the paper's and expected merit privately too."""
    for name in WORLDS:
        for how in HOWS:
            yield from (world_run(name, rule, how, size) for rule in rules_of(how))
