"""Programs that are told how to run give what they gave before, with less work."""

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.numerics import kernels

X = jnp.linspace(0.1, 0.9, 24).reshape(4, 6)


def several(x, prepare=lambda values: values):
    """Return what needs one value in three places."""
    shared, number = prepare((jnp.cos(x * x) + 1.0, 2.0))
    return shared * x, jnp.sqrt(shared) * number, shared - x


def step(_, state):
    """Return what follows, with all kinds of control in it."""
    x, total = state
    moved = jnp.where(x > 0.5, jnp.sin(x), jnp.exp(-x))
    inner, _ = jax.lax.scan(lambda c, a: (c + 0.1 * jnp.cos(a), None), moved[0], moved)
    x = jax.lax.cond(inner[0] > 1.0, lambda y: 0.5 * y, lambda y: jnp.log1p(y), moved + inner)
    return x, total + jnp.log(x)[0, 0]


def plain(x, turns=7):
    return jax.lax.fori_loop(0, turns, step, (x, jnp.zeros(())))


def told(x, turns=7):
    return jax.lax.fori_loop(0, turns, kernels.faster(step), (x, jnp.zeros(())))


def same(a, b):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def text(function):
    return jax.jit(function).lower(X).compile().as_text()


def test_a_value_that_several_results_need_is_computed_once():
    plain, told = text(several), text(lambda x: several(x, kernels.once))
    assert plain.count(" cosine(") == 3  # else there is no need for it
    assert told.count(" cosine(") == 1
    for a, b in zip(several(X), several(X, kernels.once), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)


def test_numbers_stay_numbers():
    assert kernels.once((0.0, 1, X))[:2] == (0.0, 1)
    assert kernels.once(()) == ()


def test_faster_functions_are_found_within_loops():
    assert " cosine(" in text(plain)
    assert " cosine(" not in text(kernels.faster(plain))
    same(plain(X), kernels.faster(plain)(X))


def test_single_precision_is_left_alone():
    assert " cosine(" in text(kernels.faster(lambda x: jnp.cos(x.astype(jnp.float32))))


def test_slopes_and_batches():
    same(jax.jvp(plain, (X,), (X,))[1], jax.jit(lambda x: jax.jvp(told, (x,), (x,))[1])(X))
    same(jax.vmap(plain)(X[None]), jax.vmap(told)(X[None]))
    plain_sum, told_sum = (
        (lambda x: jnp.sum(jnp.sin(x) * jnp.exp(x))),
        kernels.faster(lambda x: jnp.sum(jnp.sin(x) * jnp.exp(x))),
    )
    np.testing.assert_allclose(jax.grad(told_sum)(X), jax.grad(plain_sum)(X), rtol=1e-14)


def test_nothing_is_told_elsewhere_than_on_cpus(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    found = text(lambda x: told(x)) + text(lambda x: several(x, kernels.once))
    assert "inlineable" not in found
    assert found.count(" cosine(") >= 4


def test_functions_that_index_interpolate_and_solve_run_as_they_are():
    """Their equations have parameters with names, which must stay what they are."""

    def drift(x):
        table = jnp.array([0.0, 1.0, 4.0])
        matrix = jnp.stack([jnp.stack([2.0 + x, x]), jnp.stack([0.0 * x, 1.0 + jnp.exp(x)])])
        solved = jnp.linalg.solve(matrix, jnp.stack([jnp.sin(x), jnp.cos(x)]))
        return jnp.interp(x, jnp.arange(3.0), table) + jnp.zeros(2).at[0].set(x).sum() + table[1] + solved.sum()

    x = jnp.asarray(0.7)
    np.testing.assert_allclose(kernels.faster(drift)(x), drift(x), rtol=1e-14)
    np.testing.assert_allclose(jax.grad(kernels.faster(drift))(x), jax.grad(drift)(x), rtol=1e-13)
