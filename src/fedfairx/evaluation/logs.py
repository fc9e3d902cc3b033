"""Read logs for evaluation: a service's database, its exports, data frames, or `Logged` decisions.

What counts is how likely each action was to be taken. Where a baseline was given, that is not the fair policy
alone: in control mode it is the mixture with the baseline, and in shadow mode the baseline.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.agent.options import Options
from fedfairx.agent.settings import StoredSettings, merit_from, read_value
from fedfairx.core.merit import Merit
from fedfairx.core.slates import ONE
from fedfairx.errors import InvalidInput, StateError, needs, require
from fedfairx.fairness import Logged
from fedfairx.storage.agents import AgentRow, read_agents
from fedfairx.storage.journal import Journal
from fedfairx.storage.open_log import open_for_reading
from fedfairx.storage.records import StoredDecision
from fedfairx.storage.transaction_log import Log
from fedfairx.util.arrays import Array

_LISTS = ("policy", "exposure", "shown", "contexts", "action_ids", "groups")
_ROW = "a row must have the columns policy, action and reward, as the service's export has them"
_KINDS = (
    "policy must be a list of numbers, action a row of it from 0 on, contexts a list (K, d), reward a number"
)


@dataclass(frozen=True)
class DecisionLog:
    """Decisions, and the options of the agent that made them, where the log has them."""

    decisions: Iterable[Logged]
    options: Options | None = None
    gone: str | None = None  # what is no longer in it, as a sentence


def read_log(log: Any, *, agent: str | None = None, merit: Merit | None = None) -> DecisionLog:
    """Read a log from a place, a frame, or decisions.

    agent: which one, if a database holds several.
    merit: the agent's merit, if it is a function of your own.
    """
    if isinstance(log, DecisionLog):
        return log
    if isinstance(log, str | os.PathLike):
        place = os.fspath(log)
        if "://" not in place and not Path(place).exists():
            kinds = "a database, a service's data folder or an export"
            raise InvalidInput(f"log must be {kinds} that exists, got {place!r}")
        reader = _READERS.get(Path(place).suffix)
        if reader is None:
            return _database(place, agent, merit)
        return DecisionLog(map(logged, reader(Path(place))))
    if hasattr(log, "collect"):  # a lazy frame of polars
        log = log.collect()
    if hasattr(log, "iter_rows"):  # polars
        return DecisionLog(map(logged, log.iter_rows(named=True)))
    if hasattr(log, "to_dict") and hasattr(log, "columns"):  # pandas
        return DecisionLog(map(logged, log.to_dict("records")))
    try:
        items = iter(log)
    except TypeError:
        kinds = "a place, a data frame, or decisions (fedfairx.Logged)"
        raise InvalidInput(f"log must be {kinds}, got {type(log).__name__}") from None
    return DecisionLog(_decisions(items))


def _decisions(items: Iterator[Any]) -> Iterator[Logged]:
    for each in items:
        if not isinstance(each, Logged | Mapping):
            raise InvalidInput(f"log must hold fedfairx.Logged decisions, got {type(each).__name__}")
        yield each if isinstance(each, Logged) else logged(each)


# --- databases --------------------------------------------------------------------------------------------


def _database(place: str, agent: str | None, merit: Merit | None) -> DecisionLog:
    with open_for_reading(place) as database:
        log = Log(database)
        stored = _chosen(read_agents(log), agent)
        gone = Journal(log, stored.number).amendments().gone()
    settings = read_value(stored.settings | {"name": stored.name}, StoredSettings, "agent")
    own = merit_from(settings.merit, merit)
    decisions = _stored(place, stored.number, features=not settings.featureless)
    return DecisionLog(decisions, settings.options(own), gone)


def _chosen(agents: Sequence[AgentRow], name: str | None) -> AgentRow:
    names = [each.name for each in agents]
    choices = ", ".join(map(repr, names))
    if name is None:
        require(len(agents) == 1, "agent", f"must be given, one of {choices}", name)
        return agents[0]
    require(name in names, "agent", f"must be one of {choices}", name)
    return agents[names.index(name)]


def _stored(place: str, agent: int, *, features: bool) -> Iterator[Logged]:
    with open_for_reading(place) as database:
        for each in Journal(Log(database), agent).decisions():
            yield _of_stored(each, features)


def _of_stored(stored: StoredDecision, features: bool) -> Logged:
    contexts = stored.contexts if features else None  # of actions with names alone
    withdrawn = stored.status == "withdrawn"
    if stored.slots:
        weights = [slot.weight for slot in stored.slots]
        baseline = [slot.baseline for slot in stored.slots]
        return Logged(
            taken_from(stored.policy, stored.mode, baseline, stored.control_share, weights),
            [None if slot.status == "withdrawn" else slot.action for slot in stored.slots],
            contexts,
            stored.names,
            stored.groups,
            [slot.action for slot in stored.slots],
            [slot.reward for slot in stored.slots],
            weights,
        )
    chances = taken_from(stored.policy, stored.mode, [stored.baseline], stored.control_share)
    action = None if withdrawn else stored.action
    return Logged(chances, action, contexts, stored.names, stored.groups, stored.action, stored.reward)


def taken_from(
    policy: Array,
    mode: str,
    baseline: Sequence[int | None],
    control_share: float | None,
    weights: Sequence[float] = ONE,
) -> Array:
    """The expected weight (K,) of each action, where a baseline may be taken instead of the draw.

    baseline: its rows by slot, None where there is none.
    """
    rows = [row for row in baseline if row is not None]
    if not rows:
        return policy
    unknown = mode != "shadow" and control_share is None
    require(not unknown, "control_share", "must be given where decisions have a baseline", control_share)
    control = 1.0 if mode == "shadow" else control_share or 0.0
    chances = (1.0 - control) * policy
    chances[rows] += control * np.asarray(weights)
    return np.asarray(chances)


# --- rows -------------------------------------------------------------------------------------------------


def logged(row: Mapping[str, Any]) -> Logged:
    """A decision from a row with the columns of the service's export; others are ignored.

    Lists may be JSON, as they are in a frame that was read from CSV.
    """
    import msgspec

    values = {key: None if _missing(each) else each for key, each in row.items()}
    try:
        for name in _LISTS:
            text = values.get(name)
            if isinstance(text, str):
                values[name] = msgspec.json.decode(text)
        return _logged(values)
    except InvalidInput:
        raise
    except (TypeError, ValueError, msgspec.MsgspecError):
        raise InvalidInput(f"{_KINDS}, got a row with something else") from None


def _missing(value: Any) -> bool:
    return (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"  # of pandas


def _logged(values: Mapping[str, Any]) -> Logged:
    names, groups, contexts = (values.get(name) for name in ("action_ids", "groups", "contexts"))
    contexts = None if contexts is None else np.array([list(each) for each in contexts], dtype=np.float64)
    withdrawn = values.get("status") == "withdrawn"
    shown, control = values.get("shown"), values.get("control_share")
    share = None if control is None else float(control)
    mode = str(values.get("mode") or "live")
    if shown is not None:
        weights = [float(each["weight"]) for each in shown]
        exposure = np.asarray(values.get("exposure"), dtype=np.float64)
        return Logged(
            taken_from(exposure, mode, [_row_number(each.get("baseline")) for each in shown], share, weights),
            [None if each.get("status") == "withdrawn" else int(each["action"]) for each in shown],
            contexts,
            names,
            groups,
            [int(each["action"]) for each in shown],
            [each.get("reward") for each in shown],
            weights,
        )
    action, baseline = values.get("action"), values.get("baseline")
    if values.get("policy") is None or action is None:
        raise InvalidInput(f"{_ROW}, got {', '.join(map(str, values)) or 'none'}")
    policy = np.asarray(values["policy"], dtype=np.float64)
    chances = taken_from(policy, mode, [_row_number(baseline)], share)
    reward, row = values.get("reward"), _row_number(action)
    if withdrawn or reward is None:
        return Logged(chances, None if withdrawn else row, contexts, names, groups, row)
    return Logged(chances, row, contexts, names, groups, row, float(reward))


def _row_number(value: Any) -> int | None:
    """A row that may be missing; pandas makes floats of a column in which some are."""
    if value is None or math.isnan(float(value)):
        return None
    if not float(value).is_integer():
        raise ValueError("not a row")
    return int(float(value))


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    import msgspec

    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.MsgspecError:
                raise StateError(f"{path.name} is damaged: line {number} is not a JSON object") from None


def _csv(path: Path) -> Iterator[Mapping[str, Any]]:
    csv.field_size_limit(1 << 30)
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield {key: value if value else None for key, value in row.items()}


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    with needs("frames"):
        import pyarrow.parquet

    try:
        batches = pyarrow.parquet.ParquetFile(path).iter_batches(2_000)
        yield from chain.from_iterable(batch.to_pylist() for batch in batches)
    except pyarrow.ArrowInvalid:
        raise StateError(f"{path.name} is damaged: it is not a Parquet file") from None


_READERS = {".jsonl": _json_lines, ".csv": _csv, ".parquet": _parquet}
