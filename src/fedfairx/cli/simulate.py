"""`fedfairx simulate`: settings from flags and a TOML file, the simulation, and its output files."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from fedfairx.agent.options import SCALE, Options
from fedfairx.cli.common import FIGURES, Output, check_output, given, write_figure, write_file
from fedfairx.core.confidence import Confidence
from fedfairx.core.posterior import Prior
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation import Recorded, Result, Scenario
from fedfairx.simulation.scenario import CONTEXTS
from fedfairx.util.config import Setting, option, read_toml, settings_of

_LAWS = "from the scenario's distributions"
ABOUT = {
    "scenario": "the simulated environment",
    "run": "how agents decide, learn and share, and how the simulation runs",
    "prior": "the prior of the rules that have a posterior",
    "confidence": "the confidence region of the paper's optimistic algorithms",
    "bounds": "clipping of private records; with a public point, only adjacency and share matter",
    "centring": "a public point around which private records are clipped",
}


@dataclass(frozen=True)
class Running:
    """How a simulation is run, and what else is measured.

    seeds: number of runs; their seeds count from 0.
    workers: number of threads; the results do not depend on it.
    points: number of rounds at which regret is recorded, evenly over the horizon.
    exposure: also measure the actions' shares, and the weakest action's share relative to its merit.
    baselines: also simulate the same agents alone, and with exact sums pooled every round.
    centring: the public point around which private records are clipped, the middle of the scenario's box or
        zero; --centring-context and the others set another.
    """

    seeds: int = 5
    workers: int = 1
    points: int = 100
    exposure: bool = False
    baselines: bool = True
    centring: str = option("scenario", choices=("scenario", "none"))


def tables() -> dict[str, tuple[Setting, ...]]:
    """Every setting, by its table of the TOML file."""
    parts = ("merit", "prior", "confidence", "bounds", "centring", "slots", "half_life")
    short = ("regulariser", "failure", "parameter_norm", "scale")
    region = {"noise_sd": "the scenario's", "scale": SCALE}
    box = {item.name: "as of the scenario's box" for item in fields(Centring) if item.default is MISSING}
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
    """All given settings by table, from the file and from flags, which override it."""
    settings_of_table = tables()
    values_of_table: dict[str, dict[str, Any]] = {name: {} for name in settings_of_table}
    for name, values in ({} if config is None else read_toml(config)).items():
        if name not in settings_of_table or not isinstance(values, dict):
            raise InvalidInput(f"{config} must hold tables {', '.join(settings_of_table)}, got {name!r}")
        table = {each.name: each for each in settings_of_table[name]}
        for key, value in values.items():
            if key not in table:
                raise InvalidInput(f"{config}: [{name}] has no {key!r}; it has {', '.join(table)}")
            values_of_table[name][key] = table[key].read(value, f"[{name}] in {config}")
    for name, each in settings_of_table.items():
        values_of_table[name].update(given(args, each))
    return values_of_table


def prepare(values: dict[str, dict[str, Any]]) -> tuple[Scenario, Options, Running]:
    """The scenario, the agents' options and how to run them, from tables of settings."""
    world, options = dict(values["scenario"]), dict(values["run"])
    _read_contexts(world)
    scenario = Scenario(**world)
    running = Running(
        **{item.name: options.pop(item.name) for item in fields(Running) if item.name in options}
    )
    if values["prior"]:
        options["prior"] = Prior(**values["prior"])
    if values["confidence"]:  # the other fields keep the defaults of a simulation
        options["confidence"] = Confidence(
            **{"noise_sd": scenario.noise_sd, "scale": SCALE, **values["confidence"]}
        )
    if values["bounds"]:
        options["bounds"] = replace(scenario.bounds, **values["bounds"])
    point = _centring(scenario, running, values["centring"])
    return scenario, scenario.options(centring=point, **options), running


def _centring(scenario: Scenario, running: Running, point: dict[str, Any]) -> Any:
    if not point:
        return "scenario" if running.centring == "scenario" else None
    base = scenario.centring
    if base is not None:
        return replace(base, **point)
    missing = [item.name for item in fields(Centring) if item.name not in point and item.default is MISSING]
    if missing:
        raise InvalidInput(f"[centring] must have {missing[0]}, since this scenario has no box to derive it")
    return Centring(**point)


def _read_contexts(values: dict[str, Any]) -> None:
    """If `contexts` names a file, replace it by the file's contexts, number of actions and dimension."""
    text = values.get("contexts", CONTEXTS[0])
    if text in CONTEXTS or not Path(text).suffix:
        return  # `Scenario` reports unknown names
    path, _, scale = text.partition(":scale=")
    recorded = Recorded.load(path, scale=scale or None)
    _, arms, dimension = recorded.shape
    values.update({"arms": arms, "dimension": dimension, **values, "contexts": recorded})


def perform(values: dict[str, dict[str, Any]]) -> dict[str, Result]:
    """Simulate as the tables of settings say; the results by algorithm, before those of the baselines."""
    from fedfairx.simulation import simulate
    from fedfairx.simulation.compare import baselines

    scenario, options, running = prepare(values)
    keywords: dict[str, Any] = {"seeds": running.seeds, "workers": running.workers, "points": running.points}
    result = simulate(scenario, options=options, exposure=running.exposure, **keywords)
    beside = baselines(options) if running.baselines else {}
    others = {name: simulate(scenario, options=each, **keywords) for name, each in beside.items()}
    return {result.algorithm: result, **others}


def summary(results: dict[str, Result]) -> dict[str, Any]:
    """The results as plain values for JSON."""
    result, *others = results.values()
    scenario = {item.name: getattr(result.scenario, item.name) for item in fields(result.scenario)}
    measured: dict[str, Any] = {}
    if result.shown.size:
        share = result.weakest_share(window=None)[:, -1].tolist()
        measured = {"exposure": result.exposure.tolist(), "weakest_share": share}
    return {
        "algorithm": result.algorithm,
        "scenario": scenario | {"contexts": str(scenario["contexts"]), "merit": repr(scenario["merit"])},
        "options": result.options,
        "seeds": list(result.seeds),
        "rounds": result.rounds.tolist(),
        **_regrets(result),
        "syncs": result.syncs.tolist(),
        **measured,
        "baselines": {each.algorithm: _regrets(each) for each in others},
    }


def _regrets(result: Result) -> dict[str, Any]:
    return {name: getattr(result, name).tolist() for name in ("fairness_regret", "reward_regret")}


@dataclass(frozen=True, kw_only=True)
class Simulate(Output):
    """Simulate a scenario of your own. It is compared with learning alone and with perfect pooling. Every
    setting is a flag and a key of a TOML file, whose tables are named below; flags override the file.

        fedfairx simulate --agents 5 --horizon 20000 --algorithm priv-fairx-bayes --epsilon 2
        fedfairx simulate --algorithm fairx-bayes --prior-sd 1 --prior-noise-sd 0.1 --prior-learn no
        fedfairx simulate --config mine.toml --out result.csv --plot result.png
        fedfairx simulate --contexts one-hot --arms 5 --dimension 5 --presence 0.7 --exposure yes
        fedfairx simulate --contexts recorded.csv:scale=unit-ball --horizon 5000
        fedfairx simulate --merit logistic:steepness=8 --schedule paper:gap=50 --json

    config: a TOML file of settings.
    out: write the curves to this file: .csv or .parquet.
    plot: draw the curves into this file: .png, .svg or .pdf.
    """

    config: Path | None = None
    out: Path | None = None
    plot: Path | None = None
    flags: argparse.Namespace = field(default_factory=argparse.Namespace)  # of `tables`

    @classmethod
    def fill(cls, parser: argparse.ArgumentParser) -> None:
        parser.usage = "fedfairx simulate [--config FILE] [SETTINGS] [--out FILE] [--plot FILE] [--json]"
        super().fill(parser)
        for name, table in tables().items():
            group = parser.add_argument_group(f"[{name}]", ABOUT[name])
            for each in table:
                each.add_to(group)

    @classmethod
    def read(cls, args: argparse.Namespace) -> Self:
        return replace(super().read(args), flags=args)

    def run(self) -> int:
        from fedfairx.simulation import compare

        check_output("out", self.out, (".csv", ".parquet"))
        check_output("plot", self.plot, FIGURES)
        results = perform(settings(self.flags, self.config))
        result, *_ = results.values()
        if self.out is not None:
            frame = result.to_frame()
            csv = self.out.suffix == ".csv"
            write_file(self.out, frame.to_csv(index=False) if csv else frame.to_parquet())
        if self.plot is not None:
            write_figure(result.plot(), self.plot)
        text = [result.summary()]
        if result.shown.size:
            weakest = result.weakest_share(window=None)[:, -1].mean()
            shares = "  ".join(f"{share:.3g}" for share in result.exposure.mean(axis=0))
            text.append(
                f"the weakest action got {weakest:.3g} of its share by merit; mean shares, best action first:"
            )
            text[-1] += f"\n{shares}"
        if len(results) > 1:
            text.append(f"{compare(results)}")
        self.answer(summary(results) if self.json else None, "\n\n".join(text))
        return 0
