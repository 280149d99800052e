"""One step in time, against matrix exponentials and fine integration: the mean, the noise, and their densities."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, linalg, stats

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.model import integration, predictive
from nestbed.numerics import matrices

KEY = jax.random.key(0)


class Motor(nb.System):
    """A DC motor whose current settles in a millisecond, sampled every ten."""

    state = ("current", "speed")
    designs = nb.Box(voltage=(-12.0, 12.0))
    prior = {"resistance": dist.LogNormal(0.0, 0.1), "inductance": dist.LogNormal(np.log(1e-3), 0.1)}
    step, diffusion = 0.01, (0.5, 2.0)
    torque_constant, inertia, friction = 0.05, 2e-4, 1e-4

    def drift(self, x, u, theta):
        current = (u.voltage - theta.resistance * x.current - self.torque_constant * x.speed) / theta.inductance
        return current, (self.torque_constant * x.current - self.friction * x.speed) / self.inertia

    def jacobian(self, resistance, inductance):
        return np.array(
            [
                [-resistance / inductance, -self.torque_constant / inductance],
                [self.torque_constant / self.inertia, -self.friction / self.inertia],
            ]
        )


class Chain(nb.System):
    """Compartments that empty into each other, the last ones fast."""

    state = tuple("abcde")
    designs = nb.Box(inflow=(0.0, 1.0))
    prior = {"rate": dist.LogNormal(0.0, 0.1)}
    step, diffusion = 1.0, (0.1,) * 5
    integrator = "exponential"

    def drift(self, x, u, theta):
        before = (u.inflow, *x[:-1])
        return tuple(theta.rate * 2.0**i * (before[i] - x[i]) for i in range(5))


class Bend(nb.System):
    """A cubic drift, neither linear nor stiff."""

    state = ("x", "v")
    designs = nb.Box(force=(-1.0, 1.0))
    prior = {"stiffness": dist.LogNormal(0.0, 0.1)}
    step, diffusion = 0.4, (0.1, 0.1)

    def drift(self, x, u, theta):
        return x.v, u.force - theta.stiffness * x.x**3 - 0.3 * x.v


def van_loan(jacobian, diffusion, step):
    """Return ∫ e^{Js} diag(diffusion²) e^{Jᵀs} ds, by one matrix exponential of twice the size."""
    size = len(jacobian)
    block = np.block([[-jacobian, np.diag(np.square(diffusion))], [np.zeros((size, size)), jacobian.T]])
    whole = linalg.expm(block * step)
    return whole[size:, size:].T @ whole[:size, size:]


def covariance(noise):
    size = len(noise.variance)
    lower = np.eye(size)
    for i, row in enumerate(noise.coupling):
        lower[i, :i] = [float(np.ravel(value)[0]) for value in row]
    return lower @ np.diag([float(np.ravel(v)[0]) for v in noise.variance]) @ lower.T


def test_the_exponential_step_of_a_linear_drift_is_exact():
    motor = Motor()
    assert integration.scheme(motor).integrator == "exponential"
    x, u, theta = (1.3, -20.0), (7.0,), (1.1, 1.2e-3)
    jacobian = motor.jacobian(*theta)
    settled = -np.linalg.solve(jacobian, [u[0] / theta[1], 0.0])
    truth = settled + linalg.expm(jacobian * motor.step) @ (np.array(x) - settled)
    np.testing.assert_allclose(motor.mean(x, u, theta), truth, rtol=1e-5)


def test_more_states_take_the_same_step_by_arrays():
    chain = Chain()
    assert len(chain.state) > integration.FEW
    x, theta = np.linspace(1.0, -1.0, 5), 1.2
    jacobian = np.diag(-theta * 2.0 ** np.arange(5)) + np.diag(theta * 2.0 ** np.arange(1, 5), -1)
    drift = np.array(chain.rates(tuple(x), (0.7,), (theta,)))
    truth = x + np.linalg.solve(jacobian, (linalg.expm(jacobian) - np.eye(5)) @ drift)
    np.testing.assert_allclose(chain.mean(tuple(x), (0.7,), (theta,)), truth, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("system", "off"),
    [
        (Motor(), 1e-4),
        (Chain(), 1e-4),
        (Motor(integrator="exponential", substeps=3), 1e-4),
        (Chain(integrator="rk4", step=0.2), 0.02),
    ],
)
def test_noise_is_carried_along_the_drift(system, off):
    middle = tuple(float(value) for value in system.parameters.middle)
    size = len(system.state)
    zeros = (0.0,) * size
    jacobian = np.stack(
        jax.jacobian(lambda *x: jnp.stack(system.rates(x, (0.0,), middle)), argnums=range(size))(*zeros)
    ).T
    truth = van_loan(jacobian, system.diffusion, system.step) + system.noise_floor * np.eye(size)
    found = covariance(integration.noise(system, zeros, (0.0,), middle))
    np.testing.assert_allclose(found, truth, rtol=off, atol=off * np.diag(truth).max())
    assert not np.allclose(np.diag(truth), np.square(system.diffusion) * system.step, rtol=0.5)  # one Euler step's


def test_runge_kutta_follows_a_nonlinear_drift():
    system = Bend()
    x, u, theta = (1.5, -0.7), (0.4,), (1.3,)
    rates = lambda _, x: np.array(system.rates(tuple(x), u, theta))  # noqa: E731
    truth = integrate.solve_ivp(rates, (0.0, system.step), x, rtol=1e-10, atol=1e-12).y[:, -1]
    four, eight = (np.array(Bend(integrator="rk4", substeps=n).mean(x, u, theta)) for n in (4, 8))
    np.testing.assert_allclose(eight, truth, atol=1e-5)
    assert np.abs(eight - truth).max() < 0.1 * np.abs(four - truth).max()  # of fourth order
    euler = np.array(Bend(integrator="euler").mean(x, u, theta))
    assert np.abs(euler - truth).max() > 0.05


def test_outcomes_have_the_density_that_they_are_scored_with():
    """The log-density is that of a multivariate normal, and drawn outcomes have its mean and covariance."""
    motor = Motor()
    likelihood = likelihoods.of(motor)
    x, u, theta = (1.0, 30.0), (5.0,), (0.9, 1.1e-3)
    now, design, parameters = (tuple(jnp.full((1, 1), value) for value in values) for values in (x, u, theta))
    mean = np.array(motor.mean(x, u, theta))
    spread = covariance(integration.noise(motor, x, u, theta))
    y = mean + np.array([0.01, -0.2])
    _, found = likelihood.advance(now, design, tuple(jnp.full((1, 1), value) for value in y), parameters)
    truth = stats.multivariate_normal(mean, spread).logpdf(y)
    np.testing.assert_allclose(float(found[0, 0]), truth, rtol=1e-6)
    count = 40_000
    normals = jax.random.normal(KEY, (2, count))
    drawn = np.concatenate(likelihood.sample(tuple(normals[:, None]), now, design, parameters))
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=5.0 * np.sqrt(np.diag(spread) / count).max())
    np.testing.assert_allclose(np.cov(drawn), spread, atol=5.0 * np.sqrt(2.0 / count) * np.diag(spread).max())


def test_information_counts_what_noise_shares_between_states():
    """Against −∂² log p of the exact Gaussian, whose covariance is the same for all parameters."""
    motor = Motor()
    likelihood = likelihoods.of(motor)
    from nestbed.likelihood import sensitivity

    theta = tuple(jnp.full((1, 1), value) for value in (1.0, 1e-3))
    y = motor.mean((0.0, 0.0), (6.0,), (1.0, 1e-3))
    record = nb.Record(jnp.array([[[0.0, 0.0], [float(y[0]), float(y[1])]]]), jnp.array([[[6.0]]]))
    slopes = tuple(jnp.ones((1, 1)) for _ in theta)
    found = sensitivity.of_histories(likelihood, record, jnp.asarray(1), theta, slopes).information[0]
    inverse = np.linalg.inv(covariance(integration.noise(motor, (0.0, 0.0), (6.0,), (1.0, 1e-3))))
    jacobian = np.array(
        jax.jacobian(lambda p: jnp.stack(motor.mean((0.0, 0.0), (6.0,), tuple(p))))(jnp.array([1.0, 1e-3]))
    )
    np.testing.assert_allclose(found, jacobian.T @ inverse @ jacobian, rtol=1e-5)


def test_a_system_takes_euler_steps_only_where_they_follow_its_drift():
    assert integration.scheme(Bend(step=0.02)).integrator == "euler"
    assert integration.scheme(Bend(step=0.5)).integrator == "rk4"
    assert integration.scheme(Motor()).integrator == "exponential"
    assert integration.scheme(Motor(step=2e-3))[:2] == ("rk4", 4)
    assert integration.scheme(Motor(step=1e-5)).integrator == "euler"
    assert Bend(step=0.02).constant_noise
    assert not Motor().constant_noise


class Stuck(nb.System):
    """Dry friction, smooth within a small speed, where the drift's linear part does not reach far."""

    state = ("speed",)
    designs = nb.Box(push=(-2.0, 2.0))
    prior = {"dry": dist.LogNormal(0.0, 0.2)}
    step, diffusion = 0.1, (0.1,)

    def drift(self, x, u, theta):
        return u.push - theta.dry * jnp.tanh(x.speed / 0.008)


def test_a_step_is_made_in_parts_where_the_drift_bends_within_it():
    system = Stuck()
    found = integration.scheme(system)
    assert found.integrator == "exponential"
    assert found.substeps > 1
    seen = predictive.visited(system)
    rough, fine = (
        np.asarray(integration._moved(system, how, seen.x, seen.u, seen.theta, system.step)[0])
        + seen.x[0]
        - seen.fine[0]
        for how in (integration._with_doublings(system, "exponential", 1), found)
    )
    assert np.quantile(np.abs(fine), 0.9) < 0.3 * np.quantile(np.abs(rough), 0.9)


def test_the_stiff_motor_is_certified_with_no_word_from_its_user():
    motor = Motor(diffusion=(5.0, 20.0))
    found = nb.certificate(KEY, motor, nb.policies.PRBS(motor), horizon=10, records=64)
    assert found.upper - found.lower < 0.02
    assert 1.0 < found.mean < 20.0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"integrator": "rk5"}, "integrator is 'rk5'; did you mean 'rk4'"),
        ({"substeps": 0}, "substeps is 0, but it must be a whole number"),
    ],
)
def test_mistakes_get_a_sentence(settings, told):
    with pytest.raises(nb.NestbedError, match=told):
        Motor(**settings)


def test_products_of_rows_and_of_arrays_are_alike():
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 3, 3, 5))
    vector = tuple(random.standard_normal((3, 5)))
    rows = [tuple(tuple(row) for row in matrix) for matrix in (a, b)]
    truth = np.einsum("ikn,kjn->ijn", a, b)
    np.testing.assert_allclose(np.array(matrices.product(*rows)), truth, rtol=1e-12)
    np.testing.assert_allclose(matrices.product(jnp.asarray(a), jnp.asarray(b)), truth, rtol=1e-12)
    applied = np.einsum("ikn,kn->in", a, np.array(vector))
    for matrix in (rows[0], jnp.asarray(a)):
        np.testing.assert_allclose(np.array(matrices.applied(matrix, vector)), applied, rtol=1e-12)
        np.testing.assert_allclose(
            np.array(matrices.plus_identity(matrix, 2.0)), np.eye(3)[:, :, None] + 2.0 * a, rtol=1e-12
        )
