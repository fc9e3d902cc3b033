"""`fedfairx simulate`: settings from flags and a TOML file, the simulation, and what it writes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedfairx.agent.options import SCALE, Options
from fedfairx.cli.common import Output, add_parser, flags_of, given, print_json
from fedfairx.core.confidence import Confidence
from fedfairx.core.posterior import Prior
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation import Recorded, Result, Scenario
from fedfairx.simulation.scenario import CONTEXTS
from fedfairx.util.config import Setting, read_toml, settings_of

_TABLE_FILES = (".csv", ".parquet")
_FIGURE_FILES = (".png", ".svg", ".pdf")

_LAWS = "from the scenario's laws"
ABOUT = {
    "scenario": "the simulated world",
    "run": "how agents decide, learn and share, and how that is run",
    "prior": "the prior of the rules that have a posterior",
    "confidence": "the confidence region of the paper's optimistic algorithms",
    "bounds": "what private records are clipped to; with a public point, only adjacency and share count",
    "centring": "a public point that private records are clipped around",
}


@dataclass(frozen=True)
class Running:
    """How a simulation is run, and what is measured beside it.

    seeds: how many runs there are; their seeds count from 0.
    workers: threads that they are divided over, with the same results.
    points: rounds at which regret is noted, evenly over the horizon.
    exposure: whether it is also measured who is shown, and what the weakest arm gets of its due.
    baselines: whether the same agents are simulated alone, and with exact sums pooled every round.
    centring: the public point that private records are clipped around, the middle of the scenario's box or
        zero.
    """

    seeds: int = 5
    workers: int = 1
    points: int = 100
    exposure: bool = False
    baselines: bool = True
    centring: str = field(default="scenario", metadata={"choices": ("scenario", "none")})


@dataclass(frozen=True, kw_only=True)
class Files(Output):
    """Flags of `fedfairx simulate` that no TOML file has.

    config: a TOML file of settings.
    out: write the curves: .csv or .parquet.
    plot: draw the curves: .png, .svg or .pdf.
    """

    config: Path | None = None
    out: Path | None = None
    plot: Path | None = None


def tables() -> dict[str, tuple[Setting, ...]]:
    """Every setting, by its table of the TOML file."""
    parts = ("merit", "prior", "confidence", "bounds", "centring")
    short = ("regulariser", "failure", "parameter_norm", "scale")
    region = {"noise_sd": "the scenario's", "scale": SCALE}
    box = {item.name: "as of the scenario's box" for item in fields(Centring)}
    laws = {"context_norm": _LAWS, "reward": _LAWS}
    return {
        "scenario": settings_of(Scenario, "scenario"),
        "run": settings_of(Options, "run", leave_out=parts) + settings_of(Running, "run"),
        "confidence": settings_of(
            Confidence, "confidence", prefix="confidence-", short=short, defaults=region
        ),
        "prior": settings_of(Prior, "prior", prefix="prior-"),
        "bounds": settings_of(Bounds, "bounds", prefix="bounds-", defaults=laws),
        "centring": settings_of(Centring, "centring", prefix="centring-", defaults=box),
    }


def settings(args: argparse.Namespace, config: Path | None) -> dict[str, dict[str, Any]]:
    """What is set, by table: in the file, and by flags over it."""
    known = tables()
    found: dict[str, dict[str, Any]] = {name: {} for name in known}
    for name, values in ({} if config is None else read_toml(config)).items():
        if name not in known or not isinstance(values, dict):
            raise InvalidInput(f"{config} must hold tables {', '.join(known)}, got {name!r}")
        table = {each.name: each for each in known[name]}
        for key, value in values.items():
            if key not in table:
                raise InvalidInput(f"{config}: [{name}] has no {key!r}; it has {', '.join(table)}")
            found[name][key] = table[key].read(value, f"[{name}] in {config}")
    for name, each in known.items():
        found[name].update(given(args, each))
    return found


def add(verbs: Any) -> None:
    add_parser(
        verbs,
        "simulate",
        run,
        _fill,
        summary="Simulate your own scenario, beside learning alone and perfect pooling. "
        "Every setting is a flag, and a key of a TOML file, whose tables are named below; flags override the "
        "file.",
        example="""
            fedfairx simulate --agents 5 --horizon 20000 --algorithm priv-fairx-bayes --epsilon 2
            fedfairx simulate --algorithm fairx-bayes --prior-sd 1 --prior-noise-sd 0.1 --prior-learn no
            fedfairx simulate --config mine.toml --out result.csv --plot result.png
            fedfairx simulate --contexts one-hot --arms 5 --dimension 5 --presence 0.7 --exposure yes
            fedfairx simulate --contexts recorded.csv:scale=unit-ball --horizon 5000
            fedfairx simulate --merit logistic:steepness=8 --schedule paper:gap=50 --json""",
    )


def _fill(parser: argparse.ArgumentParser) -> None:
    parser.usage = "fedfairx simulate [--config FILE] [SETTINGS] [--out FILE] [--plot FILE] [--json]"
    for each in flags_of(Files):
        each.add_to(parser)
    for name, table in tables().items():
        group = parser.add_argument_group(f"[{name}]", ABOUT[name])
        for each in table:
            each.add_to(group)


def prepare(found: dict[str, dict[str, Any]]) -> tuple[Scenario, Options, Running]:
    """The scenario, the agents' options and how to run them, from tables of settings."""
    world, given = dict(found["scenario"]), dict(found["run"])
    _read_contexts(world)
    scenario = Scenario(**world)
    running = Running(**{item.name: given.pop(item.name) for item in fields(Running) if item.name in given})
    if found["prior"]:
        given["prior"] = Prior(**found["prior"])
    if found["confidence"]:  # with the rest as it would be without
        given["confidence"] = Confidence(
            **{"noise_sd": scenario.noise_sd, "scale": SCALE, **found["confidence"]}
        )
    if found["bounds"]:
        given["bounds"] = replace(scenario.bounds, **found["bounds"])
    point = _centring(scenario, running, found["centring"])
    return scenario, scenario.options(centring=point, **given), running


def _centring(scenario: Scenario, running: Running, point: dict[str, Any]) -> Any:
    known = ("scenario", "none")
    if running.centring not in known:
        text = f"centring must be one of {', '.join(known)}, got centring={running.centring!r}"
        raise InvalidInput(f"{text}; [centring] or --centring-context and the like give a point")
    if not point:
        return "scenario" if running.centring == "scenario" else None
    base = scenario.centring
    if base is not None:
        return replace(base, **point)
    missing = [item.name for item in fields(Centring) if item.name not in point]
    if missing:
        raise InvalidInput(f"[centring] must have {missing[0]}, for this scenario has no box to take it from")
    return Centring(**point)


def _read_contexts(values: dict[str, Any]) -> None:
    """Where `contexts` names a file: its contexts, number of arms and dimension."""
    text = values.get("contexts", CONTEXTS[0])
    if text in CONTEXTS or not Path(text).suffix:
        return  # a scenario knows what to say
    path, _, scale = text.partition(":scale=")
    recorded = Recorded.load(path, scale=scale or None)
    _, arms, dimension = recorded.shape
    values.update({"arms": arms, "dimension": dimension, **values, "contexts": recorded})


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
    from fedfairx.util.figure_style import styled

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


def run(args: argparse.Namespace) -> int:
    from fedfairx.simulation import compare

    files = Files(**given(args, flags_of(Files)))
    check_files(files.out, files.plot)
    results = perform(settings(args, files.config))
    result, *_ = results.values()
    if files.out is not None:
        write(result, files.out)
    if files.plot is not None:
        plot(result, files.plot)
    if files.json:
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
