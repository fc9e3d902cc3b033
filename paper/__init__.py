"""The paper's experiments and ours, and the parts of an experiment (docs/howto/write-an-experiment.md)."""

from paper.experiment import FULL, QUICK, SMOKE, Experiment, Outcome, Picture, Results, Run, Size
from paper.scores import Claim, Headline, Ratio, Table, below, estimate, judge, number, ratio

__all__ = [
    "FULL",
    "QUICK",
    "SMOKE",
    "Claim",
    "Experiment",
    "Headline",
    "Outcome",
    "Picture",
    "Ratio",
    "Results",
    "Run",
    "Size",
    "Table",
    "below",
    "estimate",
    "judge",
    "number",
    "ratio",
]
