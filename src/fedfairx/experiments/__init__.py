"""The paper's experiments and ours, and what one's own is made of (docs/extending.md)."""

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
