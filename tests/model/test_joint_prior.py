"""Priors of parameters that are known together, in both coordinates."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed.model import factors
from nestbed.model.prior import Prior
from nestbed.runs import fingerprint
from toys import Pair, z_score

KEY = jax.random.key(0)
MEAN, COVARIANCE = np.array([1.0, -0.5]), np.array([[0.25, -0.28], [-0.28, 0.64]])
NORMAL = dist.MultivariateNormal(MEAN, covariance_matrix=COVARIANCE)
MIXED = factors.normal((factors.ExpTransform(), factors.IdentityTransform()), MEAN, COVARIANCE)
FAMILIES = {
    "normal": NORMAL,
    "by its root": dist.MultivariateNormal(MEAN, scale_tril=np.linalg.cholesky(COVARIANCE)),
    "low rank": dist.LowRankMultivariateNormal(MEAN, jnp.array([[0.4], [-0.6]]), jnp.array([0.1, 0.2])),
    "log-normal": dist.TransformedDistribution(NORMAL, dist.transforms.ExpTransform()),
    "mixed": MIXED,
    "student": dist.MultivariateStudentT(5.0, MEAN, np.linalg.cholesky(COVARIANCE)),
    "gamma": dist.Gamma(jnp.array([3.0, 5.0]), 2.0).to_event(1),
    "uniform": dist.Uniform(jnp.array([-1.0, 2.0]), jnp.array([0.0, 7.0])).to_event(1),
}
NO_COVARIANCE = dist.MultivariateNormal(MEAN, np.array([[1.0, 2.0], [2.0, 1.0]]), validate_args=False)
if hasattr(dist.transforms, "CatTransform"):
    EACH = [dist.transforms.ExpTransform(), dist.transforms.IdentityTransform()]
    FAMILIES["by parts"] = dist.TransformedDistribution(NORMAL, dist.transforms.CatTransform(EACH, dim=-1))
GAUSSIAN = ("normal", "by its root", "low rank", "log-normal", "mixed")


def check_draws_against_density(prior):
    """Average q / p over draws of p for a narrow Gaussian q: 1, whatever p is, if draws are those of the density."""
    z = prior.sample(KEY, (4096,))
    narrow = zip(z, prior.centre, prior.scales, strict=True)
    log_q = sum(stats.norm.logpdf(value, middle, 0.4 * scale) for value, middle, scale in narrow)
    ratio = np.exp(log_q - np.asarray(prior.log_density(z)))
    assert abs(z_score(ratio - 1.0)) < 5  # false alarms: 6e-7 each


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_are_those_of_the_density_and_lie_in_the_support(name):
    prior = Prior({"a": dist.Normal(0.0, 1.0), ("b", "c"): FAMILIES[name], "d": dist.LogNormal(0.0, 0.3)})
    assert prior.names == ("a", "b", "c", "d")
    check_draws_against_density(prior)
    draws = prior.draw(KEY, (4096,))
    assert [value.shape for value in draws] == [(4096,)] * 4
    np.testing.assert_allclose(np.stack(prior.unconstrain(draws)), np.stack(prior.sample(KEY, (4096,))), rtol=1e-9)
    assert bool(FAMILIES[name].support(jnp.stack(draws[1:3], axis=-1)).all())


def no_correlation(self, position, chosen):
    parts = zip(position, self.mean, np.diagonal(self.covariance), strict=True)
    return sum(dist.Normal(mean, variance**0.5).log_prob(z) for z, mean, variance in parts)


@pytest.mark.parametrize("name", ["normal", "log-normal"])
def test_a_mutant_density_without_correlation_is_caught(name, monkeypatch):
    monkeypatch.setattr(factors.Gaussian, "log_marginal", no_correlation)
    with pytest.raises(AssertionError):
        check_draws_against_density(Prior({("b", "c"): FAMILIES[name]}))


def test_a_mutant_density_without_jacobian_is_caught(monkeypatch):
    monkeypatch.setattr(factors.ExpTransform, "log_abs_det_jacobian", lambda self, x, y, intermediates=None: 0.0 * x)
    with pytest.raises(AssertionError):
        check_draws_against_density(Prior({("b", "c"): FAMILIES["gamma"]}))


@pytest.mark.parametrize("name", GAUSSIAN)
def test_a_multivariate_normal_in_unconstrained_coordinates_is_known_in_closed_form(name):
    covariance = np.array([[0.26, -0.24], [-0.24, 0.56]]) if name == "low rank" else COVARIANCE
    prior = Prior({("b", "c"): FAMILIES[name], "a": dist.Normal(0.0, 2.0)})
    mean, found, entropy = prior.moments
    np.testing.assert_allclose(mean, [*MEAN, 0.0], atol=1e-6)
    np.testing.assert_allclose(found[:2, :2], covariance, atol=1e-6)
    assert not found[2, :2].any()
    exact = stats.multivariate_normal(MEAN, covariance)
    assert entropy == pytest.approx(exact.entropy() + stats.norm(0.0, 2.0).entropy(), abs=1e-4)
    scales = np.array(prior.scales[:2])
    np.testing.assert_allclose(
        prior.precision[:2, :2] / (scales[:, None] * scales), np.linalg.inv(covariance), rtol=1e-5
    )
    (joint, _), z = prior.factors, (jnp.array([0.3, 1.4]), jnp.array([-0.2, 0.1]))
    np.testing.assert_allclose(joint.log_density(z), exact.logpdf(np.stack(z, axis=-1)), rtol=1e-5)
    alone = stats.norm(MEAN[1], covariance[1, 1] ** 0.5).logpdf(z[1])
    np.testing.assert_allclose(joint.log_marginal(z, (False, True)), alone, rtol=1e-5)


def test_other_distributions_are_known_by_their_draws():
    prior = Prior({("b", "c"): FAMILIES["student"]})
    assert not np.isfinite(prior.moments[2])
    assert prior.correlation[0, 1] == pytest.approx(-0.7, abs=0.06)
    assert prior.divisible((True, True))
    assert not prior.divisible((True, False))
    with pytest.raises(nb.NestbedError, match="does not tell how some of them are distributed without the others"):
        prior.factors[0].log_marginal(prior.sample(KEY, (3,)), (True, False))


@pytest.mark.parametrize("name", FAMILIES)
def test_systems_with_them_are_told_apart_pickled_and_described(name):
    system = Pair(prior={("ua", "ub"): FAMILIES[name]})
    assert system.parameter_names == ("ua", "ub")
    assert system.Theta._fields == ("ua", "ub")
    again = pickle.loads(pickle.dumps(system))
    assert again == system != Pair()
    described = fingerprint.describe(system)
    assert list(described["settings"]["prior"]) == ["ua, ub"]
    assert fingerprint.same(described, again)
    assert not fingerprint.same(described, Pair())


@pytest.mark.parametrize(
    ("prior", "sentence"),
    [
        ({("ua", "ub", "uc"): NORMAL}, r"events of shape \(2,\), but 3 names need"),
        ({("ua",): NORMAL, "ub": dist.Normal(0.0, 1.0)}, r"events of shape \(2,\), but 1 names need"),
        ({("ua", "ua"): NORMAL}, "names 'ua' twice"),
        ({("ua", "ub"): NORMAL, "ub": dist.Normal(0.0, 1.0)}, "names 'ub' twice"),
        ({("ua", "ub"): dist.Normal(0.0, 1.0)}, "a scalar distribution, but 2 names need"),
        ({("ua", "ub"): dist.Normal(jnp.zeros(2), 1.0)}, "independent ones, but 2 names need"),
        ({("ua", "ub"): dist.Wishart(3.0, jnp.eye(2))}, r"events of shape \(2, 2\), but 2 names need"),
        ({("ua", "ub"): dist.Multinomial(3, jnp.array([0.5, 0.5]))}, "the discrete Multinomial"),
        ({("ua", "ub"): dist.Dirichlet(jnp.ones(2))}, "a Dirichlet, which constrains them together"),
        ({("ua", "ub"): NO_COVARIANCE}, "which is no covariance"),
        ({("ua", "ub"): 3.0}, "must be a NumPyro distribution"),
        ({("ua", "u b"): NORMAL}, "named 'u b'; use a plain Python name"),
        ({"ua": NORMAL, "ub": dist.Normal(0.0, 1.0)}, r"needs a scalar distribution; give every .* in a tuple"),
    ],
)
def test_bad_input_gets_one_sentence(prior, sentence):
    with pytest.raises(nb.NestbedError, match=sentence) as caught:
        Pair(prior=prior)
    assert str(caught.value).count(". ") == 0
