"""The decision rules, by name and by their index in compiled code.

expected-merit   exposure in proportion to E f(μ) under the posterior: the default
greedy           in proportion to f at the posterior mean; starves arms after bad luck
thompson         in proportion to f at a parameter drawn from the posterior (Wang et al. 2021, FairX-LinTS)
optimism         at the parameter of the confidence region whose fair policy earns most: the paper's rule
"""

from __future__ import annotations

RULES = ("expected-merit", "greedy", "thompson", "optimism")
EXPECTED_MERIT, GREEDY, THOMPSON = range(3)
OPTIMISM = "optimism"
