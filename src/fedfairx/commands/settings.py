"""What `fedfairx simulate` can be told: every setting, by table, from flags and a TOML file."""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedfairx.agent.options import SCALE, Options
from fedfairx.commands.flags import Setting, settings_of
from fedfairx.core.confidence import Confidence
from fedfairx.core.posterior import Prior
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation import Recorded, Scenario
from fedfairx.simulation.scenario import CONTEXTS

_LAWS = "where the scenario's laws put them"
ABOUT = {
    "scenario": "the simulated world",
    "run": "how agents decide, learn and share, and how that is run",
    "prior": "what is believed beforehand, by the rules of the posterior",
    "confidence": "the region of the paper's algorithms, which are optimistic",
    "bounds": "what private records are clipped to; with a public point, only the adjacency and the share",
    "centring": "a public point of your own, that private records are clipped around",
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


def tables() -> dict[str, tuple[Setting, ...]]:
    """Every setting, by its table of the TOML file."""

    parts = ("prior", "confidence", "bounds", "centring")
    region = {"noise_sd": "the scenario's", "scale": SCALE}
    box = {item.name: "as of the scenario's box" for item in fields(Centring)}
    laws = {"context_norm": _LAWS, "reward": _LAWS}
    return {
        "scenario": settings_of(Scenario, "scenario"),
        "run": settings_of(Options, "run", leave_out=parts) + settings_of(Running, "run"),
        "confidence": settings_of(
            Confidence,
            "confidence",
            prefix="confidence-",
            short=("regulariser", "failure", "parameter_norm", "scale"),
            defaults=region,
        ),
        "prior": settings_of(Prior, "prior", prefix="prior-"),
        "bounds": settings_of(Bounds, "bounds", prefix="bounds-", defaults=laws),
        "centring": settings_of(Centring, "centring", prefix="centring-", defaults=box),
    }


def settings(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What is set, by table: in the file, and by flags over it."""
    known = {name: {each.name: each for each in table} for name, table in tables().items()}
    found: dict[str, dict[str, Any]] = {name: {} for name in known}
    if args.config is not None:
        for name, values in _read(args.config).items():
            if name not in known or not isinstance(values, dict):
                raise InvalidInput(f"{args.config} must hold tables {', '.join(known)}, got {name!r}")
            for key, value in values.items():
                if key not in known[name]:
                    has = ", ".join(known[name])
                    raise InvalidInput(f"{args.config}: [{name}] has no {key!r}; it has {has}")
                found[name][key] = known[name][key].taken(value)
    for name, table in known.items():
        given = {each.name: getattr(args, each.dest) for each in table.values()}
        found[name].update(
            {key: table[key].taken(value) for key, value in given.items() if value is not None}
        )
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"config must be a file that can be read, got {path} ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None


def prepare(found: dict[str, dict[str, Any]]) -> tuple[Scenario, Options, Running]:
    """What tables of settings mean."""

    world, given = dict(found["scenario"]), dict(found["run"])
    if "merit" in world:
        world["merit"] = world["merit"][0] if len(world["merit"]) == 1 else tuple(world["merit"])
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
    """Where `contexts` names a file: what it holds, with its number of arms and its dimension."""

    text = values.get("contexts", CONTEXTS[0])
    if text in CONTEXTS or not Path(text).suffix:
        return  # a scenario knows what to say
    path, _, scale = text.partition(":scale=")
    recorded = Recorded.load(path, scale=scale or None)
    _, arms, dimension = recorded.shape
    values.update({"arms": arms, "dimension": dimension, **values, "contexts": recorded})
