"""fedfairx: fair, private, federated contextual bandits."""

from fedfairx import features
from fedfairx.core import merit
from fedfairx.core.confidence import Confidence
from fedfairx.federation.agent import Agent
from fedfairx.federation.algorithms import algorithms
from fedfairx.federation.decision import Decision
from fedfairx.federation.local import Federation
from fedfairx.simulation import Result, Scenario, simulate

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "Confidence",
    "Decision",
    "Federation",
    "Result",
    "Scenario",
    "algorithms",
    "features",
    "merit",
    "simulate",
]
