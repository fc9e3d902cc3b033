"""`fedfairx reproduce` and `fedfairx plot`: the experiments, and their figures from stored results."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedfairx.cli.common import Output, add_verb, print_json
from fedfairx.errors import require


@dataclass(frozen=True, kw_only=True)
class Plot(Output):
    """Flags of `fedfairx plot`.

    experiments: exp1 … exp10, or all (default: all).
    plugin: a Python file with experiments.
    out: folder of the results, figures and report.
    quiet: do not print the progress.
    """

    experiments: tuple[str, ...] = field(default=(), metadata={"positional": True, "metavar": "EXPERIMENT"})
    plugin: tuple[Path, ...] = ()
    out: Path = field(default=Path("results"), metadata={"metavar": "DIR"})
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class Reproduce(Plot):
    """Flags of `fedfairx reproduce`.

    quick: make every figure at a reduced size, in about 20 s.
    seeds: runs of each setting (default: 5, as in the paper).
    horizon: rounds T (default: 100000, as in the paper).
    engine: where jobs run.
    workers: threads of the local engine (default: one per processor).
    replace: drop experiments in the folder's report that are of another size or by other code.
    """

    quick: bool = False
    seeds: int | None = None
    horizon: int | None = None
    engine: str = field(default="local", metadata={"metavar": "local|dask://HOST:PORT"})
    workers: int | None = None
    replace: bool = False


def add(verbs: Any) -> None:
    add_verb(
        verbs,
        "reproduce",
        run,
        Reproduce,
        summary="Run the paper's experiments and ours, and write figures and a report. "
        "Stored results are not computed again: a run that was stopped goes on where it was.",
        example="""
            fedfairx reproduce all --out results
            fedfairx reproduce exp1 exp3 --quick
            fedfairx reproduce all --engine dask://10.0.0.5:8786
            fedfairx reproduce mine --plugin mine.py""",
    )
    add_verb(
        verbs,
        "plot",
        run_plot,
        Plot,
        summary="Draw the figures and write the report again, from stored results.",
        example="fedfairx plot --out results\nfedfairx plot exp3 --out results",
    )


def run(args: Reproduce) -> int:
    from fedfairx.experiments.experiment import FULL, QUICK, Size
    from fedfairx.experiments.registry import choose, load_plugin
    from fedfairx.experiments.reproduce import reproduce
    from fedfairx.experiments.sweep.progress import progress

    modules = tuple(load_plugin(path) for path in args.plugin)
    chosen = choose(list(args.experiments))
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


def run_plot(args: Plot) -> int:
    from fedfairx.experiments.registry import experiments, load_plugin
    from fedfairx.experiments.reproduce import redraw
    from fedfairx.experiments.sweep.progress import progress

    for path in args.plugin:
        load_plugin(path)
    names = [] if "all" in args.experiments else list(args.experiments)
    for name in names:
        require(name in experiments(), "experiment", f"must be one of {', '.join(experiments())}, all", name)
    scores = redraw(names, out=args.out, progress=progress(quiet=args.quiet))
    if args.json:
        print_json({name: found.to_dict() for name, found in scores.items()})
    else:
        print(args.out / "report.html")
    return 0
