"""What `fedfairx simulate` leaves behind: plain values, a table of curves, a figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedfairx.errors import InvalidInput
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
    from fedfairx.experiments.sweep.files import write_whole

    frame = result.to_frame()
    writers: dict[str, Callable[[], str | bytes]] = {
        ".csv": lambda: frame.to_csv(index=False),
        ".parquet": lambda: frame.to_parquet(),
    }
    write_whole(path, writers[path.suffix]())


def plot(result: Result, path: Path) -> None:
    from fedfairx.experiments.report.figures import drawn
    from fedfairx.experiments.sweep.files import write_whole
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
