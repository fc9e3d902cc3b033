"""`fedfairx evaluate`: what other settings would have earned and shown, from logged decisions."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedfairx.agent.options import Options
from fedfairx.cli.common import FIGURES, Output, check_output, write_figure
from fedfairx.errors import InvalidInput
from fedfairx.util.config import NONE, READERS, Setting, settings_of

if TYPE_CHECKING:
    from fedfairx.evaluation.policies import Policy

CHANGES = ("merit", "rule", "minimum_share", "half_life")


@dataclass(frozen=True)
class Alternative:
    """A policy to evaluate, by name or by changes of options: "uniform", "merit=doubling:0.2"."""

    text: str
    changes: dict[str, Any] | None  # of options; None for a name

    def policy(self, options: Options) -> Policy:
        return self.text if self.changes is None else replace(options, **self.changes)


def alternative(text: object) -> Alternative:
    """Read `uniform`, `greedy`, or changes with commas between: `merit=doubling:0.2,minimum_share=0.05`."""
    if text in ("uniform", "greedy"):
        return Alternative(str(text), None)
    settings = {each.name: each for each in settings_of(Options, only=CHANGES)}
    changes = {}
    for part in re.split(rf",(?=(?:{'|'.join(CHANGES)})=)", str(text)):
        name, _, value = part.partition("=")
        if name not in CHANGES or not value:
            rule = f"uniform, greedy, or NAME=VALUE,… of {', '.join(CHANGES)}"
            raise InvalidInput(f"a policy must be {rule}, got {part!r}")
        changes[name] = settings[name].read(value, part, text=True)
    return Alternative(str(text), changes)


READERS[Alternative] = alternative, ((str, NONE),)


@dataclass(frozen=True, kw_only=True)
class Evaluate(Output):
    """Estimate from a log what other settings would have earned and shown. It only reads, and works beside a
    running service. Settings that are not given are those of the log's agent; an export has none, and there
    they are the defaults. Settings are replayed: at each decision, what an agent would do that has learnt the
    log so far.

        fedfairx evaluate --data DIR
        fedfairx evaluate --data DIR --merit doubling:0.1 --against merit=doubling:0.2,minimum_share=0.05
        fedfairx evaluate --data DIR --half-life 1000 --against half_life=300
        fedfairx evaluate --data export.jsonl --against uniform --against greedy --plot evaluation.png
        fedfairx evaluate --data postgresql://host/name --agent north --json

    data: a service's data folder, a SQLite file, a PostgreSQL address, or an export (.jsonl, .csv, .parquet).
    agent: which agent, if the database holds several (default: the only one).
    against: another policy: uniform, greedy, or changes of the agent's settings; may be repeated (default:
        uniform and greedy).
    error: probability that an interval ever fails to hold.
    plot: draw mean rewards and shares into this file: .png, .svg or .pdf.
    """

    data: str = field(default="fedfairx-data", metadata={"metavar": "DIR|FILE|URL"})
    agent: str | None = field(default=None, metadata={"metavar": "NAME"})
    against: tuple[Alternative, ...] = field(default=(), metadata={"metavar": "POLICY"})
    error: float = 0.05
    plot: Path | None = None
    first: str = ""  # the changes of the first policy, as written

    @classmethod
    def others(cls) -> tuple[Setting, ...]:
        defaults = {**dict.fromkeys(CHANGES, "the agent's"), "reward_range": "the agent's, or 0:1"}
        return settings_of(Options, only=tuple(defaults), defaults=defaults)

    @classmethod
    def read(cls, args: argparse.Namespace) -> Self:
        texts = {each.name: each.given(args) for each in cls.others()}
        first = ",".join(f"{name}={texts[name]}" for name in CHANGES if texts[name])
        return replace(super().read(args), first=first)

    def run(self) -> int:
        from fedfairx.evaluation.evaluation import evaluate
        from fedfairx.evaluation.logs import read_log

        check_output("plot", self.plot, FIGURES)
        log = read_log(self.data, agent=self.agent)
        reward_range = self.options.get("reward_range")
        base = log.options or Options(reward_range=reward_range)
        same = "default settings" if log.options is None else "the same settings"
        if isinstance(base.half_life, str):  # a time, which can't be replayed
            same, base = f"{same}, no half-life of {base.half_life}", replace(base, half_life=None)
        first = alternative(self.first) if self.first else Alternative(same, {})
        others = self.against or (alternative("uniform"), alternative("greedy"))
        policies = {each.text: each.policy(base) for each in (first, *others)}
        evaluation = evaluate(log, policies, reward_range=reward_range, error=self.error)
        if self.plot is not None:
            write_figure(evaluation.plot(), self.plot)
        self.answer(evaluation.to_dict(), f"{evaluation}\n\n{evaluation.estimates()}")
        return 0
