"""Whether an agent is an old copy of itself, or one of two: what lies under its name tells."""

from __future__ import annotations

from fedfairx.errors import PrivacyError
from fedfairx.federation.agent import Agent
from fedfairx.privacy import Release

__all__ = ["contradiction"]


def contradiction(agent: Agent, ours: Release | None, theirs: Release) -> str | None:
    """Why an agent whose latest release is `ours` must send nothing, `theirs` being out under its name.

    None if `theirs` is a release that this agent has made. A private agent remembers all of its own; of one
    that is not private an earlier number is taken for its past.
    """
    made = 0 if ours is None else ours.number
    if theirs.number == made:
        same = theirs == ours
    else:
        same = theirs.number < made and (not agent.private or _again(agent, theirs.number) == theirs)
    if same:
        return None
    return (
        f"the others have release {theirs.number} of {agent.name!r} with other content than this agent's, "
        f"which has made {made}: this is an old copy of it, or a second one runs. Nothing is sent. Stop the "
        "second one, or put back the latest copy; if there is none, start anew under a new name and a new "
        "key, with a new ledger and a budget of its own"
    )


def _again(agent: Agent, number: int) -> Release | None:
    """A past release of its own, which costs nothing; None if it can't be given any more."""
    with agent._lock:
        try:
            return agent._marked(agent.privatizer.release(number))
        except PrivacyError:
            return None
