"""Beliefs against closed forms, quadrature and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.belief import IBIS, Exact, metropolis
from nestbed.belief.base import Evidence
from nestbed.likelihood import history
from nestbed.likelihood.base import Record, components
from nestbed.model.prior import Prior
from nestbed.numerics.errors import NestbedError, NonFiniteError
from toys import Leak

# records drawn from the whole prior may well use up a few particles
pytestmark = pytest.mark.filterwarnings("ignore:experiment . left one particle")

LINEAR = nb.systems.load("linear_pendulum")
MEAN, COVARIANCE = np.array([14.7, 0.0, 3.0]), np.diag([0.1, 0.01, 0.1])


@pytest.fixture(scope="module")
def records():
    """Four PRBS records of the linear pendulum, 30 experiments each."""
    result = nb.sweep(
        jax.random.key(0), LINEAR, nb.policies.PRBS(LINEAR), horizon=30, trajectories=4, eta=0.0, belief="exact"
    )
    return np.asarray(result.observations), np.asarray(result.designs)


def regression(states, designs):
    """Return offset-free outcomes, features and noise of a whole record: y = H θ + e, e ~ N(0, R)."""
    q, dq, u = states[:-1, 0], states[:-1, 1], designs[:, 0]
    outcomes = np.stack([states[1:, 0] - q - 0.05 * dq, states[1:, 1] - dq], -1).ravel()
    rows = 0.05 * np.stack([-np.sin(q), -dq, u], -1)
    features = np.stack([np.zeros_like(rows), rows], 1).reshape(-1, 3)
    noise = np.tile([1e-8, 0.1**2 * 0.05 + 1e-8], len(u))
    return outcomes, features, noise


def test_exact_belief_is_the_batch_regression(records):
    states, designs = records
    got = nb.posterior(jax.random.key(0), LINEAR, states, designs, belief="exact")
    for n in range(len(states)):
        y, H, R = regression(states[n], designs[n])
        precision = np.linalg.inv(COVARIANCE) + H.T @ (H / R[:, None])
        covariance = np.linalg.inv(precision)
        mean = covariance @ (np.linalg.solve(COVARIANCE, MEAN) + H.T @ (y / R))
        np.testing.assert_allclose(got.mean[n], mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(got.covariance[n], covariance, rtol=1e-8, atol=1e-10)


def test_exact_predictive_is_the_joint_normal(records):
    states, designs = records
    got = nb.posterior(jax.random.key(0), LINEAR, states, designs, belief="exact")
    for n in range(len(states)):
        y, H, R = regression(states[n], designs[n])
        joint = stats.multivariate_normal(H @ MEAN, H @ COVARIANCE @ H.T + np.diag(R)).logpdf(y)
        assert float(got.log_predictive[n].sum()) == pytest.approx(joint, abs=1e-8 * abs(joint))


def test_exact_gain_and_predictive_match_integration_over_the_parameters(records):
    """Gauss–Hermite quadrature over θ in all three dimensions, for several single steps."""
    states, designs = records
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    mass = (
        np.prod(np.stack(np.meshgrid(*[node_weights] * 3, indexing="ij"), -1).reshape(-1, 3), -1) / (2 * np.pi) ** 1.5
    )
    theta = MEAN + grid * np.sqrt(np.diag(COVARIANCE))
    for t in (0, 7, 22):
        x, x_next, u = states[0, t : t + 2], states[0, t + 1], designs[0, t : t + 1]
        record = np.stack([x[0], x_next])
        got = nb.posterior(jax.random.key(0), LINEAR, record, u, belief="exact")
        rates = np.stack([np.full(len(theta), x[0, 1]), theta @ [-np.sin(x[0, 0]), -x[0, 1], u[0, 0]]], -1)
        density = stats.norm(x[0] + 0.05 * rates, np.sqrt([1e-8, 5e-4 + 1e-8])).logpdf(x_next).sum(-1)
        top = density.max()
        likelihood = mass * np.exp(density - top)
        log_predictive = top + np.log(likelihood.sum())
        expected = (likelihood * density).sum() / likelihood.sum()
        assert float(got.log_predictive[0]) == pytest.approx(log_predictive, abs=1e-8)
        assert float(got.gains[0]) == pytest.approx(expected - log_predictive, abs=1e-8)


def test_exact_gains_add_up_to_the_entropy_lost_on_average():
    """Mean over 4000 records of Σ r against ½ log det(P₀ P_T⁻¹); z below 4.5, false alarm 7e-6."""
    result = nb.sweep(jax.random.key(3), LINEAR, nb.policies.PRBS(LINEAR), trajectories=4000, eta=0.0, belief="exact")
    lost = 0.5 * (np.linalg.slogdet(COVARIANCE)[1] - np.linalg.slogdet(result.belief.covariance)[1])
    difference = np.asarray(result.gains).sum(1) - lost
    assert abs(difference.mean()) < 4.5 * difference.std(ddof=1) / np.sqrt(4000)
    assert lost.mean() == pytest.approx(2.28, abs=0.03)  # the closed-form gain of PRBS after 50 experiments


def check_ibis_against_exact(make, states, designs):
    """IBIS runs of many keys against the exact belief: z below 5 in every quantity (false alarm 1e-5)."""
    runs, size = 32, 2048
    exact = nb.posterior(jax.random.key(0), LINEAR, states, designs, belief="exact")
    tiled = np.tile(states, (runs, 1, 1)), np.tile(designs, (runs, 1, 1))
    got = nb.posterior(jax.random.key(1), LINEAR, *tiled, belief=make(LINEAR, size, 3))
    pairs = {
        "mean": (got.mean, exact.mean[0]),
        "covariance": (got.covariance, exact.covariance[0]),
        "predictive": (got.log_predictive.sum(1), exact.log_predictive[0].sum()),
        "gain": (got.gains.sum(1), exact.gains[0].sum()),
    }
    for name, (values, wanted) in pairs.items():
        values = np.asarray(values)
        error = values.std(0, ddof=1) / np.sqrt(runs)  # the bias, about 5 / M, is below it
        assert (np.abs(values.mean(0) - np.asarray(wanted)) < 5 * error).all(), name


class WrongTime(IBIS):
    """A mutant: the second term of the gain under the belief after the outcome."""

    def update(self, state, u, y):
        updated, evidence = super().update(state, u, y)
        _, after = super().update(updated._replace(carry=state.carry), u, y)
        late = evidence.divergence + evidence.log_predictive - after.log_predictive
        return updated, Evidence(late, after.log_predictive, evidence.most)


def test_ibis_agrees_with_the_exact_belief(records):
    check_ibis_against_exact(IBIS, records[0][:1], records[1][:1])


def test_mutant_gain_from_the_wrong_time_is_caught(records):
    with pytest.raises((AssertionError, NonFiniteError), match=r"predictive|which no outcome of the model has"):
        check_ibis_against_exact(WrongTime, records[0][:1], records[1][:1])


# A wide log-normal prior, where walking in the wrong coordinates shows.


def leak_record(key, theta=1.3, horizon=4):
    system = Leak()
    x, states = 1.0, [1.0]
    noise = np.asarray(jax.random.normal(key, (horizon,)))
    designs = np.resize([1.0, -1.0], horizon)
    for t in range(horizon):
        x = x + 0.5 * (-theta * x + designs[t]) + np.sqrt(0.125) * noise[t]
        states.append(x)
    return system, np.array(states)[:, None], designs[:, None]


def quadrature_posterior(states, designs):
    """Return mean and sd of log rate by brute force on a fine grid."""
    z = np.linspace(-8, 6, 20001)
    x, y, u = states[:-1, 0], states[1:, 0], designs[:, 0]
    mean = x[:, None] + 0.5 * (-np.exp(z) * x[:, None] + u[:, None])
    logs = stats.norm(0, 0.7).logpdf(z) + stats.norm(mean, np.sqrt(0.125)).logpdf(y[:, None]).sum(0)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    centre = (weight * z).sum()
    return centre, np.sqrt((weight * (z - centre) ** 2).sum())


def check_against_quadrature(system=None):
    """Mean and sd of log rate over 64 runs of 1024 particles, z below 5 (false alarm 1e-6)."""
    made, states, designs = leak_record(jax.random.key(5))
    system = system or made
    runs = 64
    belief = IBIS(system, 1024, 10, threshold=0.99)  # nearly every step moves
    tiled = np.tile(states, (runs, 1, 1)), np.tile(designs, (runs, 1, 1))
    state = nb.posterior(jax.random.key(6), system, *tiled, belief=belief).belief
    weight, z = np.exp(np.asarray(state.log_weights)), np.asarray(state.position[0])
    centres = (weight * z).sum(1)
    widths = np.sqrt((weight * (z - centres[:, None]) ** 2).sum(1))
    for values, wanted in zip((centres, widths), quadrature_posterior(states, designs), strict=True):
        assert abs(values.mean() - wanted) < 5 * values.std(ddof=1) / np.sqrt(runs) + 2e-3


def no_jacobian(prior, position):
    pairs = zip(prior.factors, position, strict=True)
    return sum(f.distribution.log_prob(f.transforms[0](z)) for f, z in pairs)


def wrong_coordinates(prior, position):
    pairs = zip(prior.transforms, position, strict=True)
    return sum(dist.Normal(1.0, 0.7).log_prob(transform(z)) for transform, z in pairs)


def test_ibis_agrees_with_quadrature_on_a_log_normal_prior():
    check_against_quadrature()


@pytest.mark.parametrize("mutant", [no_jacobian, wrong_coordinates])
def test_mutant_priors_are_caught_by_quadrature(mutant, monkeypatch):
    monkeypatch.setattr(Prior, "log_density", mutant)
    with pytest.raises(AssertionError):
        check_against_quadrature(fresh_leak())


def fresh_leak():
    """Return a Leak of a class of its own, so that no compiled program of the right one is reused."""
    return type("Leak", (Leak,), {})()


def check_calibration(system, replications=1000):
    """Simulation-based calibration: ranks of the true rate are uniform; KS test, false alarm 1e-4."""
    keys = jax.random.split(jax.random.key(8), 3)
    position = Leak().parameters.sample(keys[0], (replications,))
    rate = np.exp(np.asarray(position[0]))
    noise = np.asarray(jax.random.normal(keys[1], (replications, 4)))
    designs = np.tile(np.array([1.0, -1.0, 1.0, -1.0]), (replications, 1))
    states = np.ones((replications, 5))
    for t in range(4):
        states[:, t + 1] = states[:, t] + 0.5 * (-rate * states[:, t] + designs[:, t]) + np.sqrt(0.125) * noise[:, t]
    belief = IBIS(system, 512, 5, threshold=0.95)
    got = nb.posterior(keys[2], system, states[:, :, None], designs[:, :, None], belief=belief).belief
    below = np.asarray(got.theta[0]) < rate[:, None]
    ranks = (np.exp(np.asarray(got.log_weights)) * below).sum(1)
    assert stats.kstest(ranks, "uniform").pvalue > 1e-4


@pytest.mark.slow
def test_ibis_is_calibrated():
    check_calibration(Leak())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:record .* the model does not explain the data")  # which may notice a mutant too
@pytest.mark.parametrize("mutant", [no_jacobian, wrong_coordinates])
def test_mutant_priors_are_not_calibrated(mutant, monkeypatch):
    monkeypatch.setattr(Prior, "log_density", mutant)
    with pytest.raises(AssertionError):
        check_calibration(fresh_leak())


# The hot loop and the bookkeeping around it.


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 20])
def test_history_likelihood_is_the_sum_of_densities(count):
    system = nb.systems.load("cart_pole")
    keys = jax.random.split(jax.random.key(2), 3)
    theta = system.parameters.constrain(system.parameters.sample(keys[0], (3, 5)))
    states, designs = jax.random.normal(keys[1], (3, 21, 4)), jax.random.normal(keys[2], (3, 20, 1))
    likelihood = likelihoods.of(system)
    last, got = history.log_likelihood(likelihood, history.tabulate(Record(states, designs)), jnp.int32(count), theta)
    wanted, carry = jnp.zeros((3, 5)), likelihood.start(components(states[:, 0]), theta)
    for t in range(count):
        carry, density = likelihood.advance(carry, components(designs[:, t]), components(states[:, t + 1]), theta)
        wanted += density
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    np.testing.assert_array_equal(last, components(states[:, count]))
    assert last[0].shape == (3, 1)  # what hangs on no parameter is not repeated for each


def test_only_degenerate_records_are_touched():
    system = Leak()
    belief = IBIS(system, 64, 3)
    state = belief.init(jax.random.key(0), jnp.ones((10, 1)))
    degenerate = jnp.array([0, 1, 0, 0, 1, 0, 0, 0, 0, 1], bool)
    logs = jnp.where(degenerate[:, None], jnp.log(jnp.arange(1.0, 65) ** 4), 0.0)
    logs = logs - jax.nn.logsumexp(logs, axis=1, keepdims=True)
    ess = 1 / jnp.exp(2 * logs).sum(1)
    state = state._replace(log_weights=logs, ess=ess)
    record = Record(jnp.ones((10, 5, 1)), jnp.ones((10, 4, 1)))
    fresh, info = belief.rejuvenate(jax.random.key(1), state, record, jnp.int32(2))
    same = np.asarray(fresh.position[0] == state.position[0]).all(1)
    np.testing.assert_array_equal(same, ~np.asarray(degenerate))
    np.testing.assert_allclose(fresh.ess[degenerate], 64)
    assert int(info.rejuvenated) == 3
    assert 0 < float(info.acceptance) / 3 < 1


def test_chunks_of_records_move_independently():
    """Twenty degenerate records, chunks of two, the last one partial: all alike before, all different after."""
    system = Leak()
    belief = IBIS(system, 64, 3)
    one = belief.init(jax.random.key(0), jnp.full((1, 1), 2.0))
    logs = jnp.log(jnp.arange(1.0, 65) ** 4)
    one = one._replace(log_weights=(logs - jax.nn.logsumexp(logs))[None], ess=jnp.full(1, 10.0))
    state = jax.tree.map(lambda leaf: jnp.repeat(leaf, 20, axis=0), one)
    state = state._replace(ess=state.ess.at[7].set(64.0))
    record = Record(jnp.ones((20, 5, 1)), jnp.ones((20, 4, 1)))
    fresh, info = belief.rejuvenate(jax.random.key(1), state, record, jnp.int32(2))
    assert int(info.rejuvenated) == 19
    assert len(np.unique(np.asarray(fresh.position[0]).mean(1))) == 20
    rows = np.asarray(fresh.position[0])
    np.testing.assert_array_equal(rows[7], state.position[0][7])
    moved = np.delete(rows, 7, axis=0)
    assert np.abs(np.corrcoef(moved - moved.mean(0))[np.triu_indices(19, 1)]).max() < 0.9


def test_acceptance_counts_only_the_trajectories_that_moved():
    """A likelihood that is flat and a walk of no length accept everything: the rate is exactly one each."""
    flat = Leak(diffusion=(1e9,))
    belief = IBIS(flat, 64, 2, walk=metropolis.Walk(scale=1e-9))
    state = belief.init(jax.random.key(0), jnp.ones((20, 1)))
    log_posterior = state.log_posterior - likelihoods.of(flat).log_normaliser  # of two experiments
    state = state._replace(ess=state.ess.at[jnp.array([3, 11, 12])].set(1.0), log_posterior=log_posterior)
    record = Record(jnp.ones((20, 5, 1)), jnp.ones((20, 4, 1)))
    _, info = belief.rejuvenate(jax.random.key(1), state, record, jnp.int32(2))
    assert float(info.acceptance) == pytest.approx(3, abs=0.02)


def test_the_one_pass_covariance_is_the_covariance():
    position = tuple(1e3 * (i + 1) + 0.01 * jax.random.normal(jax.random.key(i), (4, 500)) for i in range(3))
    got = metropolis.covariance(position, (1.0, 2.0, 0.5))
    scaled = np.stack(position, 1) / np.array([1.0, 2.0, 0.5])[:, None]
    for row in range(4):
        np.testing.assert_allclose(got[row], np.cov(scaled[row], bias=True), rtol=1e-6, atol=1e-10)


def test_particle_outcomes_follow_the_weighted_mixture():
    """20000 outcomes of one weighted belief against the mixture's mean and variance, z below 5."""
    system = Leak()
    belief = IBIS(system, 16, 1)
    one = belief.init(jax.random.key(0), jnp.full((1, 1), 2.0))
    logs = jnp.log(jnp.arange(1.0, 17))
    one = one._replace(log_weights=(logs - jax.nn.logsumexp(logs))[None])
    count = 20_000
    state = jax.tree.map(lambda leaf: jnp.repeat(leaf, count, axis=0), one)
    outcome = np.asarray(belief.sample(jax.random.key(1), state, jnp.full((count, 1), 0.3)))
    weights, rate = np.exp(np.asarray(one.log_weights[0])), np.asarray(one.theta[0][0])
    means = 2.0 + 0.5 * (-2.0 * rate + 0.3)
    mean = weights @ means
    variance = 0.125 + weights @ (means - mean) ** 2
    assert abs(outcome.mean() - mean) < 5 * np.sqrt(variance / count)
    assert abs(outcome.var() / variance - 1) < 5 * outcome.std() ** -2 * np.std((outcome - mean) ** 2) / np.sqrt(count)


@pytest.mark.filterwarnings("ignore:one step of LinearLeak")  # for most of so vague a prior it is too long
@pytest.mark.filterwarnings("ignore:.*outcomes are improbable")  # they are made up
@pytest.mark.filterwarnings("ignore:no state of LinearLeak has a diffusion")
def test_exact_covariance_survives_a_vague_prior():
    from toys import LinearLeak

    system = LinearLeak(prior={"rate": dist.Normal(1.0, 1e5)}, diffusion=(0.0,), noise_floor=1e-8)
    states, designs = np.array([[1.0], [0.6], [0.3], [0.2], [0.15]]), np.zeros((4, 1))
    got = nb.posterior(jax.random.key(0), system, states, designs, belief="exact")
    precision = 1e-10 + np.sum((0.5 * states[:-1, 0]) ** 2) / 1e-8
    assert float(got.covariance[0, 0]) == pytest.approx(1 / precision, rel=1e-6)


@pytest.mark.parametrize("kind", ["ibis", "guided"])
def test_moved_particles_carry_their_own_posterior(kind):
    """What a particle says its log-posterior is must be what a fresh computation says."""
    system, states, designs = leak_record(jax.random.key(9))
    state = nb.posterior(jax.random.key(1), system, states, designs, particles=64, belief=kind).belief
    table = history.tabulate(Record(jnp.asarray(states)[None], jnp.asarray(designs)[None]))
    position = tuple(z[None] for z in state.position)
    theta = system.parameters.constrain(position)
    _, fresh = history.log_likelihood(likelihoods.of(system), table, jnp.int32(4), theta)
    np.testing.assert_allclose(state.log_posterior, (fresh + system.parameters.log_density(position))[0], rtol=1e-10)


def test_sampled_outcomes_follow_the_predictive():
    """200000 outcomes of the exact belief against its own predictive mean and variance, z below 5."""
    belief = Exact(LINEAR)
    count = 200_000
    state = belief.init(jax.random.key(0), jnp.tile(jnp.array([0.4, -0.3]), (count, 1)))
    outcome = np.asarray(belief.sample(jax.random.key(1), state, jnp.full((count, 1), 0.7)))
    h = 0.05 * np.array([-np.sin(0.4), 0.3, 0.7])
    mean = np.array([0.4 - 0.05 * 0.3, -0.3 + h @ MEAN])
    variance = np.array([1e-8, 5e-4 + 1e-8 + h @ COVARIANCE @ h])
    assert (np.abs(outcome.mean(0) - mean) < 5 * np.sqrt(variance / count)).all()
    assert (np.abs(outcome.var(0) / variance - 1) < 5 * np.sqrt(2 / count)).all()


def test_exact_belief_needs_linearity_and_normal_priors():
    with pytest.raises(NestbedError, match="gives no features"):
        Exact(nb.systems.load("cart_pole"))
    with pytest.raises(NestbedError, match="needs Normal priors"):
        Exact(LINEAR.replace(prior={**LINEAR.prior, "drive": dist.LogNormal(1.0, 0.1)}))

    class Wrong(nb.systems.LinearPendulum):
        def features(self, x, u):
            return (0.0, 0.0, 0.0), (jnp.sin(x.angle), -x.velocity, u.torque)

    with pytest.raises(NestbedError, match="does not reproduce the drift of 'velocity'"):
        Exact(Wrong())


def test_unknown_beliefs_are_named():
    with pytest.raises(NestbedError, match="did you mean 'ibis'"):
        nb.eig(jax.random.key(0), LINEAR, nb.policies.Random(LINEAR), belief="ibs")


@pytest.mark.slow
def test_ibis_is_calibrated_on_the_nonlinear_pendulum():
    """3000 records from the prior predictive, 20 PRBS experiments each: ranks of mass and length, KS, 1e-4 each."""
    system = nb.systems.load("nonlinear_pendulum")
    count, horizon = 3000, 20
    keys = jax.random.split(jax.random.key(4), 4)
    theta = system.parameters.constrain(system.parameters.sample(keys[0], (count, 1)))
    designs = jnp.where(jax.random.bernoulli(keys[1], shape=(count, horizon, 1)), 1.0, -1.0)
    noise = jax.random.normal(keys[2], (horizon, count, 2))
    states = [jnp.zeros((count, 2))]
    for t in range(horizon):
        x, u = components(states[-1]), components(designs[:, t])
        states.append(jnp.concatenate(likelihoods.of(system).sample(components(noise[t]), x, u, theta), axis=1))
    got = nb.posterior(keys[3], system, jnp.stack(states, 1), designs, particles=512).belief
    for truth, particles in zip(theta, got.theta, strict=True):
        ranks = np.asarray(jnp.sum(jnp.exp(got.log_weights) * (particles < truth), axis=1))
        assert stats.kstest(ranks, "uniform").pvalue > 1e-4


@pytest.mark.slow
def test_the_bias_of_particle_beliefs_falls_with_their_number():
    """Total gain of one linear record at growing M against the exact one: the difference shrinks to its error."""
    record = nb.sweep(
        jax.random.key(0), LINEAR, nb.policies.PRBS(LINEAR), horizon=30, trajectories=1, eta=0.0, belief="exact"
    )
    exact = float(
        nb.posterior(jax.random.key(0), LINEAR, record.observations[0], record.designs[0], belief="exact").gains.sum()
    )
    runs = 64
    tiled = jnp.tile(record.observations, (runs, 1, 1)), jnp.tile(record.designs, (runs, 1, 1))
    for size in (256, 1024, 4096):
        gains = nb.posterior(jax.random.key(size), LINEAR, *tiled, particles=size).gains.sum(1)
        error = float(gains.std()) / np.sqrt(runs)
        assert abs(float(gains.mean()) - exact) < 4.5 * error + 6 / size
