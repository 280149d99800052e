"""The built-in systems against independent derivations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nestbed as nb

NAMES = ["linear_pendulum", "nonlinear_pendulum", "cart_pole", "double_link"]


def rod(q, dq, theta, g=9.81):
    """A uniform rod hung at one end: inertia ml²/3, centre of mass at l/2."""
    mass, length = theta
    return mass * length**2 / 3 * dq[0] ** 2 / 2 + mass * g * length / 2 * jnp.cos(q[0])


def cart(q, dq, theta, g=9.81):
    length, pole, cart = theta
    tip = jnp.array([dq[0] + length * dq[1] * jnp.cos(q[1]), length * dq[1] * jnp.sin(q[1])])
    return cart * dq[0] ** 2 / 2 + pole * tip @ tip / 2 + pole * g * length * jnp.cos(q[1])


def links(q, dq, theta, g=9.81):
    m1, m2, l1, l2 = theta
    a, b = q[0], q[0] + q[1]
    da, db = dq[0], dq[0] + dq[1]
    v1 = l1 * da * jnp.array([jnp.cos(a), jnp.sin(a)])
    v2 = v1 + l2 * db * jnp.array([jnp.cos(b), jnp.sin(b)])
    height = (m1 + m2) * l1 * jnp.cos(a) + m2 * l2 * jnp.cos(b)
    return m1 * v1 @ v1 / 2 + m2 * v2 @ v2 / 2 + g * height


def euler_lagrange(lagrangian, q, dq, theta, force):
    """Return the accelerations that a Lagrangian and generalised forces imply."""
    mass = jax.hessian(lagrangian, 1)(q, dq, theta)
    mixed = jax.jacfwd(jax.grad(lagrangian, 1), 0)(q, dq, theta)
    return jnp.linalg.solve(mass, jax.grad(lagrangian, 0)(q, dq, theta) - mixed @ dq + force)


def cases():
    rng = np.random.default_rng(0)
    for _ in range(20):
        yield jnp.array(rng.normal(size=2)), jnp.array(rng.normal(size=2)), jnp.array(rng.normal(size=2)), rng


def drift(system, x, u, theta):
    return jnp.array(system.rates(tuple(x), tuple(u), tuple(theta)))


def test_nonlinear_pendulum_follows_from_its_lagrangian():
    system = nb.systems.load("nonlinear_pendulum")
    for q, dq, u, rng in cases():
        theta = jnp.array(rng.lognormal(0, 0.3, 2))
        force = u[:1] - 0.1 * dq[:1]
        expected = euler_lagrange(rod, q[:1], dq[:1], theta, force)
        got = drift(system, (q[0], dq[0]), u[:1], theta)
        np.testing.assert_allclose(got, [dq[0], expected[0]], rtol=1e-11)


def test_linear_pendulum_is_the_nonlinear_one_in_lumped_parameters():
    linear, nonlinear = nb.systems.load("linear_pendulum"), nb.systems.load("nonlinear_pendulum")
    for q, dq, u, rng in cases():
        mass, length = rng.lognormal(0, 0.3, 2)
        lumped = 1.5 * 9.81 / length, 3 * 0.1 / (mass * length**2), 3 / (mass * length**2)
        x = q[0], dq[0]
        np.testing.assert_allclose(
            drift(linear, x, u[:1], lumped), drift(nonlinear, x, u[:1], (mass, length)), rtol=1e-12
        )


def test_cart_pole_follows_from_its_lagrangian_without_springs():
    system = nb.systems.CartPole(stiffness=0.0, damping=0.0, hinge_stiffness=0.0, hinge_damping=0.0)
    for q, dq, u, rng in cases():
        theta = jnp.array(rng.lognormal(0, 0.3, 3))
        expected = euler_lagrange(cart, q, dq, theta, jnp.array([u[0], 0.0]))
        np.testing.assert_allclose(drift(system, (*q, *dq), u[:1], theta)[2:], expected, rtol=1e-10)


def test_cart_pole_springs_are_the_published_ones():
    system, bare = (
        nb.systems.load("cart_pole"),
        nb.systems.CartPole(stiffness=0.0, damping=0.0, hinge_stiffness=0.0, hinge_damping=0.0),
    )
    for q, dq, u, rng in cases():
        theta = rng.lognormal(0, 0.3, 3)
        length, pole, mass = theta
        x = (*q, *dq)
        inertia = mass + pole * np.sin(q[1]) ** 2
        track, hinge = 0.01 * (q[0] + dq[0]), 0.01 * (q[1] + dq[1])
        force = -(track + hinge * np.cos(q[1]) / length) / inertia
        torque = -(track * np.cos(q[1]) + hinge * np.cos(q[1]) ** 2 / length) / (length * inertia)
        extra = drift(system, x, u[:1], theta) - drift(bare, x, u[:1], theta)
        np.testing.assert_allclose(extra, [0, 0, force, torque], atol=1e-12)


def test_double_link_follows_from_its_lagrangian():
    system = nb.systems.load("double_link")
    for q, dq, u, rng in cases():
        theta = jnp.array(rng.lognormal(0, 0.3, 4))
        expected = euler_lagrange(links, q, dq, theta, u - 0.1 * dq)
        np.testing.assert_allclose(drift(system, (*q, *dq), u, theta)[2:], expected, rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_drift_flips_sign_with_its_arguments(name):
    system = nb.systems.load(name)
    for q, dq, u, rng in cases():
        x = (*q, *dq)[: len(system.state_names)]
        u = u[: len(system.design_names)]
        theta = rng.lognormal(0, 0.3, len(system.parameter_names))
        flipped = drift(system, [-v for v in x], -u, theta)
        np.testing.assert_allclose(flipped, -drift(system, x, u, theta), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_small_steps_reach_what_an_ode_solver_reaches(name):
    system = nb.systems.load(name).replace(step=2e-5)
    theta = tuple(float(v) for v in 1.0 + 0.1 * np.arange(len(system.parameter_names)))
    u = tuple(0.5 * high for high in system.designs.high)
    start = jnp.linspace(0.3, -0.2, len(system.state_names))
    advance = jax.jit(
        lambda x: jax.lax.fori_loop(0, 10_000, lambda _, x: jnp.stack(system.mean(tuple(x), u, theta)), x)
    )
    solution = solve_ivp(lambda _, x: np.array(drift(system, x, u, theta)), (0, 0.2), start, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(advance(start), solution.y[:, -1], atol=2e-4)


def test_settings_are_those_of_the_paper():
    rows = {
        "linear_pendulum": (256, 128, 1.0, 0.1, 3, 1e-3, 25),
        "nonlinear_pendulum": (256, 128, 1.0, 0.2, 3, 1e-3, 25),
        "cart_pole": (256, 1024, 0.25, 0.1, 3, 5e-4, 15),
        "double_link": (256, 128, 0.25, 0.1, 3, 5e-4, 25),
    }
    for name, row in rows.items():
        d = nb.systems.load(name).defaults
        assert (d.trajectories, d.particles, d.eta, d.slew_penalty, d.moves, d.learning_rate, d.iterations) == row
        assert d.horizon == 50


def test_noise_is_the_diffusion_and_the_floor():
    variances = nb.systems.load("cart_pole").variance((), (), ())
    np.testing.assert_allclose(variances, [1e-8, 1e-8, 5e-4 + 1e-8, 1e-8], rtol=1e-12)


def test_every_name_has_a_unit():
    for name in NAMES:
        system = nb.systems.load(name)
        assert set(system.units) == {"time", *system.state_names, *system.design_names, *system.parameter_names}
