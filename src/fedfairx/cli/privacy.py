"""`fedfairx privacy`: the cost and the guarantee of a privacy budget. `audit` shares its flags."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedfairx.agent.by_name import as_schedule
from fedfairx.agent.options import PLAIN, SECURE, Options
from fedfairx.agent.schedules import SCHEDULES, Plan
from fedfairx.cli.common import Output, slots_of
from fedfairx.core.slates import ONE
from fedfairx.errors import require
from fedfairx.privacy import Bounds, Budget, Centring, mechanisms
from fedfairx.privacy.bounds import Adjacency
from fedfairx.privacy.guarantee import DecideFrom
from fedfairx.privacy.mechanisms.noise_share import NoiseShare, default_colluding
from fedfairx.util.config import NAMED
from fedfairx.util.formatting import text_table


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A mechanism, and what determines its number of releases.

    mechanism: how noise is distributed over releases.
    epsilon: ε of all releases of an agent together.
    delta: δ of all releases of an agent together.
    agents: m, the number of agents that share.
    dimension: d, the number of features of an arm.
    horizon: T, the number of rounds.
    schedule: when agents share, such as paper:gap=50; geometric is the default of federations.
    context_norm: L, the norm to which contexts are clipped.
    reward: B; rewards are clipped to ±B.
    record_norm: R; whole records are also shrunk until ‖x‖² + y² ≤ R² (default: they are not).
    adjacency: which change of a record is hidden.
    nonnegative: contexts and rewards are known to be >= 0.
    slots: number of actions that a decision shows, or the weights of its slots, such as 1,0.63,0.5.
    centred: clip records around the middle of a public box, contexts in [0, 1]^d/√d and rewards in [0, 1],
        instead of around zero.
    """

    mechanism: str = field(default="blt", metadata={"choices": mechanisms()})
    epsilon: float = 2.0
    delta: float = 1e-6
    agents: int = 10
    dimension: int = 5
    horizon: int = 100_000
    schedule: str = field(default="geometric", metadata={"choices": tuple(SCHEDULES), "metavar": NAMED})
    context_norm: float = 1.0
    reward: float = 1.0
    record_norm: float | None = None
    adjacency: Adjacency = "replace"
    nonnegative: bool = False
    slots: str = "1"
    centred: bool = False

    def budget(self, **changes: Any) -> Budget:
        """The privacy budget of each agent, with as many releases as the schedule makes, at least one."""
        if self.centred:
            text = "must be left out with --centred, whose box sets the bounds"
            require(self.context_norm == 1.0, "--context-norm", text, self.context_norm)
            require(self.reward == 1.0, "--reward", text, self.reward)
            require(not self.nonnegative, "--nonnegative", text, self.nonnegative)
            require(self.record_norm is None, "--record-norm", text, self.record_norm)
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
                slots=slots_of(self.slots),
                record_norm=self.record_norm,
            ),
            "centring": Centring.unit_box(self.dimension) if self.centred else None,
            "public_schedule": schedule.public,
        }
        return Budget(**(given | changes))


PRACTICAL_SHIFT = Options.shift  # an agent's default, in sd of the aggregate


@dataclass(frozen=True, kw_only=True)
class Privacy(Mechanism, Output):
    """Calculate releases, μ, noise, shift and radius of a privacy budget for each mechanism, and the expected
    gain of joining.

        fedfairx privacy --agents 10 --horizon 100000 --epsilon 2
        fedfairx privacy --agents 30 --horizon 10000 --epsilon 4 --decide-from released
        fedfairx privacy --agents 10 --epsilon 2 --aggregation secure --colluding 2
        fedfairx privacy --epsilon 2 --centred
        fedfairx privacy --epsilon 2 --slots 1,0.63,0.5
        fedfairx privacy --epsilon 1 --person-records 5 --statement
        fedfairx privacy --epsilon 1 --json

    statement: print the guarantee as one page, for whoever signs for it.
    decide_from: what decisions may use; released is the strict mode.
    aggregation: secure if agents only ever see the sum of their releases.
    colluding: with secure aggregation, how many agents may collude with each other and with the hub (default:
        a fifth of them, at least one).
    person_records: for the statement, the largest number of records of one person (default: no bound).
    noise_sd: sd of the rewards' noise.
    alpha: probability that the confidence region misses θ*.
    least_eigenvalue: least eigenvalue of E[x xᵀ], which decides when the Gram matrix is mostly signal
        (default: 1/(12 d), that of uniform x/√d).
    """

    statement: bool = False
    decide_from: DecideFrom = "own+released"
    aggregation: Literal["plain", "secure"] = "plain"
    colluding: int | None = None
    person_records: int | None = None
    noise_sd: float = 0.1
    alpha: float = 0.1
    least_eigenvalue: float | None = None

    @property
    def share(self) -> NoiseShare | None:
        """The share of the noise that each agent adds, with secure aggregation."""
        if self.aggregation == SECURE:
            return NoiseShare.among(self.agents, colluding=self.colluding)
        text = f"is for --aggregation {SECURE}"
        require(self.colluding is None, "--colluding", text, self.colluding, "leave it out")
        return None

    def run(self) -> int:
        share = self.share
        if share is not None:
            public = as_schedule(self.schedule).public
            text = f"must be {PLAIN}: when schedule {self.schedule} shares depends on data"
            require(public, "--aggregation", text, self.aggregation)
            text = "must be released or own+released with secure aggregation"
            require(self.decide_from != "released+local", "--decide-from", text, self.decide_from)
        if self.statement:
            from fedfairx.privacy.statement import statement

            budget = self.budget(
                decide_from=self.decide_from, person_records=self.person_records, share=share
            )
            guarantee = budget.guarantee()
            self.answer(guarantee.to_dict(), statement(guarantee, rounds=self.horizon))
            return 0 if guarantee.is_private else 1
        found = calculate(self)
        self.answer(found, _page(found, self))
        return 0


def calculate(args: Privacy) -> dict[str, Any]:
    """The calculator's answer as plain values."""
    from fedfairx.federation.setup.joining_gain import expected_gain
    from fedfairx.privacy import mu_for
    from fedfairx.privacy.guarantee import LARGE_DELTA

    require(0 < args.alpha < 1, "alpha", "must be in (0, 1)", args.alpha)
    require(args.noise_sd > 0, "noise_sd", "must be > 0", args.noise_sd)
    budget = args.budget(decide_from=args.decide_from, share=args.share)
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
    asked: dict[str, Any] = {
        "horizon": args.horizon,
        "epsilon": args.epsilon,
        "delta": args.delta,
        "centred": args.centred,
    }
    gain = None
    if slots_of(args.slots) == ONE:  # gains were not simulated for several slots
        gain = expected_gain(members=args.agents, decide_from=args.decide_from, share=args.share, **asked)
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
        "slots": list(budget.summed_bounds.slots),
        "sensitivity": budget.summed_bounds.sensitivity,
        "mechanism": args.mechanism,
        "decide_from": args.decide_from,
        "gain": None if gain is None else gain.to_dict(),
        "aggregation": _both(budget, args),
        "warnings": warnings,
        "mechanisms": [_one(name, replace(budget, mechanism=name), args) for name in mechanisms()],
    }


def _both(budget: Budget, args: Privacy) -> dict[str, Any]:
    """The largest noise of a total without and with secure aggregation, and what that claims."""
    import numpy as np

    plain = replace(budget, share=None).calibrate()
    largest = float(plain.sd(np.arange(1, budget.releases + 1)).max())
    found: dict[str, Any] = {
        "chosen": args.aggregation,
        "total_sd": {PLAIN: largest * math.sqrt(args.agents)},
    }
    colluding = default_colluding(args.agents) if args.colluding is None else args.colluding
    if budget.public_schedule and args.agents >= colluding + 2:
        share = budget.share or NoiseShare.among(args.agents, colluding=args.colluding)
        secure = replace(budget, share=share)
        found["total_sd"][SECURE] = largest * share.total_noise(args.agents)
        found |= {"times_less": 1.0 / share.noise, "share": secure.guarantee().to_dict()["share"]}
    return found


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
    """The first round at which the least eigenvalue of all data exceeds the noise's norm, 2 s √d."""
    least = args.least_eigenvalue
    if least is None:
        least = args.context_norm**2 / (12.0 * args.dimension)
    found = math.ceil(2.0 * aggregate_sd * math.sqrt(args.dimension) / (args.agents * least))
    return found if found <= args.horizon else None


def _aggregation_lines(found: dict[str, Any], args: Privacy) -> list[str]:
    """Noise of a total without and with secure aggregation; if chosen, the claims side by side."""
    plain, share = found["total_sd"][PLAIN], found.get("share")
    if share is None:
        return [f"\nNoise of the sum over agents, sd max: {plain:.4g}."]
    lines = [
        f"\nNoise of the sum over agents, sd max: {plain:.4g}; with secure aggregation "
        f"{found['total_sd'][SECURE]:.4g}, {found['times_less']:.3g} times less "
        f"({share['colluding']} of {args.agents} may collude, each adds 1/{share['honest']} of the variance)."
    ]
    if args.aggregation == SECURE:
        rows = [(each["whom"], f"{each['epsilon']:.4g}", f"{each['mu']:.4g}") for each in share["against"]]
        lines.append(text_table(("against", "ε", "μ"), rows))
        steps, records = f"2^{share['step_exponent']}", share["records"]
        lines.append(
            f"Rows are rounded to multiples of {steps}; at most {records} records of each agent enter."
        )
    return lines


def _page(found: dict[str, Any], args: Privacy) -> str:
    """The calculator's answer as text."""
    rows = []
    for item in found["mechanisms"]:
        numbers = (*item["noise_sd"].values(), item["practical"]["shift"])
        rows.append(
            (
                item["name"] + (" *" if item["name"] == args.mechanism else ""),
                *(f"{number:.4g}" for number in numbers),
                f"{item['practical']['radius']:.3g}",
                f"{item['shift']:.4g}",
                f"{item['radius']:.4g}",
                item["signal_round"] if item["signal_round"] is not None else f"> {args.horizon}",
            )
        )
    slots = len(found["slots"])
    unit = "record" if slots == 1 else f"decision with all {slots} slots"
    columns = ("mechanism", "sd first", "middle", "last", "max", "shift", "radius")
    lines = [
        f"{found['releases']} releases of each of {args.agents} agents, d={args.dimension}, "
        f"T={args.horizon}; (ε={args.epsilon:g}, δ={args.delta:g}) is μ={found['mu']:.4g} "
        f"({args.adjacency} one {unit}, sensitivity {found['sensitivity']:.4g})\n",
        text_table((*columns, "shift in theory", "radius in theory", "mostly signal from round"), rows),
        "\n* chosen. sd: of one entry of an agent's release. Shifts and radii: of the sum over agents, at T.",
    ]
    if args.centred:
        lines.append(
            "Centred: sd of the centred release. The records' statistics follow from it;\n"
            "their noise is larger along the public point."
        )
    lines += _aggregation_lines(found["aggregation"], args)
    if found["gain"] is not None:
        lines.append(f"\n{found['gain']['sentence']}")
    return "\n".join([*lines, *(f"warning: {warning}" for warning in found["warnings"])])
