"""What `fedfairx simulate` leaves behind: plain values, a table of curves, a figure."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfairx.cli.common import add_json, add_verb, print_json
from fedfairx.cli.config import ABOUT, prepare, settings, tables
from fedfairx.errors import InvalidInput
from fedfairx.simulation import Result

if TYPE_CHECKING:
    from fedfairx.simulation import Result


_TABLE_FILES = (".csv", ".parquet")
_FIGURE_FILES = (".png", ".svg", ".pdf")


def summary(results: dict[str, Result]) -> dict[str, Any]:
    """Plain values for JSON."""
    result, *others = results.values()
    scenario = {item.name: getattr(result.scenario, item.name) for item in fields(result.scenario)}
    measured: dict[str, Any] = {}
    if result.shown.size:
        share = result.weakest_share(window=None)[:, -1].tolist()
        measured = {"exposure": result.exposure.tolist(), "weakest_share": share}
    return {
        "algorithm": result.algorithm,
        "scenario": {
            **scenario,
            "contexts": str(result.scenario.contexts),
            "merit": repr(result.scenario.merit),
        },
        "options": result.options,
        "seeds": list(result.seeds),
        "rounds": result.rounds.tolist(),
        "fairness_regret": result.fairness_regret.tolist(),
        "reward_regret": result.reward_regret.tolist(),
        "syncs": result.syncs.tolist(),
        **measured,
        "baselines": {
            each.algorithm: {
                "fairness_regret": each.fairness_regret.tolist(),
                "reward_regret": each.reward_regret.tolist(),
            }
            for each in others
        },
    }


def write(result: Result, path: Path) -> None:
    from fedfairx.experiments.sweep.partial_files import write_whole

    frame = result.to_frame()
    writers: dict[str, Callable[[], str | bytes]] = {
        ".csv": lambda: frame.to_csv(index=False),
        ".parquet": lambda: frame.to_parquet(),
    }
    write_whole(path, writers[path.suffix]())


def plot(result: Result, path: Path) -> None:
    from fedfairx.experiments.report.figures import drawn
    from fedfairx.experiments.sweep.partial_files import write_whole
    from fedfairx.util.plotting import styled

    figure = result.plot()
    with styled():
        try:
            image = drawn(figure, path.suffix[1:])
        except ValueError as error:
            raise InvalidInput(f"plot must be a figure file, got {path} ({error})") from None
    write_whole(path, image)


def check_files(out: Path | None, figure: Path | None) -> None:
    """Refuse before the simulation what could not be written after it."""
    for name, path, endings in (("out", out, _TABLE_FILES), ("plot", figure, _FIGURE_FILES)):
        if path is None:
            continue
        if path.suffix not in endings:
            raise InvalidInput(f"{name} must end in {', '.join(endings)}, got {name}={str(path)!r}")
        if not path.parent.is_dir():
            raise InvalidInput(f"{name} must lie in a folder that exists, got {name}={str(path)!r}")
        if path.is_dir():
            raise InvalidInput(f"{name} must be a file, got the folder {name}={str(path)!r}")


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "simulate",
        run,
        summary="simulate your own scenario, beside learning alone and perfect pooling",
        details="Every setting is a flag, and a key of a TOML file, whose tables are named below; flags "
        "override the file.",
        example="""
            fedfairx simulate --agents 5 --horizon 20000 --algorithm priv-fairx-bayes --epsilon 2
            fedfairx simulate --algorithm fairx-bayes --prior-sd 1 --prior-noise-sd 0.1 --prior-learn no
            fedfairx simulate --config mine.toml --out result.csv --plot result.png
            fedfairx simulate --contexts one-hot --arms 5 --dimension 5 --presence 0.7 --exposure yes
            fedfairx simulate --contexts recorded.csv:scale=unit-ball --horizon 5000
            fedfairx simulate --merit logistic:steepness=8 --schedule paper:gap=50 --json""",
    )
    parser.usage = "fedfairx simulate [--config FILE] [SETTINGS] [--out FILE] [--plot FILE] [--json]"
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of settings (default: none)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the curves: .csv or .parquet (default: none)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the curves: .png, .svg or .pdf (default: none)"
    )
    add_json(parser)
    for name, table in tables().items():
        group = parser.add_argument_group(f"[{name}]", ABOUT[name])
        for setting in table:
            setting.add_to(group)


def perform(found: dict[str, dict[str, Any]]) -> dict[str, Result]:
    """Simulate what tables of settings say: the result under its algorithm's name, and the baselines."""
    from fedfairx.simulation import simulate
    from fedfairx.simulation.compare import baselines

    scenario, options, running = prepare(found)
    asked: dict[str, Any] = {"seeds": running.seeds, "workers": running.workers, "points": running.points}
    result = simulate(scenario, options=options, exposure=running.exposure, **asked)
    beside = baselines(options) if running.baselines else {}
    others = {name: simulate(scenario, options=each, **asked) for name, each in beside.items()}
    return {result.algorithm: result, **others}


def run(args: argparse.Namespace) -> int:
    from fedfairx.cli.simulate import check_files, plot, summary, write
    from fedfairx.simulation import compare

    check_files(args.out, args.plot)
    results = perform(settings(args))
    result, *_ = results.values()
    if args.out is not None:
        write(result, args.out)
    if args.plot is not None:
        plot(result, args.plot)
    if args.json:
        print_json(summary(results))
        return 0
    print(result.summary())
    if result.shown.size:
        weakest = result.weakest_share(window=None)[:, -1].mean()
        print(f"\nthe weakest arm got {weakest:.3g} of its due; mean shares, the best arm's first:")
        print("  ".join(f"{share:.3g}" for share in result.exposure.mean(axis=0)))
    if len(results) > 1:
        print(f"\n{compare(results)}")
    return 0
