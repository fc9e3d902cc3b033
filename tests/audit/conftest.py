"""Smaller audits, for tests that are not about the parts that are cut down. A whole one finds no less."""

from __future__ import annotations

import pytest

import draws_alike
import whole_agents
from fedfairx.audit import exact_checks, noise_tests


@pytest.fixture
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not the statistics of the draws that are tested."""
    monkeypatch.setattr(noise_tests, "_SAMPLES", 2_000)


@pytest.fixture
def _few_large_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not the largest of the draws that is tested."""
    monkeypatch.setattr(noise_tests, "_TAIL_SAMPLES", 1 << 12)


@pytest.fixture
def _few_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not tested that other keys and places give other draws: few bits of them are changed."""
    changed = draws_alike._one_bit_changed
    monkeypatch.setattr(draws_alike, "_one_bit_changed", lambda value: changed(value)[:1])


@pytest.fixture
def _few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not the length of keys that is tested."""
    monkeypatch.setattr(draws_alike, "_KEYS", 64)


@pytest.fixture
def _few_canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not the sensitivity of the data path that is tested."""
    canaries = exact_checks.canaries
    monkeypatch.setattr(exact_checks, "canaries", lambda subject: canaries(subject)[::8])


@pytest.fixture
def _few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not tested what many records, or many releases of all but the first agent, do."""
    monkeypatch.setattr(whole_agents, "_MANY", 6)
    monkeypatch.setattr(whole_agents, "_SHORT", 4)
    monkeypatch.setattr(whole_agents, "_STORED", 2)


@pytest.fixture
def _no_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the last releases of a long stream are tested."""
    monkeypatch.setattr(whole_agents, "_LONGEST", 32)
