"""`fedfairx reproduce` and `fedfairx plot`: the experiments, and their figures from stored results."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedfairx.cli.common import Output
from fedfairx.errors import require


@dataclass(frozen=True, kw_only=True)
class Plot(Output):
    """Draw the figures and write the report again, from stored results.

        fedfairx plot --out results
        fedfairx plot exp3 --out results

    experiments: exp1 … exp12, flights, star, or all (default: all). The last two need the extra `data`.
    plugin: a Python file with experiments.
    out: folder of the results, figures and report.
    quiet: do not print the progress.
    """

    experiments: tuple[str, ...] = field(default=(), metadata={"positional": True, "metavar": "EXPERIMENT"})
    plugin: tuple[Path, ...] = ()
    out: Path = field(default=Path("results"), metadata={"metavar": "DIR"})
    quiet: bool = False

    def run(self) -> int:
        from fedfairx.experiments.registry import experiments, load_plugin
        from fedfairx.experiments.reproduce import redraw
        from fedfairx.experiments.sweep.progress import progress

        for path in self.plugin:
            load_plugin(path)
        names = [] if "all" in self.experiments else list(self.experiments)
        for name in names:
            rule = f"must be one of {', '.join(experiments())}, all"
            require(name in experiments(), "experiment", rule, name)
        scores = redraw(names, out=self.out, progress=progress(quiet=self.quiet))
        self.answer({name: each.to_dict() for name, each in scores.items()}, f"{self.out / 'report.html'}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Reproduce(Plot):
    """Run the paper's experiments, then ours, and write a report. It has figures, and grows as experiments
    are complete. Stored results are not computed again: a run that was stopped continues where it ended.

        fedfairx reproduce all --out results
        fedfairx reproduce exp1 exp3 --quick
        fedfairx reproduce flights
        fedfairx reproduce all --engine dask://10.0.0.5:8786
        fedfairx reproduce mine --plugin mine.py

    quick: make every figure at a reduced size, in about half a minute.
    seeds: runs of each setting (default: 5, as in the paper).
    horizon: rounds T (default: 100000, as in the paper).
    engine: where jobs run.
    workers: threads of the local engine (default: one per processor).
    replace: remove experiments from the folder's report that have another size or were run by other code.
    """

    quick: bool = False
    seeds: int | None = None
    horizon: int | None = None
    engine: str = field(default="local", metadata={"metavar": "local|dask://HOST:PORT"})
    workers: int | None = None
    replace: bool = False

    def run(self) -> int:
        from fedfairx.experiments.experiment import FULL, QUICK, Size
        from fedfairx.experiments.registry import choose, load_plugin
        from fedfairx.experiments.reproduce import reproduce
        from fedfairx.experiments.sweep.progress import progress

        modules = tuple(load_plugin(path) for path in self.plugin)
        base = QUICK if self.quick else FULL
        done = reproduce(
            choose(list(self.experiments)),
            size=Size(
                horizon=base.horizon if self.horizon is None else self.horizon,
                seeds=base.seeds if self.seeds is None else self.seeds,
            ),
            out=self.out,
            engine_name=self.engine,
            workers=self.workers,
            progress=progress(quiet=self.quiet),
            ship=modules,
            replace=self.replace,
        )
        scores = [] if self.quiet else _scores(done.scores)
        self.answer(done.to_dict(), "\n".join([*scores, f"{done.report} ({done.seconds:.1f} s)"]))
        if not done.swept.failures:
            return 0
        print(f"fedfairx: {len(done.swept.failures)} of {done.swept.jobs} jobs failed:", file=sys.stderr)
        for failure in done.swept.failures:
            print(f"  {failure.job.label}: {failure.reason}", file=sys.stderr)
        print("fedfairx: the other results are stored; the same command tries these again", file=sys.stderr)
        return 1


def _scores(scores: Any) -> list[str]:
    lines = []
    for name, each in scores.items():
        for ratio in each.ratios:
            note = f" ({ratio.note})" if ratio.note else ""
            line = f"{ratio.name}: paper {ratio.paper:.2f}, ours {ratio.ours}: {ratio.verdict}{note}"
            lines.append(f"{name}  {line}")
        lines += [f"{name}  {claim.statement}: {claim.verdict}; {claim.found}" for claim in each.claims]
    return lines
