"""Exact beliefs where hidden states are linear together with the parameters, against one dense Gaussian: no filter."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed.belief import Exact, linear
from nestbed.evaluation import records
from nestbed.likelihood import Kalman, history
from nestbed.likelihood.base import Record
from nestbed.model import linearity

pytestmark = pytest.mark.filterwarnings("ignore:the model does not explain the data")  # they are made up
KEY = jax.random.key(0)
H, DRAG = 0.4, 0.6
GAINS = np.array([1.0, -0.2]), np.array([[0.16, 0.05], [0.05, 0.09]])


class Rail(nb.System):
    """A cart of known drag in an unknown wind, driven by an unknown gain that saturates; its speed is never seen."""

    state = ("place", "speed")
    designs = nb.Box(force=(-1.0, 1.0))
    prior = {("drive", "wind"): dist.MultivariateNormal(*GAINS)}
    start = {"place": dist.Normal(0.3, 0.5), "speed": dist.Normal(-0.2, 0.4)}
    sensors = {"near": 0.2, "far": 0.1}
    step, diffusion, noise_floor, integrator = H, ((0.1, 0.05), (0.0, 0.3)), 0.0, "euler"
    defaults = nb.Defaults(horizon=6)

    def drift(self, x, u, theta):
        return x.speed, -DRAG * x.speed + theta.drive * jnp.where(u.force > 0.5, 0.5, u.force) + theta.wind

    def observe(self, x, theta):
        return x.place, 0.5 * x.place + 0.2 * x.speed


class LateRail(Rail):
    delay = {"force": 1.25}


class BiasedRail(LateRail):
    """A sensor is off, and the other's noise grows with the input: the first observation tells of the bias."""

    prior = {**Rail.prior, "bias": dist.Normal(0.1, 0.5)}
    sensors = ("near", "far")

    def observe(self, x, theta):
        return x.place + theta.bias, 0.5 * x.place + 0.2 * x.speed + 0.3 * theta.bias

    def sensor_noise(self, x, u, theta):
        return 0.2 + 0.0 * u.force, 0.1 + 0.05 * u.force**2


class Dense:
    """All states and parameters of some records in one Gaussian: z = mean + root · normals, row by row."""

    def __init__(self, biased, tables, late):
        """Each table holds the designs, the lengths of all rows and what was seen, NaN where nothing was."""
        self.size = 3 if biased else 2
        prior = np.zeros((self.size, self.size))
        prior[:2, :2], mean = GAINS[1], [*GAINS[0], 0.1][: self.size]
        prior[2:, 2:] = 0.25
        self.columns = self.size + sum(8 * (len(forces) + 1) for forces, _, _ in tables)
        self.free, self.biased = self.size, biased
        self.theta = np.array(mean), np.zeros((self.size, self.columns))
        self.theta[1][:, : self.size] = np.linalg.cholesky(prior)
        self.rows, self.values, self.first, self.last = [], [], [], None
        for forces, lengths, seen in tables:
            self._record(forces, lengths, seen, late)

    def _fresh(self, root):
        """Return new independent noise with a root of its covariance."""
        part = np.zeros((2, self.columns))
        part[:, self.free : self.free + 2] = root
        self.free += 2
        return part

    def _record(self, forces, lengths, seen, late):
        times = np.cumsum([0.0, *lengths])
        total = np.cumsum([0.0, *(np.asarray(forces) * lengths)])  # of the force, which is held; nothing before
        working = np.diff(np.interp(times - late * H, times, total)) / lengths
        x = np.array([0.3, -0.2]), self._fresh(np.diag([0.5, 0.4]))
        self._seen(x, 0.0, seen[0], first=True)
        for t, (u, h) in enumerate(zip(working, lengths, strict=True)):
            along, g = np.array([[1.0, h], [0.0, 1.0 - h * DRAG]]), h * np.array([min(u, 0.5), 1.0])
            noise = self._fresh(np.sqrt(h) * np.array(Rail.diffusion))
            pairs = zip(x, self.theta, strict=True)
            x = tuple(along @ part + np.stack([0 * part[0], g @ theta[:2]]) for part, theta in pairs)
            x = x[0], x[1] + noise
            self._seen(x, forces[t], seen[t + 1])

    def _seen(self, x, u, y, first=False):
        shown = np.array([[1.0, 0.0], [0.5, 0.2]])
        off = np.array([[1.0], [0.3]]) if self.biased else np.zeros((2, 0))
        mean, root = (shown @ part + off @ theta[2:] for part, theta in zip(x, self.theta, strict=True))
        root = root + self._fresh(np.diag([0.2, 0.1 + 0.05 * u**2 if self.biased else 0.1]))
        for m, r, value in zip(mean, root, y, strict=True):
            self.rows.append((m, r))
            self.values.append(value)
            self.first.append(first)
        self.last = x

    def known(self, upto=None, first=False):
        """Return which values count as known: those measured before a place, and all that were seen at first."""
        place = np.arange(len(self.values)) < (len(self.values) if upto is None else upto)
        return ~np.isnan(self.values) & (place | (np.array(self.first) if first else False))

    def given(self, wanted, known, theta=False):
        """Return mean and covariance of rows given known values, and given the parameters: slopes along them too."""
        mean, root = (np.array(part) for part in zip(*self.rows, strict=True))
        values = np.array(self.values)[known] - mean[known]
        stack = np.concatenate([root[known], self.theta[1]]) if theta else root[known]
        gain = np.linalg.solve(stack @ stack.T, stack @ wanted[1].T).T if len(stack) else np.zeros((len(wanted[0]), 0))
        covariance = wanted[1] @ wanted[1].T - gain @ stack @ wanted[1].T
        if not theta:
            return wanted[0] + gain @ values, covariance
        slope = gain[:, len(values) :]
        return wanted[0] + gain[:, : len(values)] @ values - slope @ self.theta[0], covariance, slope

    def at(self, rows):
        return tuple(np.array(part)[rows] for part in zip(*self.rows, strict=True))


def expected_log_density(dense, rows, known, posterior):
    """Return E[log p(rows | known, θ)] over a Gaussian of θ."""
    offset, covariance, slope = dense.given(dense.at(rows), known, theta=True)
    mean, spread = posterior
    value = stats.multivariate_normal(offset + slope @ mean, covariance).logpdf(np.array(dense.values)[rows])
    return value - 0.5 * np.trace(np.linalg.solve(covariance, slope @ spread @ slope.T))


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(3)
    seen, forces = draw.normal(0.3, 0.6, (8, 2)), draw.uniform(-1.0, 1.0, 7)
    seen[0, 1] = seen[2, 0] = seen[5, 1] = np.nan
    seen[3] = np.nan
    return seen, forces


def cases(data):
    """Return records by name: the whole of one, one with gaps, one at uneven times with pauses, and three together."""
    seen, forces = data
    whole = np.nan_to_num(seen, nan=0.4)
    uneven = np.cumsum([1.0, 0.4, 0.3, 0.35, 1.1, 0.4, 0.05, 0.8])
    return {
        "whole": (whole, forces[:, None], None),
        "gaps": (seen, forces[:, None], None),
        "uneven": (seen, forces[:, None], uneven),
        "several": ([seen, whole[:4] + 0.1, seen[2:7]], [forces[:, None], forces[:3, None], forces[3:7, None]], None),
    }


def dense_of(system, observations, designs, times):
    """Return the dense Gaussian, and of which of its rows each experiment is made."""
    measured = records.read(system, observations, designs, times)
    tables, where, done = [], [], 0
    for each in measured:
        table = records.tabulated(system, [each])
        (seen,), (forces,) = (np.asarray(part) for part in table.record)
        tables.append((forces[:, 0], forces[:, 1], seen))
        where += [list(range(done + 2 + 2 * t, done + 4 + 2 * t)) for t in table.ends]
        done += 2 * len(table.experiment) + 2
    return Dense("bias" in system.parameter_names, tables, system.delay.get("force", 0.0)), where


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (Rail, "whole"),
        (Rail, "several"),
        (BiasedRail, "whole"),
        (BiasedRail, "uneven"),
        pytest.param(BiasedRail, "several", marks=SLOW),
        pytest.param(BiasedRail, "gaps", marks=SLOW),
        pytest.param(LateRail, "whole", marks=SLOW),
        pytest.param(LateRail, "gaps", marks=SLOW),
        pytest.param(LateRail, "uneven", marks=SLOW),
        pytest.param(LateRail, "several", marks=SLOW),
    ],
)
def test_likelihood_posterior_and_gain_are_those_of_one_gaussian(kind, case, data):
    system, record = kind(), cases(data)[case]
    got = {
        form: nb.posterior(KEY, system, *record[:2], times=record[2], belief="exact", gain=form)
        for form in ("general", "closed_form")
    }
    dense, where = dense_of(system, *record)
    tells = dense.biased
    mean, covariance = dense.given(dense.theta, dense.known())
    np.testing.assert_allclose(got["general"].mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(got["general"].covariance, covariance, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(got["general"].course.states[-1], dense.given(dense.last, dense.known())[0], rtol=1e-8)
    sds = np.sqrt(np.diagonal(dense.given(dense.last, dense.known())[1]))
    np.testing.assert_allclose(got["general"].course.states_sd[-1], sds, rtol=1e-8)
    evidence, gain, lost = [], [], []
    done = dense.known(0, first=not tells)  # what tells nothing is known; what tells counts with the next experiment
    before = dense.given(dense.theta, done)
    for rows in where:
        known = dense.known(rows[-1] + 1, first=not tells)
        new = np.flatnonzero(known & ~done)
        after = dense.given(dense.theta, known)
        density = 0.0
        if len(new):
            density = stats.multivariate_normal(*dense.given(dense.at(new), done)).logpdf(np.array(dense.values)[new])
        evidence.append(density)
        gain.append(expected_log_density(dense, new, done, after) - density if len(new) else 0.0)
        lost.append(0.5 * (np.linalg.slogdet(before[1])[1] - np.linalg.slogdet(after[1])[1]))
        done, before = known, after
    np.testing.assert_allclose(got["general"].log_predictive, evidence, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(got["closed_form"].gains, lost, rtol=1e-8, atol=1e-9)
    if case != "several" or not tells:  # there a record's first reading is taken in by itself
        np.testing.assert_allclose(got["general"].gains, gain, rtol=1e-8, atol=1e-8)


class Stiff(BiasedRail):
    """The same with a step that carries noise along the drift."""

    integrator, diffusion = "exponential", (0.1, 0.3)


@pytest.mark.parametrize("kind", [BiasedRail, Stiff])
def test_the_evidence_is_likelihood_times_prior_over_posterior(kind, data):
    """Bayes' rule at 16 draws of the prior, by the filter of each: whatever the integrator."""
    system, (observations, designs, _) = kind(), cases(data)["whole"]
    found = nb.posterior(KEY, system, observations, designs, belief="exact")
    theta = system.parameters.draw(jax.random.key(1), (1, 16))
    table = history.tabulate(Record(jnp.asarray(observations)[None], jnp.asarray(designs)[None]))
    _, density = history.log_likelihood(Kalman(system), table, jnp.asarray(len(designs)), theta)
    values = np.concatenate(theta).T
    prior = stats.multivariate_normal(np.array([1.0, -0.2, 0.1]), _block(GAINS[1], 0.25)).logpdf(values)
    after = stats.multivariate_normal(found.mean, found.covariance).logpdf(values)
    np.testing.assert_allclose(density[0] + prior - after, float(found.log_predictive.sum()), rtol=1e-8)


def _block(matrix, last):
    whole = np.zeros((3, 3))
    whole[:2, :2], whole[2, 2] = matrix, last
    return whole


@pytest.mark.parametrize("kind", [LateRail, BiasedRail])
def test_outcomes_are_drawn_from_the_predictive_gaussian(kind, data):
    """50,000 draws after the first observation alone: mean and covariance, z below 5."""
    system, count = kind(), 50_000
    first = np.nan_to_num(data[0][0], nan=0.4)
    belief = Exact(system)
    drawn = np.asarray(
        jax.jit(lambda: belief.sample(KEY, belief.init(KEY, jnp.tile(first, (count, 1))), jnp.full((count, 1), 0.7)))()
    )
    nothing = np.full((2, 2), np.nan)
    nothing[0] = first
    dense = Dense(kind is BiasedRail, [(np.array([0.7]), np.array([H]), nothing)], 1.25)
    mean, covariance = dense.given(dense.at(np.array([2, 3])), dense.known())
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * np.sqrt(np.diagonal(covariance) / count))
    sds = np.sqrt((covariance**2 + np.outer(np.diagonal(covariance), np.diagonal(covariance))) / count)
    assert np.all(np.abs(np.cov(drawn.T) - covariance) < 5 * sds)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"prior": {"drive": dist.Normal(1.0, 0.1), "wind": dist.Uniform(0.0, 1.0)}}, "needs Normal priors"),
        ({"start": {"place": dist.Uniform(0.0, 1.0)}}, "the start of 'place' is a Uniform, not Normal"),
        ({"delay": {"force": "drive"}, "prior": {"drive": dist.LogNormal(), "wind": dist.Normal()}}, "is a parameter"),
        ({"sensors": {"near": "wind", "far": 0.1}}, "the noise of sensors changes with 'wind'"),
    ],
)
def test_what_is_no_joint_gaussian_is_refused_with_the_reason(change, told):
    with pytest.raises(nb.NestbedError, match=told):
        Exact(Rail(**change))


def bent(**functions):
    return type("Bent", (Rail,), functions)()


@pytest.mark.parametrize(
    ("system", "why"),
    [
        (
            bent(drift=lambda self, x, u, theta: (x.speed, theta.drive * x.speed)),
            "the slope of the drift of 'speed' along 'speed' changes with 'drive'",
        ),
        (
            bent(drift=lambda self, x, u, theta: (x.speed, jnp.where(x.place > 1.0, -1.0, 0.5) * x.place)),
            "the slope of the drift of 'speed' along 'place' changes with 'place'",
        ),
        (
            bent(observe=lambda self, x, theta: (x.place, x.place**2)),
            "the slope of what is shown by 'far' along 'place' changes with 'place'",
        ),
        (
            bent(diffusion=lambda self, x, u, theta: (0.1, 0.1 + x.place**2)),
            "the noise of a step changes with 'place'",
        ),
    ],
)
def test_what_is_not_linear_is_found_by_its_equations(system, why):
    assert linearity.why_not_joint(system) == why
    with pytest.raises(nb.NestbedError, match="states and parameters must be linear together: " + why):
        Exact(system)
    assert nb.belief.simplest(system) == "ibis"


def test_the_simplest_belief_of_a_joint_gaussian_is_exact():
    assert nb.belief.simplest(Rail()) == "exact"
    with pytest.raises(nb.NestbedError, match="with several records, gaps or uneven times"):
        Exact(nb.systems.load("linear_pendulum")).of_given_records(0)


def wind_forgotten(monkeypatch):
    points = linear.Behind.points.fget
    monkeypatch.setattr(linear.Behind, "points", property(lambda self: (points(self)[0], points(self)[1] * 0.0)))


def first_reading_twice(monkeypatch):
    monkeypatch.setattr(linear, "_counted", lambda reading: reading)


def gaps_are_zero(monkeypatch):
    read = linear.Behind.read
    monkeypatch.setattr(linear.Behind, "read", lambda self, carry, u, y: read(self, carry, u, jnp.nan_to_num(y)))


@pytest.mark.parametrize(
    ("mutate", "kind", "case"),
    [(wind_forgotten, Rail, "whole"), (first_reading_twice, BiasedRail, "whole"), (gaps_are_zero, Rail, "gaps")],
)
def test_mutants_are_caught(mutate, kind, case, data, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        test_likelihood_posterior_and_gain_are_those_of_one_gaussian(type("Rail", (kind,), {}), case, data)
