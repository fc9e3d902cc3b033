"""Simulators written by hand in NumPy: plain LinUCB, which solves no problem per round."""

from __future__ import annotations

import numpy as np


def draw_numbers(generator: np.random.Generator, agent_rounds: int, *, arms: int, dimension: int) -> None:
    """Draw only the numbers of a simulation, the floor: K·d + 1 uniforms and 1 normal per agent-round."""
    block = max(1, 16_384 // (arms * dimension + 1))  # agent-rounds at a time: 128 KiB stay in the cache
    uniforms, normals = np.empty(block * (arms * dimension + 1)), np.empty(block)
    for _ in range(agent_rounds // block):
        generator.random(out=uniforms)
        generator.standard_normal(out=normals)


def floor_rounds(agent_rounds: int, *, arms: int, dimension: int) -> int:
    """Agent-rounds that `draw_numbers` actually draws, in whole blocks."""
    block = max(1, 16_384 // (arms * dimension + 1))
    return agent_rounds // block * block


def loop(seed: int, rounds: int, *, arms: int, dimension: int) -> float:
    """One world, round after round. Returns the total reward."""
    rng = np.random.default_rng(seed)
    truth = rng.random(dimension)
    truth /= np.linalg.norm(truth)
    scale = 1.0 / np.sqrt(dimension)
    inverse, moment, total = np.eye(dimension), np.zeros(dimension), 0.0
    for _ in range(rounds):
        contexts = rng.random((arms, dimension)) * scale
        widths = np.sqrt(((contexts @ inverse) * contexts).sum(axis=1))
        x = contexts[np.argmax(contexts @ (inverse @ moment) + widths)]
        reward = x @ truth + 0.1 * rng.standard_normal()
        product = inverse @ x
        inverse -= np.outer(product, product) / (1.0 + x @ product)
        moment += reward * x
        total += reward
    return float(total)


def lock_step(seed: int, rounds: int, *, worlds: int, arms: int, dimension: int) -> float:
    """Many worlds at once, each NumPy call over all of them. Returns the mean total reward."""
    rng = np.random.default_rng(seed)
    truth = rng.random((worlds, dimension, 1))
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    scale = 1.0 / np.sqrt(dimension)
    each = np.arange(worlds)
    inverse = np.tile(np.eye(dimension), (worlds, 1, 1))
    moment, total = np.zeros((worlds, dimension, 1)), np.zeros(worlds)
    for _ in range(rounds):
        contexts = rng.random((worlds, arms, dimension)) * scale
        widths = np.sqrt(((contexts @ inverse) * contexts).sum(axis=2))
        actions = np.argmax((contexts @ (inverse @ moment))[..., 0] + widths, axis=1)
        x = contexts[each, actions][:, :, None]
        reward = (x * truth).sum(axis=(1, 2)) + 0.1 * rng.standard_normal(worlds)
        product = inverse @ x
        inverse -= product * (product / (1.0 + (x * product).sum(axis=1, keepdims=True))).transpose(0, 2, 1)
        moment += reward[:, None, None] * x
        total += reward
    return float(total.mean())
