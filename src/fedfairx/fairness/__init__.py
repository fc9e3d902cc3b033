"""Fairness one can look at: shown against entitled, with intervals that hold at all times."""

from fedfairx.fairness.draws import Draws
from fedfairx.fairness.log import Logged
from fedfairx.fairness.table import Exposure, exposure
from fedfairx.fairness.verdict import Row, Share

__all__ = ["Draws", "Exposure", "Logged", "Row", "Share", "exposure"]
