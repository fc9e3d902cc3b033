"""The paper's experiments and ours, and the classes of an experiment (docs/howto/write-an-experiment.md)."""

from fedfairx.experiments.experiment import (
    FULL,
    QUICK,
    SMOKE,
    Experiment,
    Outcome,
    Outcomes,
    Picture,
    Run,
    Size,
)
from fedfairx.experiments.scores import Claim, Estimate, Ratio, Scores, Table

__all__ = [
    "FULL",
    "QUICK",
    "SMOKE",
    "Claim",
    "Estimate",
    "Experiment",
    "Outcome",
    "Outcomes",
    "Picture",
    "Ratio",
    "Run",
    "Scores",
    "Size",
    "Table",
]
