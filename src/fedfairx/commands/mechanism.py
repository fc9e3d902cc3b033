"""What `fedfairx privacy` and `fedfairx audit` are told of a mechanism."""

from __future__ import annotations

import argparse
from typing import get_args

from fedfairx.agent.schedules import SCHEDULES, Plan
from fedfairx.commands.common import as_schedule
from fedfairx.errors import require
from fedfairx.privacy import Bounds, Centring, mechanisms
from fedfairx.privacy.bounds import Adjacency


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
