"""What whole agents and federations send, compared with what they must send.

Nothing here fails by chance but `hiding`, which tests random bytes.
"""

from __future__ import annotations

import draws_alike
import protocol_checks
import whole_agents
import whole_federation
from fedfairx.agent.options import Options
from fedfairx.audit.subject import CheckResult
from whole_config import WholeConfig

RATE = 1e-6  # of a failure of `hiding` by chance


def compare(
    options: Options, *, dimension: int, releases: int, agents: int = 3, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Run the agents that private `options` make, and with secure aggregation their federation."""
    subject = WholeConfig(options=options, dimension=dimension, releases=releases, agents=agents)
    checks, draws = whole_agents.whole_agents(subject, seed=seed)
    if subject.rows:
        checks += (protocol_checks.opened_once(subject), *protocol_checks.hiding(subject, RATE))
        totals, more = whole_federation.whole_federation(subject, seed=seed)
        checks, draws = checks + totals, draws + more
    return (*checks, draws_alike.keys(), draws_alike.draws_alike(draws, key=f"{seed}"))


def failed(checks: tuple[CheckResult, ...]) -> tuple[str, ...]:
    """Names of the checks that found something."""
    return tuple(check.name for check in checks if not check.ok)
