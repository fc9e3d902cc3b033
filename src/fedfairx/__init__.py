"""fedfairx: fair, private, federated contextual bandits.

A public name is imported when it is first used, so that a program waits only for what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfairx import features
    from fedfairx.agent import schedules
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
    "schedules",
    "simulate",
]
_NAMES = {
    "agent.agent": ("Agent",),
    "agent.algorithms": ("algorithms",),
    "agent.options": ("Options",),
    "client": ("AsyncClient", "Client"),
    "core.confidence": ("Confidence",),
    "core.posterior": ("Prior",),
    "decision": ("Decision",),
    "evaluation": ("Evaluation", "evaluate"),
    "fairness": ("Exposure", "Logged", "exposure"),
    "federation.in_process": ("Federation",),
    "privacy.budget": ("Budget",),
    "simulation": ("Comparison", "Recorded", "Result", "Scenario", "compare", "simulate"),
}
_ROOMS = (
    *("agent", "client", "core", "decision", "errors", "evaluation", "fairness", "features", "federation"),
    *("lanes", "privacy", "simulation", "steps", "storage", "util"),
)
_MODULES = {"merit": "core.merit", "schedules": "agent.schedules", **{name: name for name in _ROOMS}}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(f"fedfairx.{_MODULES[name]}")
    elif name in _MODULE_OF:
        value = getattr(import_module(f"fedfairx.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'fedfairx' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
