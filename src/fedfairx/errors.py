"""The exception tree.

    FedFairXError
    ├── InvalidInput (ValueError)       a parameter breaks its rule
    ├── UnknownDecision (KeyError)      a reward for a decision this agent never made
    ├── AlreadyObserved                 a second reward for one decision
    ├── StateError                      a saved state that can't be read as one
    ├── MessageRefused                  a message that must not enter the shared statistics
    ├── PrivacyError                    going on would break the stated guarantee
    │   ├── BudgetExhausted             more releases than the mechanism was sized for
    │   └── LedgerMismatch              the record of releases and the configuration disagree
    └── ResultsError                    stored results that can't be used, or a sweep that failed

and one warning, which is no error because the guarantee holds all the same:

    ClippingWarning (UserWarning)       a private agent's bounds move more records than its estimate can bear

Error text names the parameter, the rule and the value. It never holds a context or a reward, because
error text ends up in logs, and logs travel further than data may.
"""

from __future__ import annotations

__all__ = [
    "AlreadyObserved",
    "BudgetExhausted",
    "ClippingWarning",
    "FedFairXError",
    "InvalidInput",
    "LedgerMismatch",
    "MessageRefused",
    "PrivacyError",
    "ResultsError",
    "StateError",
    "UnknownDecision",
    "require",
]


class FedFairXError(Exception):
    """Base of every error that fedfairx raises on purpose."""


class InvalidInput(FedFairXError, ValueError):
    """A parameter breaks its rule."""


class UnknownDecision(FedFairXError, KeyError):
    """A reward refers to a decision that this agent did not make or no longer holds."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class AlreadyObserved(FedFairXError):
    """The reward of this decision has already been observed."""


class StateError(FedFairXError):
    """A saved state is damaged, foreign, or of a schema this version does not read."""


class MessageRefused(FedFairXError):
    """A message from another agent must not enter the shared statistics."""


class PrivacyError(FedFairXError):
    """Going on would break the stated privacy guarantee."""


class BudgetExhausted(PrivacyError):
    """The mechanism was sized for a number of releases, and all of them have been made."""


class LedgerMismatch(PrivacyError):
    """The record of past releases contradicts what is about to be released."""


class ResultsError(FedFairXError):
    """Stored results can't be used, or a sweep could not be finished."""


class ClippingWarning(UserWarning):
    """A private agent's bounds move so many records that what it learns is biased."""


def require(condition: bool, name: str, rule: str, value: object, remedy: str = "") -> None:
    """Raise `InvalidInput` "name rule, got name=value" unless `condition` holds.

    `value` must be safe to print: never pass a context or a reward.
    """
    if not condition:
        tail = f"; {remedy}" if remedy else ""
        raise InvalidInput(f"{name} {rule}, got {name}={value!r}{tail}")
