"""What an agent and a federation say of themselves: one line, and a small table for notebooks.

Settings and counts, which are the owner's to know, and never a context, a reward or what was learnt from
them: such lines end up in logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedfairx.util.formatting import counted, html_table

if TYPE_CHECKING:
    from fedfairx.federation.agent import Agent
    from fedfairx.federation.local import Federation
    from fedfairx.privacy import Guarantee


MOST_AGENTS = 10  # with a row of their own


def line_of_agent(agent: Agent) -> str:
    """`Agent('name', dimension=3, rule='greedy', merit=…, private, 20 observed, 0 pending)`."""
    kind = "private, " if agent.private else ""
    return (
        f"Agent({agent.name!r}, {_shape(agent)}, rule={agent.rule!r}, merit={agent.merit!r}, "
        f"{kind}{agent.observed} observed, {agent.pending} pending)"
    )


def _shape(agent: Agent) -> str:
    return f"actions={list(agent.actions)}" if agent.actions else f"dimension={agent.dimension}"


def table_of_agent(agent: Agent) -> str:
    """The same for a notebook, with the privacy that is claimed."""
    rows = [
        ("actions", ", ".join(agent.actions)) if agent.actions else ("dimension", agent.dimension),
        ("rule", agent.rule),
        ("merit", repr(agent.merit)),
        ("rewards observed", agent.observed),
        ("decisions pending", agent.pending),
        ("decides from", agent.decide_from),
        ("privacy", _privacy(agent.privatizer.guarantee)),
    ]
    return html_table((), rows, caption=f"Agent {agent.name}")


def line_of_federation(federation: Federation) -> str:
    """`Federation('b2', agents=3, dimension=5, round 20 of 100, 2 syncs)`."""
    plan = federation.plan
    return (
        f"Federation({federation.algorithm.name!r}, agents={plan.agents}, dimension={plan.dimension}, "
        f"round {federation.round} of {_end(federation)}, {counted(federation.syncs, 'sync')})"
    )


def table_of_federation(federation: Federation) -> str:
    """The same for a notebook: what is shared, and a row for each of the first agents."""
    plan, shown = federation.plan, federation.agents[:MOST_AGENTS]
    rows = [
        ("algorithm", federation.algorithm.name),
        ("round", f"{federation.round} of {_end(federation)}"),
        ("synchronisations", federation.syncs),
        ("privacy", _privacy(federation.privacy)),
    ]
    each: list[tuple[object, ...]] = [(agent.name, agent.observed, agent.pending) for agent in shown]
    if plan.agents > len(shown):
        each.append((f"… and {plan.agents - len(shown)} more", "", ""))
    return html_table((), rows, caption=f"Federation of {plan.agents} agents") + html_table(
        ("agent", "rewards observed", "decisions pending"), each
    )


def _end(federation: Federation) -> int:
    """The round after which nothing is shared any more."""
    return federation._began + federation.plan.horizon


def _privacy(guarantee: Guarantee) -> str:
    if guarantee.reasons:
        return f"NOT PRIVATE: {'; '.join(guarantee.reasons)}"
    noise = ", simulated noise: NOT PRIVATE" if guarantee.simulated else ""
    used = f"{guarantee.spent} of {guarantee.releases} messages sent"
    return f"ε={guarantee.epsilon:.6g}, δ={guarantee.delta:g} for all messages; {used}{noise}"
