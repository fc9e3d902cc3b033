"""How agents and federations show the privacy that they claim, in one line."""

from __future__ import annotations

from fedfairx.privacy import Guarantee


def privacy_in_short(guarantee: Guarantee) -> str:
    """What is claimed for all messages, how much of it is spent, or why nothing is claimed."""
    if guarantee.reasons:
        return f"NOT PRIVATE: {'; '.join(guarantee.reasons)}"
    noise = ", simulated noise: NOT PRIVATE" if guarantee.simulated else ""
    used = f"{guarantee.spent} of {guarantee.releases} messages sent"
    return f"ε={guarantee.epsilon:.6g}, δ={guarantee.delta:g} for all messages; {used}{noise}"
