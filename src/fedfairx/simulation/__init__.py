"""Simulated federations, at vector speed."""

from fedfairx.simulation.environments import Scenario
from fedfairx.simulation.recorded import Recorded
from fedfairx.simulation.runner import Result, simulate

__all__ = ["Recorded", "Result", "Scenario", "simulate"]
