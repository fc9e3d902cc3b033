"""`fedfairx audit`: attack a mechanism as configured; exit non-zero when its claim is false."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedfairx.cli.common import add_json, add_verb, as_schedule, print_json
from fedfairx.cli.privacy import add_mechanism, bounds_of, releases_of


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "audit",
        run,
        summary="attack the privacy mechanism as configured, and compare what is found with what is claimed",
        details="Exits 1 when something contradicts the claim, and does so again on fresh keys. "
        "It can refute a claim and never prove one; of right mechanisms it calls one in a million false.",
        example="""
            fedfairx audit --mechanism blt --epsilon 2 --delta 1e-6
            fedfairx audit --epsilon 2 --centred
            fedfairx audit --releases 20 --plot audit.png""",
    )
    add_mechanism(parser)
    parser.add_argument(
        "--releases", type=int, help="how many there are (default: as many as the schedule makes)"
    )
    parser.add_argument("--runs", type=int, default=8_000, help="runs of each world (default: 8000)")
    parser.add_argument("--seed", type=int, default=0, help="of the runs (default: 0)")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the scores of the two worlds: .png, .svg or .pdf (default: no figure)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from fedfairx.privacy import Centring, calibrate
    from fedfairx.privacy.audit.audit import audit, plot

    bounds = bounds_of(args)
    mechanism = calibrate(
        args.mechanism,
        epsilon=args.epsilon,
        delta=args.delta,
        releases=args.releases if args.releases is not None else releases_of(args),
        sensitivity=bounds.sensitivity,
    )
    report = audit(
        mechanism,
        bounds=bounds,
        dimension=args.dimension,
        epsilon=args.epsilon,
        delta=args.delta,
        centring=Centring.unit_box(args.dimension) if args.centred else None,
        public_schedule=as_schedule(args.schedule).public,
        runs=args.runs,
        seed=args.seed,
    )
    if args.plot is not None:
        plot(report, args.plot)
    if args.json:
        print_json(report.to_dict())
    else:
        print(report)
    return 0 if report.ok else 1
