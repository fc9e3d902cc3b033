"""Fixtures that several folders share."""

from __future__ import annotations

pytest_plugins = ("servers",)
