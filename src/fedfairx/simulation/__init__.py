"""Simulated federations, at vector speed."""

from fedfairx.simulation.environments import Scenario
from fedfairx.simulation.runner import Result, simulate

__all__ = ["Result", "Scenario", "simulate"]
