"""From what a request says of actions to the agent's contexts: by its schema, or numbers without names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Self

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.errors import InvalidInput
from fedfairx.features import Encoded, Schema
from fedfairx.util.arrays import Array
from fedfairx.util.places import kind_of, place

CONTEXTS = "contexts"  # the field of a request whose numbers were checked when it was read


class FeatureTable:
    """Converts requests into contexts; without a schema, they are `width` numbers, taken unchanged."""

    def __init__(self, schema: Schema | None, *, dimension: int) -> None:
        self.names = () if schema is None else schema.names
        self.width = len(self.names) or dimension  # how many a caller sends for an action
        self.schema = schema

    @classmethod
    def of(cls, agent: Agent) -> Self:
        """The table of an agent, by the schema that it has now."""
        return cls(agent.schema, dimension=agent.dimension)

    def encode(self, rows: Sequence[Any], context: Mapping[str, Any] | None, where: str) -> Encoded:
        """The agent's (K, d) contexts of these rows, and what was clipped or unknown."""
        part = () if where == CONTEXTS else ("features",)
        if self.schema is not None:
            return self.schema.encode(rows, context, where=(where, *part))
        if context is not None:
            raise InvalidInput("context must be left out: this service has no named features")
        lists = where == CONTEXTS or set(map(type, rows)) == {list}
        if not lists or set(map(len, rows)) != {self.width}:
            raise self._odd(rows, where, part)
        if where != CONTEXTS and set(map(type, chain.from_iterable(rows))) != {float}:
            raise self._odd(rows, where, part)
        numbers = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * self.width)
        contexts = self.of_numbers(numbers.reshape(len(rows), self.width))
        assert contexts is not None
        return Encoded(contexts, {}, {})

    def of_numbers(self, rows: Array) -> Array | None:
        """The agent's contexts (…, K, d) of rows (…, K, `width`); None if features have names."""
        if self.schema is not None or rows.shape[-1] != self.width:
            return None
        return rows

    def _odd(self, rows: Sequence[Any], where: str, part: tuple[str, ...]) -> InvalidInput:
        """The error for the first row that is not as many numbers as needed."""
        for index, row in enumerate(rows):
            at = place(where, index, *part)
            if isinstance(row, Mapping):
                text = f"must be a list of {self.width} numbers: this service has no named features"
                return InvalidInput(f"{at} {text}")
            if len(row) != self.width:
                return InvalidInput(f"{at} must be {self.width} numbers, got {len(row)} of them")
            for column, value in enumerate(row):
                if type(value) is not float:
                    text = f"must be a number: this service has no named features, got {kind_of(value)}"
                    return InvalidInput(f"{place(where, index, *part, column)} {text}")
        return InvalidInput(f"{where} must be at least one, got 0")
