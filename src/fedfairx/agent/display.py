"""How an agent shows itself: one line, and a small table for notebooks.

Settings and counts, which are the owner's to know, and never a context, a reward or what was learnt from
them: such lines end up in logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedfairx.util.formatting import html_table

if TYPE_CHECKING:
    from fedfairx.agent.deciding import Deciding
    from fedfairx.privacy import Guarantee


def line_of_agent(agent: Deciding) -> str:
    """`Agent('name', dimension=3, rule='greedy', merit=…, private, 20 observed, 0 pending)`."""
    kind = "private, " if agent.private else ""
    return (
        f"Agent({agent.name!r}, {_shape(agent)}, rule={agent.rule!r}, merit={agent.merit!r}, "
        f"{kind}{agent.observed} observed, {agent.pending} pending)"
    )


def _shape(agent: Deciding) -> str:
    return f"actions={list(agent.actions)}" if agent.actions else f"dimension={agent.dimension}"


def table_of_agent(agent: Deciding) -> str:
    """The same for a notebook, with the privacy that is claimed."""
    rows = [
        ("actions", ", ".join(agent.actions)) if agent.actions else ("dimension", agent.dimension),
        ("rule", agent.rule),
        ("merit", repr(agent.merit)),
        ("rewards observed", agent.observed),
        ("decisions pending", agent.pending),
        ("decides from", agent.decide_from),
        ("privacy", privacy_in_short(agent.privatizer.guarantee)),
    ]
    return html_table((), rows, caption=f"Agent {agent.name}")


def privacy_in_short(guarantee: Guarantee) -> str:
    if guarantee.reasons:
        return f"NOT PRIVATE: {'; '.join(guarantee.reasons)}"
    noise = ", simulated noise: NOT PRIVATE" if guarantee.simulated else ""
    used = f"{guarantee.spent} of {guarantee.releases} messages sent"
    return f"ε={guarantee.epsilon:.6g}, δ={guarantee.delta:g} for all messages; {used}{noise}"
