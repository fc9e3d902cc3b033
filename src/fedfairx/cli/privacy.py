"""`fedfairx privacy`: what a privacy budget costs and promises; and the flags of a mechanism, for `audit`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from fedfairx.agent.options import Options
from fedfairx.agent.schedules import SCHEDULES, Plan
from fedfairx.cli.common import Output, add_verb, as_schedule, print_json, print_table
from fedfairx.errors import require
from fedfairx.privacy import Bounds, Budget, Centring, mechanisms
from fedfairx.privacy.bounds import Adjacency
from fedfairx.privacy.guarantee import DecideFrom
from fedfairx.util.config import NAMED


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A mechanism, and what its number of releases follows from.

    mechanism: how noise is distributed over releases.
    epsilon: ε of all releases of an agent together.
    delta: δ of the same.
    agents: m, the number of agents that share.
    dimension: d, numbers that describe an arm.
    horizon: T, rounds.
    schedule: when agents share, such as paper:gap=50.
    context_norm: L, the norm that contexts are clipped to.
    reward: B; rewards are clipped to ±B.
    adjacency: what is hidden of a record.
    nonnegative: contexts and rewards are known to be >= 0.
    centred: records are centred at the middle of a public box, contexts in [0, 1]^d/√d and rewards in [0, 1],
        instead of clipped around zero.
    """

    mechanism: str = field(default="blt", metadata={"choices": mechanisms()})
    epsilon: float = 2.0
    delta: float = 1e-6
    agents: int = 10
    dimension: int = 5
    horizon: int = 100_000
    schedule: str = field(default="paper", metadata={"choices": tuple(SCHEDULES), "metavar": NAMED})
    context_norm: float = 1.0
    reward: float = 1.0
    adjacency: Adjacency = "replace"
    nonnegative: bool = False
    centred: bool = False

    def budget(self, **changes: Any) -> Budget:
        """The budget of such agents; as many releases as the schedule makes at most, and at least one."""
        if self.centred:
            text = "must be left out with --centred, whose box states the bounds"
            require(self.context_norm == 1.0, "--context-norm", text, self.context_norm)
            require(self.reward == 1.0, "--reward", text, self.reward)
            require(not self.nonnegative, "--nonnegative", text, self.nonnegative)
        schedule, plan = as_schedule(self.schedule), Plan(self.horizon, self.agents, self.dimension)
        given: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "releases": max(1, schedule.max_releases(plan)),
            "mechanism": self.mechanism,
            "bounds": Bounds(
                context_norm=self.context_norm,
                reward=self.reward,
                adjacency=self.adjacency,
                nonnegative=self.nonnegative,
            ),
            "centring": Centring.unit_box(self.dimension) if self.centred else None,
            "public_schedule": schedule.public,
        }
        return Budget(**(given | changes))


@dataclass(frozen=True, kw_only=True)
class Privacy(Mechanism, Output):
    """Flags of `fedfairx privacy`.

    statement: print what is promised, as one page for whoever signs for it.
    decide_from: what decisions may use; released is the strict mode.
    person_records: for the statement, at most this many records of a person enter (default: no bound).
    noise_sd: sd of the rewards' noise.
    alpha: probability that the region misses θ*.
    least_eigenvalue: least eigenvalue of E[x xᵀ], from which follows when the Gram matrix is mostly signal
        (default: 1/(12 d), that of uniform x/√d).
    """

    statement: bool = False
    decide_from: DecideFrom = "own+released"
    person_records: int | None = None
    noise_sd: float = 0.1
    alpha: float = 0.1
    least_eigenvalue: float | None = None


PRACTICAL_SHIFT = Options.shift  # an agent's default, in sd of the aggregate


def add(verbs: Any) -> None:
    add_verb(
        verbs,
        "privacy",
        run,
        Privacy,
        summary="Calculate releases, μ, noise, shift and radius for a privacy budget, by mechanism, and what "
        "joining gains.",
        example="""
            fedfairx privacy --agents 10 --horizon 100000 --epsilon 2 --delta 0.1
            fedfairx privacy --agents 30 --horizon 10000 --epsilon 4 --decide-from released
            fedfairx privacy --epsilon 2 --centred
            fedfairx privacy --epsilon 1 --person-records 5 --statement
            fedfairx privacy --epsilon 1 --json""",
    )


def calculate(args: Privacy) -> dict[str, Any]:
    """The calculator's answer as plain values."""
    from fedfairx.federation.setup.joining_gain import expected_gain
    from fedfairx.privacy import mu_for
    from fedfairx.privacy.guarantee import LARGE_DELTA

    require(0 < args.alpha < 1, "alpha", "must be in (0, 1)", args.alpha)
    require(args.noise_sd > 0, "noise_sd", "must be > 0", args.noise_sd)
    budget = args.budget(decide_from=args.decide_from)
    warnings = []
    if args.delta > LARGE_DELTA:
        warnings.append(
            f"delta={args.delta:g} permits publishing a fraction {args.delta:g} of the records outright; "
            "1e-6 is usual"
        )
    if not budget.public_schedule:
        warnings.append(
            "this schedule's timing depends on the data: NOT private end to end, whatever the noise"
        )
    asked = {"horizon": args.horizon, "epsilon": args.epsilon, "delta": args.delta, "centred": args.centred}
    gain = expected_gain(members=args.agents, decide_from=args.decide_from, **asked)  # type: ignore[arg-type]
    if gain is not None and gain.warning is not None:
        warnings.append(gain.warning)
    return {
        "agents": args.agents,
        "dimension": args.dimension,
        "schedule": args.schedule,
        "releases": budget.releases,
        "mu": mu_for(args.epsilon, args.delta),
        **asked,
        "adjacency": args.adjacency,
        "context_norm": args.context_norm,
        "reward": args.reward,
        "sensitivity": budget.summed_bounds.sensitivity,
        "mechanism": args.mechanism,
        "decide_from": args.decide_from,
        "gain": None if gain is None else gain.to_dict(),
        "warnings": warnings,
        "mechanisms": [_one(name, replace(budget, mechanism=name), args) for name in mechanisms()],
    }


def _one(name: str, budget: Budget, args: Privacy) -> dict[str, Any]:
    import numpy as np

    from fedfairx.agent.pooling import noise_bounds
    from fedfairx.core.confidence import Confidence
    from fedfairx.theory import private_radius

    mechanism, releases = budget.calibrate(), budget.releases
    sd = np.asarray(mechanism.sd(np.arange(1, releases + 1)))
    loudest = float(sd.max()) * math.sqrt(args.agents)
    noise = noise_bounds(noise_sd=loudest, dimension=args.dimension, releases=releases, failure=args.alpha)
    radius = private_radius(
        args.agents * args.horizon * budget.summed_bounds.context_norm**2,
        dimension=args.dimension,
        noise_sd=args.noise_sd,
        alpha=args.alpha,
        norm_bound=1.0,
        eigenvalue_low=noise.smallest,
        eigenvalue_high=noise.largest,
        moment_noise=noise.vector_cost,
    )
    practical = Confidence(noise_sd=args.noise_sd, failure=args.alpha)
    return {
        "name": name,
        "mu": mechanism.mu,
        "noise_sd": {
            "first": float(sd[0]),
            "middle": float(sd[(releases - 1) // 2]),
            "last": float(sd[-1]),
            "max": float(sd.max()),
        },
        "shift": noise.shift,
        "radius": radius,
        "practical": {
            "shift": PRACTICAL_SHIFT * loudest,
            "radius": practical.radius(args.agents * args.horizon, args.dimension),
        },
        "signal_round": _signal_round(loudest, args),
    }


def _signal_round(aggregate_sd: float, args: Privacy) -> int | None:
    """The first round at which the least known direction of all data outweighs the noise's norm, 2 s √d."""
    least = args.least_eigenvalue
    if least is None:
        least = args.context_norm**2 / (12.0 * args.dimension)
    found = math.ceil(2.0 * aggregate_sd * math.sqrt(args.dimension) / (args.agents * least))
    return found if found <= args.horizon else None


def run(args: Privacy) -> int:
    if args.statement:
        from fedfairx.privacy.statement import statement

        budget = args.budget(decide_from=args.decide_from, person_records=args.person_records)
        guarantee = budget.guarantee()
        if args.json:
            print_json(guarantee.to_dict())
        else:
            print(statement(guarantee, rounds=args.horizon))
        return 0 if guarantee.is_private else 1
    answer = calculate(args)
    if args.json:
        print_json(answer)
        return 0
    print(
        f"{answer['releases']} releases of each of {args.agents} agents, d={args.dimension}, "
        f"T={args.horizon}; "
        f"(ε={args.epsilon:g}, δ={args.delta:g}) is μ={answer['mu']:.4g} "
        f"({args.adjacency} one record, sensitivity {answer['sensitivity']:.4g})\n"
    )
    rows = []
    for item in answer["mechanisms"]:
        noise = item["noise_sd"]
        rows.append(
            (
                item["name"] + (" *" if item["name"] == args.mechanism else ""),
                *(f"{noise[place]:.4g}" for place in ("first", "middle", "last", "max")),
                f"{item['practical']['shift']:.4g}",
                f"{item['practical']['radius']:.3g}",
                f"{item['shift']:.4g}",
                f"{item['radius']:.4g}",
                item["signal_round"] if item["signal_round"] is not None else f"> {args.horizon}",
            )
        )
    columns = ("mechanism", "sd first", "middle", "last", "max", "shift", "radius")
    print_table((*columns, "theory's shift", "theory's radius", "mostly signal from round"), rows)
    print(
        "\n* chosen. sd: of one entry of one agent's release. Shifts and radii: of the sum over agents, at T."
    )
    if args.centred:
        print(
            "Centred: sd of the centred release. The records' statistics follow from it;\n"
            "their noise is larger along the public point."
        )
    if answer["gain"] is not None:
        print(f"\n{answer['gain']['sentence']}")
    for warning in answer["warnings"]:
        print(f"warning: {warning}")
    return 0
