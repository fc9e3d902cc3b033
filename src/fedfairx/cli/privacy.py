"""`fedfairx privacy`: the cost and the guarantee of a privacy budget. `audit` shares its flags."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from fedfairx.agent.by_name import as_schedule
from fedfairx.agent.options import PLAIN, SECURE, Options
from fedfairx.agent.schedules import Plan
from fedfairx.cli.common import Output
from fedfairx.core.slates import ONE
from fedfairx.errors import require
from fedfairx.privacy import Bounds, Budget, Centring, mechanisms
from fedfairx.privacy.guarantee import DECIDE_FROM
from fedfairx.privacy.mechanisms.noise_share import NoiseShare, default_colluding
from fedfairx.util.config import NAMED, Setting, option, settings_of, with_default
from fedfairx.util.formatting import text_table

EPSILON = 2.0
Names = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MechanismVerb(Output):
    """A mechanism, and what determines its number of releases; `Options` and `Bounds` describe other flags.

    agents: m, the number of agents that share.
    dimension: d, the number of features of an action.
    horizon: T, the number of rounds.
    schedule: when agents share, such as paper:gap=50: a name that `fedfairx list schedules` shows.
    centred: clip records around the middle of a public box, contexts in [0, 1]^d/√d and rewards in [0, 1],
        instead of around zero.
    """

    OPTIONS: ClassVar[Names] = ("mechanism", "epsilon", "delta", "slots", "aggregation", "colluding")
    BOUNDS: ClassVar[Names] = ("context_norm", "reward", "record_norm", "adjacency", "nonnegative")

    agents: int = 10
    dimension: int = 5
    horizon: int = 100_000
    schedule: str = option("geometric", metavar=NAMED)
    centred: bool = False

    @classmethod
    def others(cls) -> tuple[Setting, ...]:
        defaults = {"epsilon": EPSILON, "decide_from": DECIDE_FROM[0]}
        return (
            *settings_of(Options, only=cls.OPTIONS, defaults=defaults),
            *settings_of(Bounds, only=cls.BOUNDS, switches=True),
        )

    @cached_property
    def asked(self) -> Options:
        """The options of each agent."""
        options = dict(self.options)
        bounds = {name: options.pop(name) for name in self.BOUNDS if name in options}
        if self.centred:
            for name, value in bounds.items():
                text = "must be left out with --centred, whose box sets the bounds"
                require(name == "adjacency", f"--{name.replace('_', '-')}", text, value)
        schedule = as_schedule(self.schedule)
        if not schedule.public:
            options.setdefault("decide_from", "released+local")
        return Options(
            algorithm="priv-fairx-bayes",
            schedule=schedule,
            bounds=Bounds(**bounds),
            centring=Centring.unit_box(self.dimension) if self.centred else None,
            **{"epsilon": EPSILON, **options},
        )

    @property
    def budget(self) -> Budget:
        """The privacy budget of each agent, with as many releases as the schedule makes, at least one."""
        plan = Plan(self.horizon, self.agents, self.dimension)
        return self.asked.budget(self.asked.composed.schedule.max_releases(plan), agents=self.agents)


PRACTICAL_SHIFT = Options.shift  # an agent's default, in sd of the aggregate


@dataclass(frozen=True, kw_only=True)
class PrivacyVerb(MechanismVerb):
    """Calculate the noise of a privacy budget, and the gain of joining. For each mechanism it prints the
    releases, μ, noise, shift and radius.

        fedfairx privacy --agents 10 --horizon 100000 --epsilon 2
        fedfairx privacy --agents 30 --horizon 10000 --epsilon 4 --decide-from released
        fedfairx privacy --agents 10 --epsilon 2 --aggregation secure --colluding 2
        fedfairx privacy --epsilon 2 --centred
        fedfairx privacy --epsilon 2 --slots 1,0.63,0.5
        fedfairx privacy --epsilon 1 --person-records 5 --statement
        fedfairx privacy --epsilon 1 --json

    statement: print the guarantee as one page, for whoever signs for it.
    person_records: for the statement, the largest number of records of one person (default: no bound).
    noise_sd: sd of the rewards' noise.
    alpha: probability that the confidence region misses θ*.
    least_eigenvalue: least eigenvalue of E[x xᵀ], which decides when the Gram matrix is mostly signal
        (default: 1/(12 d), that of uniform x/√d).
    """

    OPTIONS = (*MechanismVerb.OPTIONS, "decide_from")

    statement: bool = False
    person_records: int | None = with_default(Budget, "person_records", None)
    noise_sd: float = 0.1
    alpha: float = 0.1
    least_eigenvalue: float | None = None

    def run(self) -> int:
        if self.statement:
            from fedfairx.privacy.statement import statement

            guarantee = replace(self.budget, person_records=self.person_records).guarantee()
            self.answer(guarantee.to_dict(), statement(guarantee, rounds=self.horizon))
            return 0 if guarantee.is_private else 1
        values = calculate(self)
        self.answer(values, _page(values, self))
        return 0


def calculate(args: PrivacyVerb) -> dict[str, Any]:
    """The calculator's answer as plain values."""
    from fedfairx.federation.setup.joining_gain import expected_gain
    from fedfairx.privacy import mu_for
    from fedfairx.privacy.guarantee import LARGE_DELTA

    require(0 < args.alpha < 1, "alpha", "must be in (0, 1)", args.alpha)
    require(args.noise_sd > 0, "noise_sd", "must be > 0", args.noise_sd)
    budget = args.budget
    delta, bounds = budget.delta, args.asked.record_bounds
    warnings = []
    if delta > LARGE_DELTA:
        warnings.append(
            f"delta={delta:g} permits publishing a fraction {delta:g} of the records outright; 1e-6 is usual"
        )
    if not budget.public_schedule:
        warnings.append(
            "this schedule's timing depends on the data: NOT private end to end, whatever the noise"
        )
    case: dict[str, Any] = {
        "horizon": args.horizon,
        "epsilon": budget.epsilon,
        "delta": delta,
        "centred": args.centred,
    }
    gain = None
    if bounds.slots == ONE:  # gains were not simulated for several slots
        gain = expected_gain(members=args.agents, decide_from=budget.decide_from, share=budget.share, **case)
    if gain is not None and gain.warning is not None:
        warnings.append(gain.warning)
    return {
        "agents": args.agents,
        "dimension": args.dimension,
        "schedule": args.schedule,
        "releases": budget.releases,
        "mu": mu_for(budget.epsilon, delta),
        **case,
        "adjacency": bounds.adjacency,
        "context_norm": bounds.context_norm,
        "reward": bounds.reward,
        "slots": list(budget.summed_bounds.slots),
        "sensitivity": budget.summed_bounds.sensitivity,
        "mechanism": budget.mechanism,
        "decide_from": budget.decide_from,
        "gain": None if gain is None else gain.to_dict(),
        "aggregation": _both(budget, args),
        "warnings": warnings,
        "mechanisms": [_one(name, replace(budget, mechanism=name), args) for name in mechanisms()],
    }


def _both(budget: Budget, args: PrivacyVerb) -> dict[str, Any]:
    """The largest noise of a total without and with secure aggregation, and what that claims."""
    import numpy as np

    plain = replace(budget, share=None).calibrate()
    largest = float(plain.sd(np.arange(1, budget.releases + 1)).max())
    noise: dict[str, Any] = {
        "chosen": args.asked.aggregation,
        "total_sd": {PLAIN: largest * math.sqrt(args.agents)},
    }
    colluding = args.asked.colluding or default_colluding(args.agents)
    if budget.public_schedule and args.agents >= colluding + 2:
        share = budget.share or NoiseShare.among(args.agents)
        secure = replace(budget, share=share)
        noise["total_sd"][SECURE] = largest * share.total_noise(args.agents)
        noise |= {"times_less": 1.0 / share.noise, "share": secure.guarantee().to_dict()["share"]}
    return noise


def _one(name: str, budget: Budget, args: PrivacyVerb) -> dict[str, Any]:
    import numpy as np

    from fedfairx.agent.pooling import noise_bounds
    from fedfairx.core.confidence import Confidence

    mechanism, releases = budget.calibrate(), budget.releases
    sd = np.asarray(mechanism.sd(np.arange(1, releases + 1)))
    loudest = float(sd.max()) * math.sqrt(args.agents)
    noise = noise_bounds(noise_sd=loudest, dimension=args.dimension, releases=releases, failure=args.alpha)
    observations = args.agents * args.horizon * budget.summed_bounds.context_norm**2
    radius = noise.radius(observations, dimension=args.dimension, noise_sd=args.noise_sd, alpha=args.alpha)
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


def _signal_round(aggregate_sd: float, args: PrivacyVerb) -> int | None:
    """The first round at which the least eigenvalue of all data exceeds the noise's norm, 2 s √d."""
    least = args.least_eigenvalue
    if least is None:
        least = args.asked.record_bounds.context_norm**2 / (12.0 * args.dimension)
    first = math.ceil(2.0 * aggregate_sd * math.sqrt(args.dimension) / (args.agents * least))
    return first if first <= args.horizon else None


def _aggregation_lines(noise: dict[str, Any], args: PrivacyVerb) -> list[str]:
    """Noise of a total without and with secure aggregation; if chosen, the claims side by side."""
    plain, share = noise["total_sd"][PLAIN], noise.get("share")
    if share is None:
        return [f"\nNoise of the sum over agents, sd max: {plain:.4g}."]
    lines = [
        f"\nNoise of the sum over agents, sd max: {plain:.4g}; with secure aggregation "
        f"{noise['total_sd'][SECURE]:.4g}, {noise['times_less']:.3g} times less "
        f"({share['colluding']} of {args.agents} may collude, each adds 1/{share['honest']} of the variance)."
    ]
    if args.asked.secure:
        rows = [(each["whom"], f"{each['epsilon']:.4g}", f"{each['mu']:.4g}") for each in share["against"]]
        lines.append(text_table(("against", "ε", "μ"), rows))
        steps, records = f"2^{share['step_exponent']}", share["records"]
        lines.append(
            f"Rows are rounded to multiples of {steps}; at most {records} records of each agent enter."
        )
    return lines


def _page(values: dict[str, Any], args: PrivacyVerb) -> str:
    """The calculator's answer as text."""
    rows = []
    for item in values["mechanisms"]:
        numbers = (*item["noise_sd"].values(), item["practical"]["shift"])
        rows.append(
            (
                item["name"] + (" *" if item["name"] == values["mechanism"] else ""),
                *(f"{number:.4g}" for number in numbers),
                f"{item['practical']['radius']:.3g}",
                f"{item['shift']:.4g}",
                f"{item['radius']:.4g}",
                item["signal_round"] if item["signal_round"] is not None else f"> {args.horizon}",
            )
        )
    slots = len(values["slots"])
    unit = "record" if slots == 1 else f"decision with all {slots} slots"
    columns = ("mechanism", "sd first", "middle", "last", "max", "shift", "radius")
    lines = [
        f"{values['releases']} releases of each of {args.agents} agents, d={args.dimension}, "
        f"T={args.horizon}; (ε={values['epsilon']:g}, δ={values['delta']:g}) is μ={values['mu']:.4g} "
        f"({values['adjacency']} one {unit}, sensitivity {values['sensitivity']:.4g})\n",
        text_table((*columns, "shift in theory", "radius in theory", "mostly signal from round"), rows),
        "\n* chosen. sd: of one entry of an agent's release. Shifts and radii: of the sum over agents, at T.",
    ]
    if args.centred:
        lines.append(
            "Centred: sd of the centred release. The records' statistics follow from it;\n"
            "their noise is larger along the public point."
        )
    lines += _aggregation_lines(values["aggregation"], args)
    if values["gain"] is not None:
        lines.append(f"\n{values['gain']['sentence']}")
    return "\n".join([*lines, *(f"warning: {warning}" for warning in values["warnings"])])
