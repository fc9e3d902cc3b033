"""`fedfairx simulate`: one's own scenario, from flags or a TOML file."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfairx.commands.common import add_json, add_verb, as_merit, as_schedule, print_json
from fedfairx.errors import InvalidInput

if TYPE_CHECKING:
    from fedfairx.simulation import Result


def _yes_or_no(text: str) -> bool:
    """`yes` or `no`, as a flag's value."""
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"must be yes or no, got {text!r}")
    return text == "yes"


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
_HELP = {
    "prior_mean": "of every coordinate of θ, believed beforehand (0)",
    "prior_sd": "of every coordinate of θ, believed beforehand (0.5)",
    "prior_noise_sd": "of the rewards, believed beforehand (0.5)",
    "prior_learn_noise": "whether agents learn the rewards' noise from their own (yes)",
    "contexts": "unit-ball, raw, unit-norm, persistent, one-hot, or a file of recorded ones: .npy, .npz, "
    ".csv or .parquet; FILE:scale=unit-ball scales them",
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
    "workers": int,
    "points": int,
}
_CONFIDENCE: dict[str, type] = {
    "regulariser": float,
    "failure": float,
    "parameter_norm": float,
    "scale": float,
}
_PRIOR: dict[str, Callable[[str], Any]] = {
    "mean": float,
    "sd": float,
    "noise_sd": float,
    "learn_noise": _yes_or_no,
}
_TABLES: dict[str, dict[str, Any]] = {
    "scenario": {**_SCENARIO, "merit": str},
    "run": _RUN,
    "confidence": _CONFIDENCE,
    "prior": _PRIOR,
}


_TABLE_FILES = (".csv", ".parquet")
_FIGURE_FILES = (".png", ".svg", ".pdf")


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "simulate",
        run,
        summary="simulate your own scenario",
        details="Flags override the TOML file, whose tables are [scenario], [run], [prior] (what agents "
        "believe beforehand, by the rules of the posterior) and [confidence] (the paper's region).",
        example="""
            fedfairx simulate --agents 5 --horizon 20000 --algorithm priv-fairx-bayes --epsilon 2
            fedfairx simulate --algorithm fairx-bayes --prior-sd 1 --prior-noise-sd 0.1 --prior-learn-noise no
            fedfairx simulate --config mine.toml --out result.csv --plot result.png
            fedfairx simulate --contexts one-hot --arms 5 --dimension 5 --presence 0.7
            fedfairx simulate --contexts recorded.csv:scale=unit-ball --horizon 5000
            fedfairx simulate --merit logistic:steepness=8 --schedule paper:gap=50 --json""",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file")
    for name, kind in {**_SCENARIO, **_RUN, **_CONFIDENCE}.items():
        flag, metavar = f"--{name.replace('_', '-')}", kind.__name__.upper()
        parser.add_argument(flag, type=kind, metavar=metavar, help=_HELP.get(name))
    for name, read in _PRIOR.items():
        parser.add_argument(
            f"--prior-{name.replace('_', '-')}",
            type=read,
            metavar="yes|no" if read is _yes_or_no else "FLOAT",
            help=_HELP[f"prior_{name}"],
        )
    parser.add_argument(
        "--merit", action="append", metavar="NAME[:KEY=VALUE,…]", help="once for all agents, or once for each"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the curves: .csv or .parquet")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves: .png, .svg or .pdf")
    add_json(parser)


def settings(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The tables, from the file and the flags over it."""
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
        prefix = "prior_" if table == "prior" else ""
        given = {key: getattr(args, prefix + key) for key in keys}
        tables[table].update({key: value for key, value in given.items() if value is not None})
    return tables


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"config must be a file that can be read, got {path} ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None


def perform(tables: dict[str, dict[str, Any]]) -> Result:
    """Simulate what tables of plain values say."""
    from fedfairx.core.confidence import Confidence
    from fedfairx.core.posterior import Prior
    from fedfairx.core.rules import OPTIMISM
    from fedfairx.federation.algorithms import algorithm
    from fedfairx.simulation import Scenario, simulate

    scenario_values, run_values = dict(tables["scenario"]), dict(tables["run"])
    if "merit" in scenario_values:
        texts = scenario_values["merit"]
        merits = tuple(as_merit(text) for text in ([texts] if isinstance(texts, str) else texts))
        scenario_values["merit"] = merits[0] if len(merits) == 1 else merits
    _read_contexts(scenario_values)
    if "schedule" in run_values:
        run_values["schedule"] = as_schedule(run_values["schedule"])
    try:
        scenario = Scenario(**scenario_values)
        if tables["prior"]:
            run_values["prior"] = Prior(**tables["prior"])
        optimism = "algorithm" in run_values and algorithm(run_values["algorithm"]).rule == OPTIMISM
        if tables["confidence"] or optimism:
            # The scale that `simulate` has by itself, so that naming another setting does not change it.
            confidence = {"noise_sd": scenario.noise_sd, "scale": 0.5, **tables["confidence"]}
            run_values["confidence"] = Confidence(**confidence)
        return simulate(scenario, **run_values)
    except TypeError as error:  # a string in the TOML file where a number belongs
        raise InvalidInput(f"a setting has the wrong type: {error}") from None


def _read_contexts(values: dict[str, Any]) -> None:
    """Where `contexts` names a file: what it holds, with its number of arms and its dimension."""
    from fedfairx.simulation.environments import CONTEXTS
    from fedfairx.simulation.recorded import Recorded

    text = values.get("contexts", CONTEXTS[0])
    if not isinstance(text, str) or text in CONTEXTS or not Path(text).suffix:
        return  # a scenario knows what to say
    path, _, scale = text.partition(":scale=")
    recorded = Recorded.load(path, scale=scale or None)
    _, arms, dimension = recorded.shape
    values.update({"arms": arms, "dimension": dimension, **values, "contexts": recorded})


def run(args: argparse.Namespace) -> int:
    _check_files(args.out, args.plot)
    result = perform(settings(args))
    if args.out is not None:
        _write(result, args.out)
    if args.plot is not None:
        _plot(result, args.plot)
    if args.json:
        print_json(summary(result))
        return 0
    print(result.summary())
    return 0


def summary(result: Result) -> dict[str, Any]:
    """Plain values for JSON."""
    scenario = {item.name: getattr(result.scenario, item.name) for item in fields(result.scenario)}
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
    }


def _write(result: Result, path: Path) -> None:
    from fedfairx.experiments.sweep.files import write_whole

    frame = result.to_frame()
    writers: dict[str, Callable[[], str | bytes]] = {
        ".csv": lambda: frame.to_csv(index=False),
        ".parquet": lambda: frame.to_parquet(),
    }
    write_whole(path, writers[path.suffix]())


def _plot(result: Result, path: Path) -> None:
    from fedfairx.drawing import styled
    from fedfairx.experiments.report.figures import drawn
    from fedfairx.experiments.sweep.files import write_whole

    figure = result.plot()
    with styled():
        try:
            image = drawn(figure, path.suffix[1:])
        except ValueError as error:
            raise InvalidInput(f"plot must be a figure file, got {path} ({error})") from None
    write_whole(path, image)


def _check_files(out: Path | None, plot: Path | None) -> None:
    """Refuse before the simulation what could not be written after it."""
    for name, path, endings in (("out", out, _TABLE_FILES), ("plot", plot, _FIGURE_FILES)):
        if path is None:
            continue
        if path.suffix not in endings:
            raise InvalidInput(f"{name} must end in {', '.join(endings)}, got {name}={str(path)!r}")
        if not path.parent.is_dir():
            raise InvalidInput(f"{name} must lie in a folder that exists, got {name}={str(path)!r}")
        if path.is_dir():
            raise InvalidInput(f"{name} must be a file, got the folder {name}={str(path)!r}")
