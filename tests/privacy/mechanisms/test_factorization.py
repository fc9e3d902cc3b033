"""Every factorisation against explicit matrices: A = BC, norms, streams, whole samples."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.privacy.mechanisms.blt import Blt, blt_for
from fedfairx.privacy.mechanisms.factorization import Factor, Tree

MAKERS = {"tree": Tree, "blt": blt_for}
SIZES = [1, 2, 3, 4, 5, 7, 8, 13, 31, 32, 33, 100]


def literal_b_and_c(name: str, releases: int) -> tuple[np.ndarray, np.ndarray]:
    """B and C written down from their definitions, slowly."""
    ones = np.tril(np.ones((releases, releases)))
    if name == "tree":
        c = np.zeros((releases, releases))
        b = np.zeros((releases, releases))
        for t in range(1, releases + 1):
            c[t - 1, t - (t & -t) : t] = 1.0  # the node that ends at t and is as long as t's lowest bit
            rest = t
            while rest:
                b[t - 1, rest - 1] = 1.0
                rest -= rest & -rest
        return b, c
    factor = blt_for(releases)
    omega, theta = np.array(factor.omega), 1.0 - np.array(factor.gap)
    coefficients = [1.0] + [float(omega @ theta ** (i - 1)) for i in range(1, releases)]
    c = sum(
        (np.diag(np.full(releases - k, coefficients[k]), -k) for k in range(releases)), np.zeros_like(ones)
    )
    return ones @ np.linalg.inv(c), c


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("releases", SIZES)
def test_b_times_c_is_the_prefix_sum_and_the_norms_are_theirs(name: str, releases: int) -> None:
    b, c = literal_b_and_c(name, releases)
    np.testing.assert_allclose(b @ c, np.tril(np.ones((releases, releases))), atol=1e-10)
    factor: Factor = MAKERS[name](releases)
    assert factor.column_norm == pytest.approx(np.linalg.norm(c, axis=0).max(), rel=1e-10)
    np.testing.assert_allclose(
        factor.row_norm(np.arange(1, releases + 1)), np.linalg.norm(b, axis=1), rtol=1e-9
    )


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("releases", SIZES)
def test_stream_and_sample_are_the_same_b(name: str, releases: int) -> None:
    """Unit impulses through `memory` and `correlate` are the columns of B; `decorrelate` undoes them."""
    b, _ = literal_b_and_c(name, releases)
    factor: Factor = MAKERS[name](releases)
    memory = factor.memory(releases)
    rows = []
    for unit in np.eye(releases):
        memory.absorb(unit)
        rows.append(memory.output())
    np.testing.assert_allclose(rows, b, atol=1e-10)
    np.testing.assert_allclose(factor.correlate(np.eye(releases)), b, atol=1e-10)
    np.testing.assert_allclose(factor.decorrelate(b), np.eye(releases), atol=1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_decorrelate_takes_a_prefix_of_any_shape(name: str) -> None:
    factor: Factor = MAKERS[name](100)
    base = np.random.default_rng(0).normal(size=(100, 6))
    noise = factor.correlate(base.copy())[:40].reshape(40, 2, 3)
    np.testing.assert_allclose(factor.decorrelate(noise).reshape(40, 6), base[:40], atol=1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_correlate_takes_a_prefix(name: str) -> None:
    factor: Factor = MAKERS[name](100)
    base = np.random.default_rng(0).normal(size=(100, 6))
    whole = factor.correlate(base.copy())
    np.testing.assert_allclose(factor.correlate(base[:40].copy()), whole[:40], atol=1e-10)


def test_correlate_works_in_blocks_of_columns() -> None:
    """More columns than one cache block."""
    base = np.random.default_rng(1).normal(size=(300, 1300))
    for maker in MAKERS.values():
        factor: Factor = maker(300)
        whole = factor.correlate(base.copy())
        np.testing.assert_allclose(whole[:, 700:703], factor.correlate(base[:, 700:703].copy()), atol=1e-10)


@pytest.mark.parametrize(("name", "kept", "vectors"), [("tree", "_nodes", 15), ("blt", "_buffers", 6)])
def test_memory_does_not_grow_with_the_releases(name: str, kept: str, vectors: int) -> None:
    factor: Factor = MAKERS[name](20_000)
    memory = factor.memory(1)
    most = 0
    for _ in range(20_000):
        memory.absorb(np.ones(1))
        most = max(most, len(getattr(memory, kept)))
    assert most <= vectors


def test_leaf_one_lies_in_every_level_of_the_tree() -> None:
    for releases in SIZES:
        _, c = literal_b_and_c("tree", releases)
        counts = c.sum(axis=0)
        assert counts[0] == counts.max() == Tree(releases).levels == 1 + int(np.log2(releases))


def test_blt_in_plain_python_is_the_compiled_one() -> None:
    """The kernels without compilation, so that coverage and NUMBA_DISABLE_JIT see the same code."""
    from fedfairx.privacy.mechanisms import blt

    factor = blt_for(50)
    base = np.random.default_rng(2).normal(size=(50, 3))
    compiled = factor.correlate(base.copy())
    gains, gaps = factor._poles
    plain = base.copy()
    blt._filter_rows(plain, gains, 1.0 - gaps)
    np.testing.assert_allclose(plain, compiled, rtol=1e-12)
    back = np.diff(compiled, axis=0, prepend=0.0)
    blt._unfilter_rows(back, np.array(factor.omega), 1.0 - np.array(factor.gap))
    np.testing.assert_allclose(back, base, atol=1e-10)


@pytest.mark.parametrize(
    ("omega", "gap"), [((0.5,), (0.2, 0.3)), ((-0.5,), (0.2,)), ((0.5,), (1.5,)), ((5.0,), (0.5,)), ((), ())]
)
def test_blt_refuses_parameters_it_can_not_use(omega, gap) -> None:
    from fedfairx.errors import InvalidInput

    with pytest.raises(InvalidInput):
        Blt(10, omega, gap)
