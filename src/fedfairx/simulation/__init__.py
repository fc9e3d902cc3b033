"""Simulate federations of agents."""

from fedfairx.simulation.compare import Comparison, compare
from fedfairx.simulation.recorded import Recorded
from fedfairx.simulation.runner import Result, simulate
from fedfairx.simulation.scenario import Scenario

__all__ = ["Comparison", "Recorded", "Result", "Scenario", "compare", "simulate"]
