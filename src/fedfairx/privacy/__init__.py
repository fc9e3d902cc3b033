"""Privacy: clip, account, add noise, record, audit. `docs/privacy.md` says what is promised."""

from fedfairx.privacy.accounting import delta_for, epsilon_for, mu_for
from fedfairx.privacy.bounding import Bounds, Unbounded
from fedfairx.privacy.budget import Budget
from fedfairx.privacy.centring import CentredPrivatizer, Centring
from fedfairx.privacy.continued import ContinuedPrivatizer, carry_over
from fedfairx.privacy.factory import private
from fedfairx.privacy.guarantee import Guarantee, claim
from fedfairx.privacy.ledger import MemoryLedger
from fedfairx.privacy.mechanisms import Gaussian, Mechanism, NonPrivate, calibrate, mechanisms
from fedfairx.privacy.noise import KeyedNoise, SimulatedNoise, new_key
from fedfairx.privacy.peers import refuse_old_copy
from fedfairx.privacy.persons import MemoryPersons, PersonBound, SqlitePersons
from fedfairx.privacy.plain import NonPrivateSums
from fedfairx.privacy.privatizer import StreamPrivatizer
from fedfairx.privacy.protocols import Privatizer
from fedfairx.privacy.release import Release
from fedfairx.privacy.sqlite_ledger import SqliteLedger

__all__ = [
    "Bounds",
    "Budget",
    "CentredPrivatizer",
    "Centring",
    "ContinuedPrivatizer",
    "Gaussian",
    "Guarantee",
    "KeyedNoise",
    "Mechanism",
    "MemoryLedger",
    "MemoryPersons",
    "NonPrivate",
    "NonPrivateSums",
    "PersonBound",
    "Privatizer",
    "Release",
    "SimulatedNoise",
    "SqliteLedger",
    "SqlitePersons",
    "StreamPrivatizer",
    "Unbounded",
    "calibrate",
    "carry_over",
    "claim",
    "delta_for",
    "epsilon_for",
    "mechanisms",
    "mu_for",
    "new_key",
    "private",
    "refuse_old_copy",
]
