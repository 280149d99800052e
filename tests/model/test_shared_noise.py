"""Process noise whose sources enter several states: densities, simulation and gains against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import linalg, stats

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.likelihood import history, sensitivity
from nestbed.likelihood.base import Record, components
from nestbed.model import integration
from nestbed.runs import fingerprint
from toys import INPUTS, Pair, pair_information, pair_posterior, z_score

KEY = jax.random.key(0)
MATRIX = ((0.6, 0.0), (0.5, 0.7))
MATRICES = {
    "as many sources": MATRIX,
    "more sources": ((0.6, -0.2, 0.1), (0.5, 0.7, 0.3)),
    "fewer sources": ((0.6,), (-0.5,)),
}


PLACE = jnp.full((1, 1), 1.2), jnp.full((1, 1), 0.4)


def covariance(matrix, floor=0.0):
    matrix = np.array(matrix)
    return 0.5 * matrix @ matrix.T + floor * np.eye(len(matrix))


class Reacting(Pair):
    """Sources that know the state and a parameter."""

    def diffusion(self, x, u, theta):
        return (0.6 + 0.1 * x.a**2, 0.0), (0.5 * theta.ua, 0.7)


@pytest.mark.parametrize("name", MATRICES)
def test_one_step_has_the_density_of_its_covariance(name):
    system = Pair(diffusion=MATRICES[name], noise_floor=1e-4)
    likelihood = likelihoods.of(system)
    assert likelihood.constant_noise
    carry, u, theta = components(jnp.array([[0.3, -0.2]])), components(jnp.array([[1.0, -0.5]])), PLACE
    y = np.array([0.9, 0.1])
    _, density = likelihood.advance(carry, u, components(jnp.array([y])), theta)
    mean = np.array([0.3 + 0.5 * 1.2, -0.2 + 0.5 * (0.4 * -0.5 + 0.4 * 1.2)])
    exact = stats.multivariate_normal(mean, covariance(MATRICES[name], 1e-4))
    assert float(density[0, 0]) == pytest.approx(exact.logpdf(y), rel=1e-9)
    assert likelihood.noise_entropy() == pytest.approx(exact.entropy(), rel=1e-9)


def test_a_mutant_that_forgets_what_states_share_is_caught(monkeypatch):
    monkeypatch.setattr(Pair, "shared_variance", lambda *_: ())
    with pytest.raises(AssertionError):
        test_one_step_has_the_density_of_its_covariance("as many sources")


def test_sources_that_know_states_and_parameters_have_the_density_of_their_covariance():
    likelihood = likelihoods.of(Reacting())
    assert not likelihood.constant_noise
    carry, u = components(jnp.array([[0.8, -0.2]])), components(jnp.array([[1.0, -0.5]]))
    y, theta = np.array([0.9, 0.1]), (jnp.array([[1.2, 0.3]]), jnp.array([[0.4, -0.1]]))
    _, density = likelihood.advance(carry, u, components(jnp.array([y])), theta)
    for found, ua, ub in zip(density[0], *(value[0] for value in theta), strict=True):
        mean = np.array([0.8 + 0.5 * ua, -0.2 + 0.5 * (ub * -0.5 + 0.4 * ua)])
        exact = stats.multivariate_normal(mean, covariance(((0.6 + 0.1 * 0.8**2, 0.0), (0.5 * ua, 0.7))))
        assert float(found) == pytest.approx(exact.logpdf(y), rel=1e-9)


@pytest.mark.parametrize("system", [Pair(diffusion=MATRIX), Reacting()])
def test_simulated_steps_have_the_covariance(system):
    count = 20_000
    normals = jax.random.normal(KEY, (2, count))
    place = [tuple(jnp.full(count, value) for value in values) for values in ((0.0, 0.0), (1.0, 1.0), (1.0, 0.4))]
    drawn = np.stack(likelihoods.of(system).sample(tuple(normals), *place))
    off = drawn - np.array([[0.5], [0.4]])
    squares = np.stack([off[0] ** 2, off[1] ** 2, off[0] * off[1]], axis=1)
    wanted = covariance(MATRIX)
    assert np.abs(z_score(squares - [wanted[0, 0], wanted[1, 1], wanted[0, 1]])).max() < 5  # false alarms: 2e-6


@pytest.mark.parametrize(("states", "callable_diffusion"), [(2, True), (5, False)])
def test_noise_that_the_drift_carries_has_the_covariance_of_a_linear_system(states, callable_diffusion):
    """Against ∫ e^{Js} G Gᵀ e^{Jᵀs} ds by Van Loan's matrix exponential."""
    random = np.random.default_rng(states)
    jacobian = random.normal(size=(states, states)) - np.eye(states)
    matrix = tuple(map(tuple, random.normal(size=(states, 2))))

    def drift(self, x, u, theta):
        return tuple(sum(jacobian[i, j] * x[j] for j in range(states)) + u.push + 0.0 * theta.k for i in range(states))

    made = {"state": tuple("abcde"[:states]), "drift": drift, "step": 0.4, "integrator": "exponential"}
    made |= {"designs": nb.Box(push=(-1.0, 1.0)), "prior": {"k": dist.Normal(0.0, 1.0)}}
    made["diffusion"] = (lambda self, x, u, theta: matrix) if callable_diffusion else matrix
    system = type("Linear", (nb.System,), made)()
    x, u, theta = (tuple(jnp.zeros((2, 1)) for _ in range(size)) for size in (states, 1, 1))
    found = integration.noise(system, x, u, theta).covariance
    whole = np.block([[-jacobian, np.array(matrix) @ np.array(matrix).T], [np.zeros_like(jacobian), jacobian.T]])
    flow = linalg.expm(0.4 * whole)
    exact = flow[states:, states:].T @ flow[:states, states:] + system.noise_floor * np.eye(states)
    got = np.array([[np.asarray(value).ravel()[0] for value in row] for row in found])
    np.testing.assert_allclose(got, exact, atol=0.01 * np.abs(exact).max())


@pytest.mark.parametrize("name", MATRICES)
def test_the_gain_of_a_linear_system_is_known(name):
    system = Pair(diffusion=MATRICES[name], noise_floor=1e-3)
    noise = covariance(MATRICES[name], 1e-3)
    prior = np.diag([0.25, 0.64])
    wanted = 0.5 * np.linalg.slogdet(np.eye(2) + prior @ pair_information(noise))[1]
    record = Record(jnp.zeros((1, 5, 2)), jnp.asarray(INPUTS)[None])
    found = sensitivity.of_histories(likelihoods.of(system), record, jnp.asarray(4), PLACE, (jnp.ones((1, 1)),) * 2)
    np.testing.assert_allclose(found.information[0], pair_information(noise), rtol=1e-8)
    if name == "as many sources":
        policy = nb.policies.Replay(system, INPUTS)
        eig = nb.eig(KEY, system, policy, belief="exact", gain="closed_form", trajectories=4)
        assert eig.mean == pytest.approx(wanted, rel=1e-8)


@pytest.mark.slow
def test_the_exact_posterior_is_that_of_the_whole_covariance_and_guided_ones_agree():
    system = Pair(diffusion=MATRIX)
    observations = np.array([[0.0, 0.0], [0.9, 0.1], [0.5, -0.6], [0.9, 0.2], [2.0, 0.1]])
    wanted = pair_posterior([1.0, -0.5], np.diag([0.25, 0.64]), covariance(MATRIX), observations)
    exact = nb.posterior(KEY, system, observations, INPUTS, belief="exact")
    for found, known in zip((exact.mean, exact.covariance), wanted, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-12)
    guided = nb.posterior(KEY, system, observations, INPUTS)
    sd = np.sqrt(np.diag(wanted[1]))
    assert np.abs((np.asarray(guided.mean) - wanted[0]) / sd).max() < 5 / np.sqrt(300)  # effective draws; 1e-6
    assert float(guided.log_predictive.sum()) == pytest.approx(float(exact.log_predictive.sum()), abs=0.15)


def test_outcomes_of_the_exact_belief_have_the_predictive_covariance():
    belief = nb.belief.Exact(Pair(diffusion=MATRIX))
    count = 20_000
    state = belief.init(KEY, jnp.zeros((count, 2)))
    y = np.asarray(belief.sample(KEY, state, jnp.broadcast_to(jnp.array(INPUTS[1]), (count, 2))))
    h = 0.5 * np.array([[INPUTS[1][0], 0.0], [0.4 * INPUTS[1][0], INPUTS[1][1]]])
    wanted = h @ np.diag([0.25, 0.64]) @ h.T + covariance(MATRIX)
    off = y - h @ [1.0, -0.5]
    squares = np.stack([off[:, 0] ** 2, off[:, 1] ** 2, off[:, 0] * off[:, 1]], axis=1)
    assert np.abs(z_score(squares - [wanted[0, 0], wanted[1, 1], wanted[0, 1]])).max() < 5


def test_residuals_of_the_exact_belief_are_those_of_what_noise_is_not_shared():
    """The first experiment's: each component less what the noise of those before it tells."""
    observations, noise = np.array([[0.0, 0.0], [0.9, 0.1]]), covariance(MATRIX)
    found = nb.posterior(KEY, Pair(diffusion=MATRIX), observations, INPUTS[:1], belief="exact").residuals[0]
    h = 0.5 * np.array([[INPUTS[0][0], 0.0], [0.4 * INPUTS[0][0], INPUTS[0][1]]])
    apart = np.array([[1.0, 0.0], [-noise[1, 0] / noise[0, 0], 1.0]])
    spread = apart @ (h @ np.diag([0.25, 0.64]) @ h.T + noise) @ apart.T
    wanted = apart @ (observations[1] - h @ [1.0, -0.5]) / np.sqrt(np.diagonal(spread))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_matrix_may_be_rows_lists_or_an_array_and_is_part_of_what_a_system_is():
    made = [Pair(diffusion=form) for form in (MATRIX, [list(row) for row in MATRIX], np.array(MATRIX))]
    made.append(Pair(diffusion=jnp.array(MATRIX)))
    assert all(each == made[0] and each.diffusion == MATRIX for each in made)
    other = Pair(diffusion=((0.6, 0.0), (-0.5, 0.7)))  # the same variances
    assert other != made[0]
    described = fingerprint.describe(Reacting())
    assert fingerprint.same(described, Reacting())
    turned = type(
        "Reacting", (Reacting,), {"diffusion": lambda s, x, u, t: ((0.6 + 0.1 * x.a**2, 0.0), (-0.5 * t.ua, 0.7))}
    )
    assert fingerprint.changed_equation(described, turned()) == "shared variance"


@pytest.mark.parametrize(
    ("diffusion", "sentence"),
    [
        (((1.0, 0.0),), "give one number per state, 2 in all"),
        (((1.0, 0.0), (1.0,)), r"diffusion of 'b' is \(1.0,\); in a matrix every state has a row"),
        (((1.0, 0.0), 1.0), "diffusion of 'b' is 1.0; in a matrix every state has a row"),
        (((1.0, 0.0), (1.0, "x")), "diffusion of 'b' is .* in a matrix every state has a row"),
        (np.ones((3, 2)), "give one number per state, 2 in all"),
        (((1.0,), (0.5,)), "has 1 independent sources for 2 states"),
        (((1.0, 2.0), (0.5, 1.0)), "has 1 independent sources for 2 states"),
        (lambda s, x, u, t: ((1.0, 0.0), (1.0,)), "returned rows of 1 and 2 numbers"),
        (lambda s, x, u, t: ((1.0, 0.0), 1.0), "returned rows of 0 and 2 numbers"),
        (lambda s, x, u, t: ((1.0, 0.0),) * 3, "returned 3 components, but its state has 2"),
        (lambda s, x, u, t: ((x.a,), (x.b,)), "has 1 independent sources for 2 states"),
    ],
)
def test_bad_shapes_get_a_sentence(diffusion, sentence):
    with pytest.raises(nb.NestbedError, match=sentence) as caught:
        type("Bad", (Pair,), {"diffusion": diffusion})()
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize("name", MATRICES)
def test_hidden_states_share_it_too(name):
    """The density of what sensors show, at once by brute force."""
    system = Pair(diffusion=MATRICES[name], sensors={"a": 0.3, "b": 0.2})
    observations = np.array([[0.1, 0.0], [0.9, 0.1], [0.5, -0.6], [0.9, 0.2], [2.0, 0.1]])
    record = Record(jnp.asarray(observations)[None], jnp.asarray(INPUTS)[None])
    likelihood = likelihoods.of(system)
    _, found = history.log_likelihood(likelihood, history.tabulate(record), jnp.asarray(4), PLACE)
    times = np.minimum.outer(np.arange(1, 5), np.arange(1, 5))
    spread = np.kron(times, covariance(MATRICES[name])) + np.kron(np.eye(4), np.diag([0.09, 0.04]))
    moves = [0.5 * np.array([1.2 * push, 0.4 * pull + 0.48 * push]) for push, pull in INPUTS]
    wanted = stats.multivariate_normal(np.cumsum(moves, axis=0).ravel(), spread).logpdf(observations[1:].ravel())
    assert float(found[0, 0]) == pytest.approx(wanted, rel=1e-6)  # a share of 1e-9 is each state's own
