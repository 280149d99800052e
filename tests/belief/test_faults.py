"""Numbers that cannot be are faults that name the step, never results."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed.belief import IBIS
from nestbed.belief.base import FAR, Evidence
from nestbed.likelihood.observed import Observed
from nestbed.model import predictive
from nestbed.numerics.errors import NonFiniteError
from toys import TRAINING, Leak, LinearLeak

KEY = jax.random.key(0)
SMALL = {"trajectories": 4, "particles": 16, "belief": "ibis"}


class Growing(Leak):
    """Grows by half at every step."""

    prior = {"rate": dist.Normal(1.0, 0.05)}
    step, diffusion = 0.1, (0.3,)

    def drift(self, x, u, theta):
        return 5.0 * theta.rate * x.level + u.flow

    def features(self, x, u):
        return ((5.0 * x.level,),)


class Stiff(Leak):
    """A fast mode that a step follows only below a fifth of its length."""

    state = ("level", "fast")
    diffusion, start, integrator = (0.5, 0.1), (1.0, 1.0), "euler"

    def drift(self, x, u, theta):
        return -theta.rate * x.level + u.flow, 20.0 * (x.level - x.fast)


def stiff():
    predictive.check_plausible.cache_clear()  # it warns once for a system
    with pytest.warns(UserWarning, match="one step of Stiff moves 'fast' by"):
        nb.policies.Random(Stiff())
    return Stiff()


ASKED = {
    "eig": lambda s, T: nb.eig(KEY, s, nb.policies.Random(s), horizon=T, **SMALL),
    "guided": lambda s, T: nb.eig(KEY, s, nb.policies.Random(s), horizon=T, trajectories=4, particles=16),
    "sweep": lambda s, T: nb.sweep(KEY, s, nb.policies.Random(s), horizon=T, **SMALL),
    "spce": lambda s, T: nb.spce(KEY, s, nb.policies.Random(s), horizon=T, outer=4, contrastive=16),
    "exact": lambda s, T: nb.eig(KEY, s, nb.policies.Random(s), horizon=T, belief="exact", trajectories=4),
}


@pytest.mark.parametrize("ask", [*sorted({*ASKED} - {"guided"}), pytest.param("guided", marks=pytest.mark.slow)])
def test_a_system_that_grows_by_itself_is_told_not_scored(ask):
    with pytest.raises(NonFiniteError, match=r"level = .* after step \d+ of Growing is rounded .*grows by itself"):
        ASKED[ask](Growing(), 120)


@pytest.mark.filterwarnings("ignore:experiments gain about as much")
def test_what_does_not_outgrow_its_noise_is_scored():
    found = ASKED["eig"](Growing(), 30)
    assert 0.0 < found.mean < 20.0


@pytest.mark.slow
def test_a_step_too_long_for_the_drift_is_told():
    system = stiff()
    with pytest.raises(NonFiniteError, match=r"fast = .*step = 0.5 is too long for its drift.*only follows below 0\.1"):
        ASKED["eig"](system, 30)
    with pytest.raises(NonFiniteError, match=r"step = 0\.5 is too long"):
        nb.compare(KEY, system, {"prbs": nb.policies.PRBS(system)}, seeds=1, horizon=30, **SMALL)


@pytest.mark.slow
def test_a_training_on_a_stiff_system_blames_the_step_not_the_policy():
    config = {**vars(TRAINING), "belief": "ibis", "horizon": 400}
    with pytest.raises(NonFiniteError, match=r"step = 0\.5 is too long"):
        nb.train(KEY, stiff(), type(TRAINING)(**config))


def test_noise_that_depends_on_the_parameters_is_taken_at_the_middle_of_the_prior():
    class Loud(Leak):
        prior, step = Growing.prior, Growing.step

        def drift(self, x, u, theta):
            return 5.0 * theta.rate * x.level + u.flow

        def diffusion(self, x, u, theta):
            return (1e-6 * theta.rate * (1.0 + u.flow**2),)

    with pytest.raises(NonFiniteError, match=r"level = .* after step \d+ of Loud is rounded"):
        ASKED["eig"](Loud(), 120)


@pytest.fixture(scope="module")
def record():
    leak = Leak()
    found = nb.sweep(KEY, leak, nb.policies.Random(leak), horizon=4, eta=0.0, **SMALL)
    return np.asarray(found.observations[0]), np.asarray(found.designs[0])


@pytest.mark.parametrize(("belief", "system"), [("ibis", Leak()), ("exact", LinearLeak())])
@pytest.mark.parametrize("factor", [1e5, 1e9, 1e14])
def test_records_in_wrong_units_are_refused(record, belief, system, factor):
    states, designs = record
    with pytest.raises(NonFiniteError, match=r"step \d .*(is not one of|is rounded by)"):
        nb.posterior(KEY, system, states * factor, designs, belief=belief, particles=16)


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
def test_the_gain_of_particles_does_not_hang_on_the_size_of_the_density(offset):
    """The divergence of the weights, in double precision whatever constant all log-densities share."""

    class Shifted(Observed):
        @property
        def log_normaliser(self):
            return super().log_normaliser + offset

    class Particles(IBIS):
        @property
        def likelihood(self):
            return Shifted(self.system)

    belief = Particles(Leak(), 16, 1)
    state = belief.init(KEY, jnp.full((3, 1), 1.0))
    after, evidence = belief.update(state, jnp.full((3, 1), 0.5), jnp.array([[0.7], [2.0], [-30.0]]))
    weights = np.exp(after.log_weights)
    divergence = np.sum(weights * (after.log_weights - state.log_weights), axis=1)
    np.testing.assert_allclose(evidence.divergence, divergence, rtol=1e-9, atol=1e-9)


def test_what_is_possible():
    def possible(divergence, log_predictive):
        evidence = Evidence(jnp.array([divergence]), jnp.array([log_predictive]), 30.0)
        return bool(evidence.possible[0])

    assert possible(0.0, -3.0)
    assert possible(29.0, 50.0)
    assert not possible(31.0, 0.0)
    assert possible(-1e-4, 0.0)
    assert not possible(-1e-2, 0.0)
    assert not possible(1.0, -2.0 * FAR)
    assert not possible(np.nan, 0.0)
