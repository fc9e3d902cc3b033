"""The check of schemathesis that the service takes what its document allows, as a hook of its command.

The document is one that says what the service's agent is (`narrowed` in `test_openapi.py`). What is left are
rules between values, which no schema states: `BETWEEN_VALUES` finds their refusals.
"""

from __future__ import annotations

import re
from typing import Any

import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

BETWEEN_VALUES = re.compile(
    "|".join(
        (
            r"must be \d+ numbers, as the rows before",  # rows of one length
            r"must (be|have) different",  # ids of objects, levels
            r"must be one that this agent has and has not retired",
            r"occurs twice in the batch",
            r"persons must all be given",  # in a batch all or none
            r"which must not increase",  # weights of slots
            r"(excluded|baseline)(\[\d+\])? must be",  # of the actions of the request
            r"excluded must leave",
            r"slots must be at most as many",
            r"baseline must be given",
            r"rewards must be of actions that were shown",
            r"reward must be .* in size",  # by the rewards before
            r"low < high",
            r"dimension must be that of",
            r"^merit: \w+ must be",  # a number in a text
            r"^default_reward must be from",
            r"^(shared|products) must be",  # of the features
            r"has several slots$|has one slot",  # the decision that is rewarded
        )
    )
)


@schemathesis.check
def takes_what_is_allowed(ctx: Any, response: Any, case: Any) -> bool | None:
    """The service refuses no value that the document allows, but for a rule between values."""
    if response.status_code == 410:  # what it had was deleted meanwhile
        return None
    if response.status_code == 422:  # of other agents, `narrowed` knows nothing
        others = case.operation.path.startswith("/v1/agents/{agent}/")
        if others or BETWEEN_VALUES.search(response.json()["detail"]):
            return None
    found: bool | None = positive_data_acceptance(ctx, response, case)
    return found
