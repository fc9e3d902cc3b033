"""`fedfairx simulate`: one's own scenario, from flags or a TOML file."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfairx.commands.common import add_json, add_verb, as_merit, as_schedule, print_json, print_table
from fedfairx.errors import InvalidInput

if TYPE_CHECKING:
    from fedfairx.simulation import Result

_SCENARIO: dict[str, type] = {
    "agents": int,
    "arms": int,
    "dimension": int,
    "horizon": int,
    "contexts": str,
    "noise": str,
    "noise_sd": float,
    "presence": float,
    "delay": float,
    "drift": float,
}
_RUN: dict[str, type] = {
    "algorithm": str,
    "seeds": int,
    "schedule": str,
    "solver": str,
    "epsilon": float,
    "delta": float,
    "mechanism": str,
    "decide_from": str,
    "shift": float,
    "ridge": str,
    "workers": int,
    "points": int,
}
_CONFIDENCE: dict[str, type] = {
    "regulariser": float,
    "failure": float,
    "parameter_norm": float,
    "scale": float,
    "noise_share": float,
}
_TABLES: dict[str, dict[str, type]] = {
    "scenario": {**_SCENARIO, "merit": str},
    "run": _RUN,
    "confidence": _CONFIDENCE,
}


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "simulate",
        run,
        summary="simulate your own scenario",
        details="Flags override the TOML file, whose tables are [scenario], [run] and [confidence].",
        example="""
            fedfairx simulate --agents 5 --horizon 20000 --algorithm priv-fairx-linucb --epsilon 2
            fedfairx simulate --config mine.toml --out result.csv --plot result.png
            fedfairx simulate --merit logistic:steepness=8 --schedule paper:gap=50 --json""",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file")
    for name, kind in {**_SCENARIO, **_RUN, **_CONFIDENCE}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=kind.__name__.upper())
    parser.add_argument(
        "--merit", action="append", metavar="NAME[:KEY=VALUE,…]", help="once for all agents, or once for each"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the curves: .csv or .parquet")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves: .png, .svg or .pdf")
    add_json(parser)


def settings(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The three tables, from the file and the flags over it."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    if args.config is not None:
        for name, values in _read(args.config).items():
            if name not in _TABLES or not isinstance(values, dict):
                raise InvalidInput(f"{args.config} must hold tables {', '.join(_TABLES)}, got {name!r}")
            unknown = [key for key in values if key not in _TABLES[name]]
            if unknown:
                raise InvalidInput(
                    f"{args.config}: [{name}] has no {unknown[0]!r}; it has {', '.join(_TABLES[name])}"
                )
            tables[name].update(values)
    for table, keys in _TABLES.items():
        tables[table].update({key: getattr(args, key) for key in keys if getattr(args, key) is not None})
    return tables


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"config must be a file that can be read, got {path} ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None


def perform(tables: dict[str, dict[str, Any]]) -> Result:
    """Simulate what three tables of plain values say."""
    from fedfairx.core.confidence import Confidence
    from fedfairx.simulation import Scenario, simulate

    scenario_values, run_values = dict(tables["scenario"]), dict(tables["run"])
    if "merit" in scenario_values:
        texts = scenario_values["merit"]
        merits = tuple(as_merit(text) for text in ([texts] if isinstance(texts, str) else texts))
        scenario_values["merit"] = merits[0] if len(merits) == 1 else merits
    if "schedule" in run_values:
        run_values["schedule"] = as_schedule(run_values["schedule"])
    try:
        scenario = Scenario(**scenario_values)
        # The scale that `simulate` has by itself, so that naming another setting does not change it.
        confidence = {"noise_sd": scenario.noise_sd, "scale": 0.5, **tables["confidence"]}
        return simulate(scenario, confidence=Confidence(**confidence), **run_values)
    except TypeError as error:  # a string in the TOML file where a number belongs
        raise InvalidInput(f"a setting has the wrong type: {error}") from None


def run(args: argparse.Namespace) -> int:
    result = perform(settings(args))
    if args.out is not None:
        _write(result, args.out)
    if args.plot is not None:
        _plot(result, args.plot)
    if args.json:
        print_json(summary(result))
        return 0
    rows: list[tuple[object, ...]] = [
        (seed, f"{fair[-1]:.1f}", f"{reward[-1]:.1f}", syncs)
        for seed, fair, reward, syncs in zip(
            result.seeds, result.fairness_regret, result.reward_regret, result.syncs.tolist(), strict=True
        )
    ]
    rows.append(
        (
            "mean",
            f"{result.fairness_regret[:, -1].mean():.1f}",
            f"{result.reward_regret[:, -1].mean():.1f}",
            f"{result.syncs.mean():.0f}",
        )
    )
    print(f"{result.algorithm}, T={result.scenario.horizon}, regret per agent at T")
    print_table(("seed", "fairness regret", "reward regret", "synchronisations"), rows)
    return 0


def summary(result: Result) -> dict[str, Any]:
    """Plain values for JSON."""
    scenario = {item.name: getattr(result.scenario, item.name) for item in fields(result.scenario)}
    return {
        "algorithm": result.algorithm,
        "scenario": {**scenario, "merit": repr(result.scenario.merit)},
        "options": result.options,
        "seeds": list(result.seeds),
        "rounds": result.rounds.tolist(),
        "fairness_regret": result.fairness_regret.tolist(),
        "reward_regret": result.reward_regret.tolist(),
        "syncs": result.syncs.tolist(),
    }


def _write(result: Result, path: Path) -> None:
    from fedfairx.experiments.files import write_whole

    frame = result.to_frame()
    writers: dict[str, Callable[[], str | bytes]] = {
        ".csv": lambda: frame.to_csv(index=False),
        ".parquet": lambda: frame.to_parquet(),
    }
    if path.suffix not in writers:
        raise InvalidInput(f"out must end in .csv or .parquet, got out={str(path)!r}")
    write_whole(path, writers[path.suffix]())


def _plot(result: Result, path: Path) -> None:
    from fedfairx.experiments.experiment import FULL, METRICS
    from fedfairx.experiments.figures import COLOURS, band, canvas, drawn, styled, thousands
    from fedfairx.experiments.files import write_whole

    with styled():
        figure, panels = canvas(FULL, panels=2)
        for axes, metric in zip(panels, METRICS, strict=True):
            values, colour = getattr(result, metric), COLOURS.get(result.algorithm, "#0072B2")
            axes.plot(result.rounds, values.mean(axis=0), color=colour)
            band(axes, result.rounds, values, colour)
            axes.set_title(f"{result.algorithm}: {metric.replace('_', ' ')}, {len(result.seeds)} seeds")
            axes.set_xlabel("round t")
            thousands(axes.xaxis)
            thousands(axes.yaxis)
        try:
            image = drawn(figure, path.suffix[1:])
        except ValueError as error:
            raise InvalidInput(f"plot must be a figure file, got {path} ({error})") from None
    write_whole(path, image)
