"""Exposure tables: shown and entitled shares, with intervals that hold at all times."""

from fedfairx.fairness.decision_log import Logged
from fedfairx.fairness.draw_test import Draws
from fedfairx.fairness.exposure_table import Exposure, Row, Share, exposure
from fedfairx.fairness.likely import Likely

__all__ = ["Draws", "Exposure", "Likely", "Logged", "Row", "Share", "exposure"]
