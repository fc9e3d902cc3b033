"""The paper's experiments and ours, and the classes of an experiment (docs/howto/write-an-experiment.md)."""

from fedfairx.experiments.contents import (
    Bar,
    Compared,
    Contents,
    Grid,
    Hypothesis,
    below,
    over,
    regret,
    words,
)
from fedfairx.experiments.experiment import FULL, QUICK, SMOKE, Experiment, Picture, Run, Size
from fedfairx.experiments.outcomes import Outcome, Outcomes
from fedfairx.experiments.scores import Claim, Estimate, Ratio, Scores, Table

__all__ = [
    "FULL",
    "QUICK",
    "SMOKE",
    "Bar",
    "Claim",
    "Compared",
    "Contents",
    "Estimate",
    "Experiment",
    "Grid",
    "Hypothesis",
    "Outcome",
    "Outcomes",
    "Picture",
    "Ratio",
    "Run",
    "Scores",
    "Size",
    "Table",
    "below",
    "over",
    "regret",
    "words",
]
