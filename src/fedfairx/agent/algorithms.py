"""Each algorithm and baseline as one composition of a rule, a schedule and a privatizer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedfairx.agent.schedules import Determinant, Doubling, Geometric, Never, Paper, Schedule
from fedfairx.core.optimism.solver import FAIR, FAIR_PGD, WINNER, Solver
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import require

SOLVERS: dict[str, Solver] = {
    "fixed-point": Solver(rule=FAIR),
    "pgd": Solver(rule=FAIR_PGD, max_steps=100, rate=1.0),  # the paper's, whose settings it does not give
}


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: its rule, solver and schedule, and what is shared."""

    name: str
    summary: str
    schedule: Schedule = field(default_factory=Never)
    private: bool = False
    solver: Solver = SOLVERS["fixed-point"]
    decide_from: str = "released+local"
    rule: str = OPTIMISM

    def with_solver(self, solver: str | Solver) -> Algorithm:
        """The same algorithm with another solver, given or by name, if its rule is the paper's."""
        if isinstance(solver, str):
            require(solver in SOLVERS, "solver", f"must be one of {', '.join(SOLVERS)}", solver)
            solver = SOLVERS[solver]
        fair = self.rule == OPTIMISM and self.solver.rule == FAIR
        return replace(self, solver=solver) if fair else self


_ALL = (
    Algorithm("fairx-bayes", "exposure by expected merit, each agent alone", rule="expected-merit"),
    Algorithm(
        "fed-fairx-bayes",
        "exposure by expected merit, exact statistics shared",
        Paper(),
        rule="expected-merit",
    ),
    Algorithm(
        "priv-fairx-bayes",
        "exposure by expected merit, noisy statistics shared",
        Geometric(),
        private=True,
        decide_from="own+released",
        rule="expected-merit",
    ),
    Algorithm(
        "fairx-lints", "FairX-LinTS (Wang et al. 2021): Thompson's draw, each agent alone", rule="thompson"
    ),
    Algorithm("fed-fairx-lints", "FairX-LinTS, exact statistics shared", Paper(), rule="thompson"),
    Algorithm("fairx-linucb", "FairX-LinUCB, each agent alone (B0)"),
    Algorithm("fed-fairx-linucb", "Fed-FairX-LinUCB: exact statistics shared", Paper()),
    Algorithm(
        "priv-fairx-linucb",
        "Priv-FairX-LinUCB: noisy statistics shared",
        Paper(),
        private=True,
        decide_from="released",
    ),
    Algorithm(
        "b1",
        "determinant-triggered sharing (Dubey and Pentland 2020); NOT private end to end",
        Determinant(),
        private=True,
    ),
    Algorithm(
        "b2",
        "sharing with gaps that double (Solanki et al. 2022)",
        Doubling(),
        private=True,
        decide_from="released",
    ),
    Algorithm("linucb", "LinUCB, winner takes all, each agent alone", solver=Solver(rule=WINNER)),
    Algorithm(
        "minimum-share",
        "each action a floor of 0.02, the rest to LinUCB's winner (after Patil et al. 2020)",
        solver=Solver(rule=WINNER, floor=0.02),
    ),
)
ALGORITHMS = {algorithm.name: algorithm for algorithm in _ALL}
ALIASES = {"b0": "fairx-linucb"}


def algorithms() -> tuple[str, ...]:
    """The names of all algorithms.

    >>> "priv-fairx-bayes" in algorithms()
    True
    """
    return tuple(ALGORITHMS)


def algorithm(name: str | Algorithm) -> Algorithm:
    """The algorithm of that name (or alias); an `Algorithm` is returned as it is."""
    if isinstance(name, Algorithm):
        return name
    resolved = ALIASES.get(name, name)
    require(resolved in ALGORITHMS, "algorithm", f"must be one of {', '.join(ALGORITHMS)}", name)
    return ALGORITHMS[resolved]
