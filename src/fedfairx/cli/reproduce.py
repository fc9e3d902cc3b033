"""`fedfairx reproduce` and `fedfairx plot`: the experiments, and their figures from stored results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedfairx.cli.common import add_json, add_verb, print_json
from fedfairx.errors import require

DEFAULT_OUT = "results"


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "reproduce",
        run,
        summary="run the paper's experiments and ours, and write figures and a report",
        details="What is stored is not computed again: a run that was stopped goes on where it was.",
        example="""
            fedfairx reproduce all --out results
            fedfairx reproduce exp1 exp3 --quick
            fedfairx reproduce all --engine dask://10.0.0.5:8786
            fedfairx reproduce mine --plugin mine.py""",
    )
    _names(parser)
    parser.add_argument("--quick", action="store_true", help="every figure at a reduced size, in about 20 s")
    parser.add_argument("--seeds", type=int, help="runs of each setting (default: 5, as in the paper)")
    parser.add_argument("--horizon", type=int, help="rounds T (default: 100000, as in the paper)")
    parser.add_argument(
        "--engine", default="local", metavar="local|dask://HOST:PORT", help="where jobs run (default: local)"
    )
    parser.add_argument(
        "--workers", type=int, help="threads of the local engine (default: one per processor)"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="let go of experiments in the folder's report that are of another size or by other code",
    )
    _folder(parser)
    add_json(parser)
    drawn = add_verb(
        verbs,
        "plot",
        run_plot,
        summary="draw the figures and write the report again, from stored results",
        example="fedfairx plot --out results\nfedfairx plot exp3 --out results",
    )
    _names(drawn)
    _folder(drawn)
    add_json(drawn)


def _names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiments", nargs="*", metavar="EXPERIMENT", help="exp1 … exp10, or all (default: all)"
    )
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file with experiments (default: none)",
    )


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(DEFAULT_OUT),
        help=f"folder of all that is made (default: {DEFAULT_OUT})",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing of the progress")


def run(args: argparse.Namespace) -> int:
    from fedfairx.experiments.experiment import FULL, QUICK, Size
    from fedfairx.experiments.registry import choose, load_plugin
    from fedfairx.experiments.reproduce import reproduce
    from fedfairx.experiments.sweep.progress import progress

    modules = tuple(load_plugin(path) for path in args.plugin)
    chosen = choose(args.experiments)
    base = QUICK if args.quick else FULL
    size = Size(
        horizon=base.horizon if args.horizon is None else args.horizon,
        seeds=base.seeds if args.seeds is None else args.seeds,
    )
    watcher = progress(quiet=args.quiet)
    done = reproduce(
        chosen,
        size=size,
        out=args.out,
        engine_name=args.engine,
        workers=args.workers,
        progress=watcher,
        ship=modules,
        replace=args.replace,
    )
    if args.json:
        print_json(done.to_dict())
    else:
        if not args.quiet:
            _say_scores(done.scores)
        print(f"{done.report} ({done.seconds:.1f} s)")
    return _failed(done) if done.swept.failures else 0


def _failed(done: Any) -> int:
    import sys

    failures = done.swept.failures
    print(f"fedfairx: {len(failures)} of {done.swept.jobs} jobs failed:", file=sys.stderr)
    for failure in failures:
        print(f"  {failure.job.label}: {failure.reason}", file=sys.stderr)
    print("fedfairx: the other results are stored; the same command tries these again", file=sys.stderr)
    return 1


def _say_scores(scores: Any) -> None:
    for name, found in scores.items():
        for ratio in found.ratios:
            note = f" ({ratio.note})" if ratio.note else ""
            print(f"{name}  {ratio.name}: paper {ratio.paper:.2f}, ours {ratio.ours}: {ratio.verdict}{note}")
        for claim in found.claims:
            print(f"{name}  {claim.statement}: {claim.verdict}; {claim.found}")


def run_plot(args: argparse.Namespace) -> int:
    from fedfairx.experiments.registry import experiments, load_plugin
    from fedfairx.experiments.reproduce import redraw
    from fedfairx.experiments.sweep.progress import progress

    for path in args.plugin:
        load_plugin(path)
    names = [] if "all" in args.experiments else args.experiments
    for name in names:
        require(name in experiments(), "experiment", f"must be one of {', '.join(experiments())}, all", name)
    scores = redraw(names, out=args.out, progress=progress(quiet=args.quiet))
    if args.json:
        print_json({name: found.to_dict() for name, found in scores.items()})
    else:
        print(args.out / "report.html")
    return 0
