"""What `fedfairx privacy` and `fedfairx audit` are told of a mechanism."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any, get_args

from fedfairx.agent.options import DECIDE_FROM, Options
from fedfairx.agent.schedules import SCHEDULES, Plan
from fedfairx.cli.common import add_json, add_verb, as_schedule, print_json, print_table
from fedfairx.errors import require
from fedfairx.privacy import Bounds, Centring, mechanisms
from fedfairx.privacy.bounds import Adjacency

if TYPE_CHECKING:
    from fedfairx.privacy import Bounds, Guarantee


def add_mechanism(parser: argparse.ArgumentParser) -> None:
    """What a mechanism and its number of releases follow from."""
    parser.add_argument(
        "--mechanism",
        default="blt",
        help=f"how noise is laid over releases; choices: {', '.join(mechanisms())} (default: blt)",
    )
    parser.add_argument(
        "--epsilon", type=float, default=2.0, help="ε of all messages of an agent together (default: 2)"
    )
    parser.add_argument("--delta", type=float, default=1e-6, help="δ of the same (default: 1e-6)")
    parser.add_argument("--agents", type=int, default=10, help="m, how many share (default: 10)")
    parser.add_argument(
        "--dimension", type=int, default=5, help="d, numbers that describe an arm (default: 5)"
    )
    parser.add_argument("--horizon", type=int, default=100_000, help="T, rounds (default: 100000)")
    parser.add_argument(
        "--schedule",
        default="paper",
        metavar="NAME[:KEY=VALUE,…]",
        help=f"when agents share, such as paper:gap=50; choices: {', '.join(SCHEDULES)} (default: paper)",
    )
    parser.add_argument(
        "--context-norm", type=float, default=1.0, help="L: contexts are clipped to it (default: 1)"
    )
    parser.add_argument("--reward", type=float, default=1.0, help="B: rewards are clipped to ±B (default: 1)")
    parser.add_argument(
        "--adjacency",
        default="replace",
        help=f"what is hidden of a record; choices: {', '.join(get_args(Adjacency))} (default: replace)",
    )
    parser.add_argument(
        "--nonnegative",
        action="store_true",
        help="contexts and rewards are known to be >= 0 (default: they may not be)",
    )
    parser.add_argument(
        "--centred",
        action="store_true",
        help="records are centred at the middle of a public box: contexts in [0, 1]^d/√d, rewards in [0, 1] "
        "(default: clipped around zero)",
    )


def bounds_of(args: argparse.Namespace) -> Bounds:
    if args.centred:
        text = "must be left out with --centred, whose box states the bounds"
        require(args.context_norm == 1.0, "--context-norm", text, args.context_norm)
        require(args.reward == 1.0, "--reward", text, args.reward)
        require(not args.nonnegative, "--nonnegative", text, args.nonnegative)
        return Centring.unit_box(args.dimension).inner_bounds(adjacency=args.adjacency)
    return Bounds(
        context_norm=args.context_norm,
        reward=args.reward,
        adjacency=args.adjacency,
        nonnegative=args.nonnegative,
    )


def releases_of(args: argparse.Namespace) -> int:
    """How many releases the schedule makes at most; at least one, for a mechanism to be sized by."""
    plan = Plan(args.horizon, args.agents, args.dimension)
    return max(1, as_schedule(args.schedule).max_releases(plan))


PRACTICAL_SHIFT = Options.shift  # an agent's default, in sd of the aggregate


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "privacy",
        run,
        summary="calculate releases, μ, noise, shift and radius for a privacy budget, by mechanism, and what "
        "joining gains",
        example="""
            fedfairx privacy --agents 10 --horizon 100000 --epsilon 2 --delta 0.1
            fedfairx privacy --agents 30 --horizon 10000 --epsilon 4 --decide-from released
            fedfairx privacy --epsilon 2 --centred
            fedfairx privacy --epsilon 1 --person-records 5 --statement
            fedfairx privacy --epsilon 1 --json""",
    )
    add_mechanism(parser)
    parser.add_argument(
        "--statement",
        action="store_true",
        help="print what is promised, as one page for whoever signs for it",
    )
    parser.add_argument(
        "--decide-from",
        default="own+released",
        help=f"what decisions may use; choices: {', '.join(DECIDE_FROM)}; released is the strict mode "
        "(default: own+released)",
    )
    parser.add_argument(
        "--person-records",
        type=int,
        metavar="K",
        help="for the statement: at most K records of a person enter (default: no bound, no claim)",
    )
    parser.add_argument("--noise-sd", type=float, default=0.1, help="sd of the rewards' noise (default: 0.1)")
    parser.add_argument(
        "--alpha", type=float, default=0.1, help="chance that the region misses θ* (default: 0.1)"
    )
    parser.add_argument(
        "--least-eigenvalue",
        type=float,
        help="of E[x xᵀ], for when the Gram is mostly signal (default: uniform x/√d, 1/(12 d))",
    )
    add_json(parser)


def calculate(args: argparse.Namespace) -> dict[str, Any]:
    """The calculator's answer as plain values."""
    from fedfairx.agent.schedules import Plan
    from fedfairx.errors import require
    from fedfairx.federation.setup.joining_gain import expected_gain
    from fedfairx.privacy import mechanisms, mu_for
    from fedfairx.privacy.guarantee import LARGE_DELTA, require_decide_from

    known = mechanisms()
    require(args.mechanism in known, "mechanism", f"must be one of {', '.join(known)}", args.mechanism)
    require(0 < args.alpha < 1, "alpha", "must be in (0, 1)", args.alpha)
    require(math.isfinite(args.noise_sd) and args.noise_sd > 0, "noise_sd", "must be > 0", args.noise_sd)
    require_decide_from(args.decide_from)
    plan = Plan(args.horizon, args.agents, args.dimension)
    schedule = as_schedule(args.schedule)
    bounds = bounds_of(args)
    warnings = []
    if args.delta > LARGE_DELTA:
        warnings.append(
            f"delta={args.delta:g} permits publishing a fraction {args.delta:g} of the records outright; "
            "1e-6 is usual"
        )
    if not schedule.public:
        warnings.append(
            "this schedule's timing depends on the data: NOT private end to end, whatever the noise"
        )
    mu = mu_for(args.epsilon, args.delta)
    gain = expected_gain(
        members=args.agents,
        horizon=args.horizon,
        epsilon=args.epsilon,
        delta=args.delta,
        decide_from=args.decide_from,
        centred=args.centred,
    )
    if gain is not None and gain.warning is not None:
        warnings.append(gain.warning)
    return {
        "agents": args.agents,
        "dimension": args.dimension,
        "horizon": args.horizon,
        "schedule": args.schedule,
        "releases": releases_of(args),
        "mu": mu,
        "epsilon": args.epsilon,
        "delta": args.delta,
        "adjacency": args.adjacency,
        "context_norm": args.context_norm,
        "reward": args.reward,
        "sensitivity": bounds.sensitivity,
        "centred": args.centred,
        "mechanism": args.mechanism,
        "decide_from": args.decide_from,
        "gain": None if gain is None else gain.to_dict(),
        "warnings": warnings,
        "mechanisms": [_one(name, args, plan, bounds, releases_of(args)) for name in known],
    }


def _one(name: str, args: argparse.Namespace, plan: Any, bounds: Bounds, releases: int) -> dict[str, Any]:
    import numpy as np

    from fedfairx.agent.pooling import noise_bounds
    from fedfairx.core.confidence import Confidence
    from fedfairx.privacy import calibrate
    from fedfairx.theory import private_radius

    mechanism = calibrate(
        name, epsilon=args.epsilon, delta=args.delta, releases=releases, sensitivity=bounds.sensitivity
    )
    sd = np.asarray(mechanism.sd(np.arange(1, releases + 1)))
    loudest = float(sd.max()) * math.sqrt(plan.agents)
    noise = noise_bounds(noise_sd=loudest, dimension=plan.dimension, releases=releases, failure=args.alpha)
    radius = private_radius(
        plan.agents * plan.horizon * bounds.context_norm**2,
        dimension=plan.dimension,
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
            "radius": practical.radius(plan.agents * plan.horizon, plan.dimension),
        },
        "signal_round": _signal_round(loudest, args),
    }


def _signal_round(aggregate_sd: float, args: argparse.Namespace) -> int | None:
    """The first round at which the least known direction of all data outweighs the noise's norm, 2 s √d."""
    least = args.least_eigenvalue
    if least is None:
        least = args.context_norm**2 / (12.0 * args.dimension)
    found = math.ceil(2.0 * aggregate_sd * math.sqrt(args.dimension) / (args.agents * least))
    return found if found <= args.horizon else None


def guarantee_of(args: argparse.Namespace) -> Guarantee:
    """What agents of this configuration claim for their messages."""
    from fedfairx.privacy import Bounds, Centring, KeyedNoise, PersonBound, new_key, private

    privatizer = private(
        args.dimension,
        epsilon=args.epsilon,
        delta=args.delta,
        releases=releases_of(args),
        mechanism=args.mechanism,
        bounds=Bounds(adjacency=args.adjacency) if args.centred else bounds_of(args),
        centring=Centring.unit_box(args.dimension) if args.centred else None,
        decide_from=args.decide_from,
        public_schedule=as_schedule(args.schedule).public,
        noise=KeyedNoise(new_key(), agent="statement", run="statement"),
    )
    if args.person_records is None:
        return privatizer.guarantee
    return PersonBound(privatizer, records=args.person_records).guarantee


def run_statement(args: argparse.Namespace) -> int:
    from fedfairx.privacy.statement import statement

    guarantee = guarantee_of(args)
    if args.json:
        print_json(guarantee.to_dict())
    else:
        print(statement(guarantee, rounds=args.horizon))
    return 0 if guarantee.is_private else 1


def run(args: argparse.Namespace) -> int:
    if args.statement:
        return run_statement(args)
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
