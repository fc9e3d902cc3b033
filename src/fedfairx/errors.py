"""The exception tree.

    FedFairXError
    ├── InvalidInput (ValueError)       a parameter breaks its rule
    ├── UnknownDecision (KeyError)      a reward for a decision this agent never made
    ├── AlreadyObserved                 a second reward for one decision
    ├── ReplacementRefused              a reward that can't be replaced any more: it is in a release
    ├── KeyTaken                        a decision was made under this key before
    ├── StorageError                    what is kept can't be used
    │   ├── StorageUnavailable          for now: disk full, locked, connection lost; nothing has changed
    │   └── StateError                  it can't be read: damaged, foreign, older or newer than it may be
    │       └── OlderCopy               what was sent is ahead of it: a backup that was put back
    ├── MessageRefused                  a message that must not enter the shared statistics
    ├── TransportError                  the way to the other agents
    │   ├── TransportUnavailable        it is away; what was to be sent waits, and is sent when it is back
    │   └── TransportRefused            it will not have us, or is not what it should be
    ├── PrivacyError                    going on would break the stated guarantee
    │   ├── BudgetExhausted             more releases than the mechanism was sized for
    │   └── LedgerMismatch              the record of releases and the configuration disagree
    ├── ResultsError                    stored results that can't be used, or a sweep that failed
    └── MissingLibrary (ImportError)    what was called needs a library that an extra brings

and three warnings, which are no errors because what is promised holds all the same:

    ClippingWarning (UserWarning)       a private agent's bounds move more records than its estimate can bear
    ScaleWarning (UserWarning)          contexts are far larger than what the agent expects beforehand
    ClockWarning (UserWarning)          the computer's clock went back; what is kept has times that don't

Error text names the parameter, the rule and the value. It never holds a context or a reward, because
error text ends up in logs, and logs travel further than data may.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "AlreadyObserved",
    "BudgetExhausted",
    "ClippingWarning",
    "ClockWarning",
    "FedFairXError",
    "InvalidInput",
    "KeyTaken",
    "LedgerMismatch",
    "MessageRefused",
    "MissingLibrary",
    "OlderCopy",
    "PrivacyError",
    "ReplacementRefused",
    "ResultsError",
    "ScaleWarning",
    "StateError",
    "StorageError",
    "StorageUnavailable",
    "TransportError",
    "TransportRefused",
    "TransportUnavailable",
    "UnknownDecision",
    "needs",
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


class ReplacementRefused(FedFairXError):
    """A reward can't be replaced any more, because it is in a release or nobody knows how it entered."""


class KeyTaken(FedFairXError):
    """A decision was made under this key before; `decision` is its id."""

    def __init__(self, decision: str) -> None:
        super().__init__(f"key must be new, and decision {decision} was made under it")
        self.decision = decision


class StorageError(FedFairXError):
    """What an agent keeps in a file or a database can't be used."""


class StorageUnavailable(StorageError):
    """It can't be used for now; nothing has changed, and the same call works once the cause is gone."""


class StateError(StorageError):
    """A saved state is damaged, foreign, or of a schema this version does not read."""


class MessageRefused(FedFairXError):
    """A message from another agent must not enter the shared statistics; `reason` is for counting."""

    def __init__(self, text: str = "", *, reason: str = "malformed") -> None:
        super().__init__(text)
        self.reason = reason


class TransportError(FedFairXError):
    """Something is wrong with the way to the other agents; deciding goes on."""


class TransportUnavailable(TransportError):
    """The transport can't be reached now; trying again later is right."""


class TransportRefused(TransportError):
    """The transport refuses this agent, or is not set up as it must be; somebody has to see to it."""


class OlderCopy(StateError, MessageRefused):
    """An agent is older than what it has sent: it was put back from a backup, or another has its name."""


class PrivacyError(FedFairXError):
    """Going on would break the stated privacy guarantee."""


class BudgetExhausted(PrivacyError):
    """The mechanism was sized for a number of releases, and all of them have been made."""


class LedgerMismatch(PrivacyError):
    """The record of past releases contradicts what is about to be released."""


class ResultsError(FedFairXError):
    """Stored results can't be used, or a sweep could not be finished."""


class MissingLibrary(FedFairXError, ImportError):
    """What was called needs a library that is no part of the plain installation."""


class ClippingWarning(UserWarning):
    """A private agent's bounds move so many records that what it learns is biased."""


class ClockWarning(UserWarning):
    """The computer's clock went back; times that are kept stand still until it has caught up."""


class ScaleWarning(UserWarning):
    """An agent's contexts are far larger than its prior or its confidence region expects."""


def require(condition: bool, name: str, rule: str, value: object, remedy: str = "") -> None:
    """Raise `InvalidInput` "name rule, got name=value" unless `condition` holds.

    `value` must be safe to print: never pass a context or a reward.
    """
    if not condition:
        tail = f"; {remedy}" if remedy else ""
        raise InvalidInput(f"{name} {rule}, got {name}={value!r}{tail}")


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import optional libraries inside; one that is missing is a `MissingLibrary` that names its extra."""
    try:
        yield
    except ImportError as error:
        text = f"this needs {error.name}: pip install 'fedfairx[{extra}]'"
        raise MissingLibrary(text, name=error.name) from None
