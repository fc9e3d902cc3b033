"""Solvers by name."""

from __future__ import annotations

from fedfairx.core.optimism.solver import FAIR, FAIR_PGD, Solver
from fedfairx.errors import require

SOLVERS: dict[str, Solver] = {
    "fixed-point": Solver(rule=FAIR),
    "pgd": Solver(rule=FAIR_PGD, max_steps=100, rate=1.0),  # the paper's, with settings of ours
}


def solver(name: str | Solver) -> Solver:
    """The solver of that name; a `Solver` is given back as it is."""
    if not isinstance(name, str):
        return name
    require(name in SOLVERS, "solver", f"must be one of {', '.join(SOLVERS)}", name)
    return SOLVERS[name]
