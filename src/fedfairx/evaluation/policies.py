"""The policies to evaluate: what each would have shown in the decisions of a log.

`Options` are replayed: at each decision the policy is that of an agent which has learnt the log so far. Such
an agent learns from the log's choices, not from its own, so its mean value is that of these policies and not
what a live agent would have earned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.agent.agent import Agent
from fedfairx.agent.options import Options
from fedfairx.core.posterior import Posterior
from fedfairx.errors import InvalidInput, require
from fedfairx.evaluation.estimators import RewardScale
from fedfairx.evaluation.regression import guesses_of
from fedfairx.fairness.decision_log import Block, range_names
from fedfairx.util.arrays import Array

#: Returns shares (K,) from contexts (K, d), or from the names of actions without features; of several slots,
#: expected weights that sum to the weights of all slots.
Function = Callable[[Any], ArrayLike]
Policy = str | Options | Agent | Function
UNIFORM, GREEDY = "uniform", "greedy"
_KINDS = f'must be "{UNIFORM}", "{GREEDY}", Options, an Agent or a function of contexts'
_SUM = 1e-6
_SLACK = 1e-9
_KNOWN = 1000  # sets of actions whose shares are kept, so that they do not fill the memory


@dataclass(frozen=True)
class Decisions:
    """The decisions of a log that can be evaluated, in blocks, and how to read them one by one."""

    blocks: Sequence[Block]
    names: Sequence[str]  # by number
    scale: RewardScale

    def __len__(self) -> int:
        return sum(len(block.taken) for block in self.blocks)

    @cached_property
    def featureless(self) -> bool:
        return any(block.contexts is None or block.contexts.ndim == 2 for block in self.blocks)

    @cached_property
    def intercept(self) -> bool:
        """Whether contexts end with a constant, as in the log of an agent that has an intercept."""
        if self.featureless:
            return False
        lasts = [
            block.contexts[..., -1]
            for block in self.blocks
            if block.contexts is not None and len(block.taken)
        ]
        wide = all(block.contexts is not None and block.contexts.shape[2] > 1 for block in self.blocks)
        return (
            wide
            and bool(lasts)
            and lasts[0].flat[0] != 0
            and all((last == lasts[0].flat[0]).all() for last in lasts)
        )

    def entered(self) -> list[Block]:
        """The blocks as an agent with an intercept of 1 sees them."""
        if self.featureless:
            return [replace(block, contexts=block.names) for block in self.blocks]
        whole = []
        for block in self.blocks:
            assert block.contexts is not None
            rows = block.contexts[..., :-1] if self.intercept else block.contexts
            ones = np.ones((*rows.shape[:2], 1))
            whole.append(replace(block, contexts=np.concatenate([rows, ones], axis=2)))
        return whole

    def in_order(self) -> list[tuple[int, int]]:
        """Block and row of each decision, in the order of the log."""
        places = [(0, 0)] * len(self)
        for number, block in enumerate(self.blocks):
            for row, position in enumerate(block.positions):
                places[position] = number, row
        return places

    @cached_property
    def named(self) -> bool:
        """Whether actions have names, and not only their positions."""
        most = max((block.policy.shape[1] for block in self.blocks), default=0)
        return not set(self.names) <= set(range_names(most))

    def labels(self, number: int, row: int) -> list[str] | None:
        """The names of actions with features, whose own records count beside these."""
        if self.featureless or not self.named:
            return None
        return [self.names[code] for code in self.blocks[number].names[row]]

    def arms(self, number: int, row: int) -> Any:
        """Contexts (K, d), or names of actions without features."""
        block = self.blocks[number]
        if self.featureless:
            return [self.names[code] for code in block.names[row]]
        assert block.contexts is not None
        return block.contexts[row]

    def given(self, agent: Agent, number: int, row: int) -> Any:
        """`arms` as this agent takes them: without the log's constant, if it is not its own intercept."""
        arms = self.arms(number, row)
        if not self.intercept or arms.shape[1] == agent.dimension or arms[0, -1] == agent.constant:
            return arms
        return arms[:, :-1]

    def shown(self, agent: Agent, number: int, row: int) -> tuple[list[Any], list[str] | None]:
        """The contexts or names of what was shown, by slot, and the names of what has features."""
        arms, labels = self.given(agent, number, row), self.labels(number, row)
        taken = self.blocks[number].taken[row]
        return [arms[arm] for arm in taken], None if labels is None else [labels[arm] for arm in taken]

    def agent(self, options: Options) -> Agent:
        """An agent that has learnt nothing yet. Privacy, partners and schedule play no part in it."""
        text = "must be a number of rewards to be replayed, since a replay takes no time"
        require(not isinstance(options.half_life, str), "half_life", text, options.half_life)
        alone = Options(
            rule=options.composed.rule,
            merit=options.merit,
            prior=options.prior,
            intercept=options.intercept,
            reward_range=options.reward_range,
            minimum_share=options.minimum_share,
            confidence=options.confidence,
            solver=options.solver,
            half_life=options.half_life,
            own_record=options.own_record,
        )
        if self.featureless:
            return Agent(actions=list(self.names), options=alone, seed=0)
        contexts = self.blocks[0].contexts
        assert contexts is not None
        return Agent(contexts.shape[2] - (self.intercept and alone.has_intercept), options=alone, seed=0)


def shares_of(policy: Policy, decisions: Decisions) -> list[Array]:
    """Expected weights (n, K) of all actions under a policy, for each block."""
    blocks = decisions.blocks
    if isinstance(policy, str):
        require(policy in (UNIFORM, GREEDY), "policies", _KINDS, policy)
        if policy == UNIFORM:
            return [_level(block) for block in blocks]
        guesses = guesses_of(blocks, decisions.scale, named=decisions.named)
        return [_best(block, guess) for block, guess in zip(blocks, guesses, strict=True)]
    all_shares = [np.empty(block.policy.shape) for block in blocks]
    if isinstance(policy, Options):
        return _replay(policy, decisions, all_shares)
    if not isinstance(policy, Agent) and not callable(policy):
        raise InvalidInput(f"policies {_KINDS}, got {type(policy).__name__}")
    cache: dict[bytes, Array] = {}  # an agent's shares of actions without features, which repeat
    for number, row in decisions.in_order():
        block = blocks[number]
        arms, weights = decisions.arms(number, row), block.weights[row]
        if not isinstance(policy, Agent):
            all_shares[number][row] = _checked(policy(arms), weights, arms)
            continue
        key = block.names[row].tobytes() + weights.tobytes() if decisions.featureless else b""
        shares = cache.get(key)
        if shares is None:
            names = decisions.labels(number, row)
            shares = policy.policy(decisions.given(policy, number, row), slots=weights.tolist(), names=names)
            if decisions.featureless and len(cache) < _KNOWN:
                cache[key] = shares
        all_shares[number][row] = shares
    return all_shares


def _level(block: Block) -> Array:
    return np.broadcast_to(
        block.weights.sum(axis=1, keepdims=True) / block.policy.shape[1], block.policy.shape
    ).copy()


def _best(block: Block, guesses: Array) -> Array:
    """All weight to the actions of the largest guesses."""
    order = np.argsort(-guesses, axis=1, kind="stable")[:, : block.weights.shape[1]]
    shares = np.zeros_like(guesses)
    np.put_along_axis(shares, order, block.weights, axis=1)
    return shares


def _replay(options: Options, decisions: Decisions, all_shares: list[Array]) -> list[Array]:
    agent = decisions.agent(options)
    for number, row in decisions.in_order():
        block, weights = decisions.blocks[number], decisions.blocks[number].weights[row]
        arms, labels = decisions.given(agent, number, row), decisions.labels(number, row)
        slots = weights.tolist()
        all_shares[number][row] = agent.policy(arms, slots=slots, names=labels)
        if agent.rule == "thompson":  # the next one draws another θ; what was shown is in the log
            agent.forget(agent.decide(arms, slots=slots, names=labels))
        shown, names = decisions.shown(agent, number, row)
        agent.learn(shown, block.rewards[row], weights=weights, names=names)
    return all_shares


def believed(options: Options, decisions: Decisions) -> Posterior:
    """What an agent believes of θ that has learnt the whole log."""
    agent, blocks, order = decisions.agent(options), decisions.blocks, decisions.in_order()
    pairs = [decisions.shown(agent, *place) for place in order]
    shown = [each for arms, _ in pairs for each in arms]
    names = None if pairs[0][1] is None else [each for _, labels in pairs for each in labels or ()]
    rewards, weights = (
        np.concatenate([getattr(blocks[number], part)[row] for number, row in order])
        for part in ("rewards", "weights")
    )
    agent.learn(shown, rewards, weights=weights, names=names)
    return agent.posterior


def _checked(values: ArrayLike, weights: Array, arms: Sequence[Any]) -> Array:
    total = float(weights.sum())

    def refused(got: str) -> InvalidInput:
        rule = f"must return {len(arms)} shares in [0, {weights[0]:g}] that sum to {total:g}"
        return InvalidInput(f"the function {rule}, got {got}")

    try:
        shares = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise refused(type(values).__name__) from None
    if shares.shape != (len(arms),):
        raise refused(f"an array of shape {shares.shape}")
    in_range = bool(
        np.isfinite(shares).all() and (shares >= -_SLACK).all() and shares.max() <= weights[0] + _SUM
    )
    if not in_range or abs(float(shares.sum()) - total) > _SUM * total:
        least, most, got_sum = (float(each) for each in (shares.min(), shares.max(), shares.sum()))
        raise refused(f"shares from {least:g} to {most:g} that sum to {got_sum:g}")
    return shares.clip(min=0.0)


def named(policies: Policy | Sequence[Policy] | Mapping[str, Policy]) -> dict[str, Policy]:
    """Policies by name; those without one are called by what they are."""
    if isinstance(policies, Mapping):
        return dict(policies)
    several = [policies] if isinstance(policies, str) or not isinstance(policies, Sequence) else policies
    by_name: dict[str, Policy] = {}
    for policy in several:
        name = _name(policy)
        by_name[name if name not in by_name else f"{name} {len(by_name) + 1}"] = policy
    return by_name


def _name(policy: Policy) -> str:
    if isinstance(policy, str):
        return policy
    if isinstance(policy, Options):
        return policy.composed.rule
    return policy.name if isinstance(policy, Agent) else getattr(policy, "__name__", "function")
