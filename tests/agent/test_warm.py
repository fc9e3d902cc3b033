"""What `warm` compiles, counted in a process of its own: here other tests have compiled much already."""

from __future__ import annotations

import subprocess
import sys

import pytest

CALLS = """
import gc
from itertools import product

import numpy as np
from numba.core.registry import CPUDispatcher as Dispatcher

import fedfairx as ffx
from fedfairx.agent.warm import warm
from fedfairx.privacy import SimulatedNoise, private

rng = np.random.default_rng(0)


def agent(named, secret):
    noise = SimulatedNoise(1)
    noisy = private(3, epsilon=1.0, releases=8, noise=noise, intercept=True) if secret else None
    return ffx.Agent(3, privatizer=noisy, seed=0)


def compiled():
    return {
        (made.py_func.__qualname__, str(signature))
        for made in gc.get_objects()
        if type(made) is Dispatcher
        for signature in made.signatures
    }


for named, secret in product((False, True), repeat=2):
    one, other = agent(named, secret), agent(named, secret)
    warm(one)
    before = compiled()
    assert before
    for number in range(4):
        arms, names = rng.uniform(size=(5, 4, 3)), ["ann", "ben", "cid", "dan"] if named else None
        for slots in (1,) if secret else (1, 2):
            together = one.decide_many(arms, slots=slots, names=[names] * 5)
            for made in one.decide(arms[0], slots=slots, names=names), *together:
                one.observe(made, rewards=[0.5] * slots)
        one.absorb({one.name: one.release(), other.name: other.release()})
    for late in sorted(compiled() - before):
        print(named, secret, late)
"""


@pytest.mark.process
@pytest.mark.long
def test_nothing_is_left_to_compile_for_the_first_request():
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
