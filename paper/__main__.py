"""`python -m paper`: the paper's experiments and ours."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfairx.errors import FedFairXError
from paper.calibrate import SearchGrid, calibrate
from paper.engine import Progress, engine
from paper.experiment import FULL, QUICK, Experiment
from paper.registry import EXPERIMENTS, choose, load
from paper.scores import Claim, Ratio
from paper.sweep import Interrupted, reproduce, write_whole

EXIT_REFUSED, EXIT_INTERRUPTED = 2, 130
EXAMPLES = """\
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
        return verbs.add_parser(name, help=text, description=f"{text}.", formatter_class=raw, **more)

    kept = "stored results are not computed again: one that was stopped continues where it ended"
    made = verb("reproduce", f"run experiments and write a report; {kept}", epilog=EXAMPLES)
    listed = verb("list", "list the experiments")
    fitted = verb("calibrate", "fit K, σ and the scale s of the radius to the paper's B0 curve")
    for each in (made, listed):
        text = "a Python file with experiments"
        each.add_argument("--plugin", type=Path, action="append", default=[], help=text)
    names = "exp1 … exp12, flights, star, or all (the default)"
    made.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=names)
    made.add_argument(
        "--out", type=Path, default=Path("results"), metavar="DIR", help="folder of the results"
    )
    made.add_argument("--quiet", action="store_true", help="do not print the progress")
    made.add_argument("--quick", action="store_true", help="make every figure at a reduced size")
    made.add_argument("--seeds", type=int, help="runs of each setting (default: 5, as in the paper)")
    made.add_argument("--horizon", type=int, help="rounds T (default: 100000, as in the paper)")
    made.add_argument(
        "--engine", default="local", metavar="local|dask://HOST:PORT", help="where runs are performed"
    )
    for each in (made, fitted):
        each.add_argument("--workers", type=int, help="number of threads (default: one per processor)")
    fitted.add_argument("--out", type=Path, metavar="FILE", help="write the calibration to this file")
    fitted.add_argument("--arms", type=_several(int), help="values of K to try (default: 5,10,20)")
    fitted.add_argument("--noise-sd", type=_several(float), help="values of σ to try (default: 0.05,0.1,0.2)")
    fitted.add_argument("--horizon", type=int, help="rounds of the curve to fit (default: 100000)")
    return top


def _several(kind: type) -> Any:
    return lambda text: tuple(kind(part) for part in text.split(","))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 refused, 130 interrupted."""
    args = parser().parse_args(argv)
    try:
        code, text = VERBS[args.verb](args)
    except Interrupted as error:
        print(f"paper: stopped: {error}; the same command goes on from there", file=sys.stderr)
        return EXIT_INTERRUPTED
    except FedFairXError as error:
        print(f"paper: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:  # again: threads inside of compiled code would keep the process alive
        print("paper: stopped", file=sys.stderr, flush=True)
        os._exit(EXIT_INTERRUPTED)
    print(text)
    return code


def _given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options of these names that were given."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _known(plugins: Sequence[tuple[object, dict[str, Experiment]]]) -> dict[str, Experiment]:
    return EXPERIMENTS | {name: each for _, found in plugins for name, each in found.items()}


def _reproduce(args: argparse.Namespace) -> tuple[int, str]:
    plugins = [load(path) for path in args.plugin]
    known = _known(plugins)
    done = reproduce(
        choose(args.experiments, known),
        size=replace(QUICK if args.quick else FULL, **_given(args, "horizon", "seeds")),
        out=args.out,
        engine_name=args.engine,
        workers=args.workers,
        progress=Progress(quiet=args.quiet),
        ship=tuple(module for module, _ in plugins),
        known=list(known.values()),
    )
    for label, reason in done.failures.items():
        print(f"paper: {label} failed: {reason}", file=sys.stderr)
    if done.failures:
        print("paper: the other results are stored; the same command tries these again", file=sys.stderr)
    lines = []
    for section in [] if args.quiet else done.sections:
        ratios, claims, name = section.of(Ratio), section.of(Claim), section.experiment.name
        lines += [
            f"{name}  {r.name}: paper {r.paper:.2f}, ours {r.ours.value:.2f}: {r.verdict}" for r in ratios
        ]
        lines += [f"{name}  {claim.statement}: {claim.verdict}; {claim.found}" for claim in claims]
    return bool(done.failures), "\n".join([*lines, f"{done.report} ({done.seconds:.1f} s)"])


def _list(args: argparse.Namespace) -> tuple[int, str]:
    known = _known([load(path) for path in args.plugin])
    return 0, "\n".join(f"{name:8} {each.question}" for name, each in known.items())


def _calibrate(args: argparse.Namespace) -> tuple[int, str]:
    settings = SearchGrid(**_given(args, "arms", "noise_sd", "horizon"))
    with engine("local", args.workers) as submit:
        found = calibrate(settings, submit=submit)
    if args.out is not None:
        write_whole(args.out, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    lines = [
        f"K = {t['arms']}, σ = {t['noise_sd']:g}: best s {t['scale']:.3f}, error {t['error']:.3f}, B0 at T "
        f"{t['at_end']:.0f}"
        for t in found["trials"]
    ]
    return 0, "\n".join([*lines, f"chosen: {found['result']}"])


VERBS = {"reproduce": _reproduce, "list": _list, "calibrate": _calibrate}

if __name__ == "__main__":
    sys.exit(main())
