"""How a policy follows from what is known: the rules by name, and as compiled code knows them.

expected-merit   exposure in proportion to E f(μ) under the posterior: the default
greedy           in proportion to f at the posterior mean, as if it were true; starves who was unlucky
thompson         in proportion to f at a parameter drawn from the posterior (Wang et al. 2021, FairX-LinTS)
optimism         at the parameter of the confidence region whose fair policy earns most: the paper's rule
"""

from __future__ import annotations

RULES = ("expected-merit", "greedy", "thompson", "optimism")
EXPECTED_MERIT, GREEDY, THOMPSON = range(3)
OPTIMISM = "optimism"
