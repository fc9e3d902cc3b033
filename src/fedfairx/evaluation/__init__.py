"""Evaluate policies on logged decisions."""

from fedfairx.evaluation.estimators import Estimate, PolicyValue
from fedfairx.evaluation.evaluation import Evaluation, evaluate

__all__ = ["Estimate", "Evaluation", "PolicyValue", "evaluate"]
