"""Privacy: clip, account, add noise, record, audit. `docs/explanation/privacy.md` states the promise."""

from fedfairx.privacy.accounting import delta_for, epsilon_for, mu_for
from fedfairx.privacy.bounds import Bounds, Unbounded
from fedfairx.privacy.budget import Budget, private
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.guarantee import Guarantee, claim
from fedfairx.privacy.ledger.ledger import MemoryLedger, MemoryPersons
from fedfairx.privacy.ledger.rollback import refuse_old_copy
from fedfairx.privacy.mechanisms.gaussian import Gaussian, Mechanism, NonPrivate, calibrate, mechanisms
from fedfairx.privacy.mechanisms.noise import KeyedNoise, SimulatedNoise, new_key
from fedfairx.privacy.mechanisms.noise_share import NoiseShare
from fedfairx.privacy.privatizers.consecutive import ContinuedPrivatizer, carry_over
from fedfairx.privacy.privatizers.non_private import NonPrivateSums
from fedfairx.privacy.privatizers.stream import Privatizer, StreamPrivatizer
from fedfairx.privacy.release import Release

__all__ = [
    "Bounds",
    "Budget",
    "Centring",
    "ContinuedPrivatizer",
    "Gaussian",
    "Guarantee",
    "KeyedNoise",
    "Mechanism",
    "MemoryLedger",
    "MemoryPersons",
    "NoiseShare",
    "NonPrivate",
    "NonPrivateSums",
    "Privatizer",
    "Release",
    "SimulatedNoise",
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
