"""`python -m paper`: the paper's experiments and ours."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedfairx.errors import FedFairXError

EXIT_REFUSED, EXIT_INTERRUPTED = 2, 130
REPRODUCE = """\
examples:
  python -m paper reproduce all --out results
  python -m paper reproduce exp1 exp3 --quick
  python -m paper reproduce all --engine dask://10.0.0.5:8786
  python -m paper reproduce mine --plugin mine.py"""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str, **more: Any) -> argparse.ArgumentParser:
        raw = argparse.RawDescriptionHelpFormatter
        made = verbs.add_parser(name, help=text, description=f"{text}.", formatter_class=raw, **more)
        made.add_argument("--json", action="store_true", help="print the answer as JSON")
        return made

    kept = "stored results are not computed again: one that was stopped continues where it ended"
    reproduce = verb("reproduce", f"run experiments and write a report; {kept}", epilog=REPRODUCE)
    plot = verb("plot", "draw the figures and write the report again, from stored results")
    listed = verb("list", "list the experiments")
    calibrate = verb("calibrate", "fit K, σ and the scale s of the radius to the paper's B0 curve")
    for each in (reproduce, plot, listed):
        each.add_argument(
            "--plugin", type=Path, action="append", default=[], help="a Python file with experiments"
        )
    for each in (reproduce, plot):
        names = "exp1 … exp12, flights, star, or all (the default)"
        each.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=names)
        each.add_argument(
            "--out", type=Path, default=Path("results"), metavar="DIR", help="folder of the results"
        )
        each.add_argument("--quiet", action="store_true", help="do not print the progress")
    reproduce.add_argument("--quick", action="store_true", help="make every figure at a reduced size")
    reproduce.add_argument("--seeds", type=int, help="runs of each setting (default: 5, as in the paper)")
    reproduce.add_argument("--horizon", type=int, help="rounds T (default: 100000, as in the paper)")
    where = {"default": "local", "metavar": "local|dask://HOST:PORT", "help": "where runs are performed"}
    reproduce.add_argument("--engine", **where)  # type: ignore[arg-type]
    reproduce.add_argument(
        "--replace",
        action="store_true",
        help="remove experiments of another size or by other code from the folder's report",
    )
    for each in (reproduce, calibrate):
        each.add_argument("--workers", type=int, help="number of threads (default: one per processor)")
    calibrate.add_argument("--out", type=Path, metavar="FILE", help="write the calibration to this file")
    calibrate.add_argument("--arms", type=_numbers(int), help="values of K to try (default: 5,10,20)")
    calibrate.add_argument(
        "--noise-sd", type=_numbers(float), help="values of σ to try (default: 0.05,0.1,0.2)"
    )
    calibrate.add_argument("--horizon", type=int, help="rounds of the curve to fit (default: 100000)")
    return top


def _numbers(kind: type) -> Callable[[str], tuple[float, ...]]:
    def read(text: str) -> tuple[float, ...]:
        return tuple(kind(part) for part in text.split(","))

    return read


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 refused, 130 interrupted."""
    args = parser().parse_args(argv)
    from paper.sweep import Interrupted

    try:
        code: int
        code, answer, text = globals()[f"_{args.verb}"](args)
    except Interrupted as error:
        print(f"paper: stopped: {error}; the same command goes on from there", file=sys.stderr)
        return EXIT_INTERRUPTED
    except FedFairXError as error:
        print(f"paper: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:  # again: threads inside of compiled code would keep the process alive
        print("paper: stopped", file=sys.stderr, flush=True)
        os._exit(EXIT_INTERRUPTED)
    print(json.dumps(answer, indent=2, ensure_ascii=False) if args.json else text)
    return code


def _reproduce(args: argparse.Namespace) -> tuple[int, object, str]:
    from paper.engine import Progress
    from paper.experiment import FULL, QUICK, Size
    from paper.registry import EXPERIMENTS, choose, load
    from paper.sweep import reproduce

    plugins = [load(path) for path in args.plugin]
    known = EXPERIMENTS | {name: each for _, found in plugins for name, each in found.items()}
    base = QUICK if args.quick else FULL
    done = reproduce(
        choose(args.experiments, known),
        size=Size(
            horizon=base.horizon if args.horizon is None else args.horizon,
            seeds=base.seeds if args.seeds is None else args.seeds,
        ),
        out=args.out,
        engine_name=args.engine,
        workers=args.workers,
        progress=Progress(quiet=args.quiet),
        ship=tuple(module for module, _ in plugins),
        replace=args.replace,
        known=known.values(),
    )
    values = done.to_dict()
    lines = [] if args.quiet else list(_lines(values["scores"]))
    for label, reason in done.failures.items():
        print(f"paper: {label} failed: {reason}", file=sys.stderr)
    if done.failures:
        print("paper: the other results are stored; the same command tries these again", file=sys.stderr)
    return bool(done.failures), values, "\n".join([*lines, f"{done.report} ({done.seconds:.1f} s)"])


def _lines(scores: dict[str, dict[str, list[dict[str, str]]]]) -> list[str]:
    lines = []
    for name, each in scores.items():
        lines += [
            f"{name}  {r['name']}: paper {r['paper']:.2f}, ours {r['ours']:.2f}: {r['verdict']}"
            for r in each["ratios"]
        ]
        lines += [f"{name}  {c['statement']}: {c['verdict']}; {c['found']}" for c in each["claims"]]
    return lines


def _plot(args: argparse.Namespace) -> tuple[int, object, str]:
    from paper.engine import Progress
    from paper.registry import EXPERIMENTS, choose, load
    from paper.sweep import redraw

    known = EXPERIMENTS | {name: each for path in args.plugin for name, each in load(path)[1].items()}
    choose(args.experiments, known)  # refuses unknown names
    names = [] if "all" in args.experiments else args.experiments
    sections = redraw(names, known=known.values(), out=args.out, progress=Progress(quiet=args.quiet))
    return 0, {each.experiment.name: each.scores() for each in sections}, f"{args.out / 'report.html'}"


def _list(args: argparse.Namespace) -> tuple[int, object, str]:
    from paper.registry import EXPERIMENTS, load

    known = EXPERIMENTS | {name: each for path in args.plugin for name, each in load(path)[1].items()}
    questions = {name: each.question for name, each in known.items()}
    return 0, questions, "\n".join(f"{name:8} {question}" for name, question in questions.items())


def _calibrate(args: argparse.Namespace) -> tuple[int, object, str]:
    from paper.calibrate import SearchGrid, calibrate
    from paper.engine import engine
    from paper.sweep import write_whole

    changes = {"arms": args.arms, "noise_sds": args.noise_sd, "horizon": args.horizon}
    settings = SearchGrid(**{name: value for name, value in changes.items() if value is not None})
    with engine("local", args.workers) as executor:
        found = calibrate(settings, executor=executor)
    if args.out is not None:
        write_whole(args.out, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    lines = [
        f"K = {t['arms']}, σ = {t['noise_sd']:g}: best s {t['scale']:.3f}, error {t['error']:.3f}, B0 at T "
        f"{t['at_end']:.0f}"
        for t in found["trials"]
    ]
    return 0, found, "\n".join([*lines, f"chosen: {found['result']}"])


if __name__ == "__main__":
    sys.exit(main())
