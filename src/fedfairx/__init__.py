"""fedfairx: fair, private, federated contextual bandits."""

from fedfairx import features
from fedfairx.agent.agent import Agent
from fedfairx.agent.algorithms import algorithms
from fedfairx.agent.options import Options
from fedfairx.client import AsyncClient, Client
from fedfairx.core import merit
from fedfairx.core.confidence import Confidence
from fedfairx.core.posterior import Prior
from fedfairx.decision import Decision
from fedfairx.evaluation import Evaluation, evaluate
from fedfairx.fairness import Exposure, Logged, exposure
from fedfairx.federation.in_process import Federation
from fedfairx.privacy.budget import Budget
from fedfairx.simulation import Comparison, Recorded, Result, Scenario, compare, simulate

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "AsyncClient",
    "Budget",
    "Client",
    "Comparison",
    "Confidence",
    "Decision",
    "Evaluation",
    "Exposure",
    "Federation",
    "Logged",
    "Options",
    "Prior",
    "Recorded",
    "Result",
    "Scenario",
    "algorithms",
    "compare",
    "evaluate",
    "exposure",
    "features",
    "merit",
    "simulate",
]
