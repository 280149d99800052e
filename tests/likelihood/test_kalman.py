"""Hidden states behind sensors: densities, posteriors and gains against independent filters and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed.belief import proposal
from nestbed.evaluation import records
from nestbed.likelihood import Kalman, gaussian, history, sensitivity
from nestbed.likelihood.base import Record
from nestbed.model import sensors

KEY = jax.random.key(0)
H = 0.4


class Cart(nb.System):
    """A cart of unknown drag and drive; its place is measured twice, by sensors of different gain, its speed never."""

    state = ("place", "speed")
    designs = nb.Box(force=(-1.0, 1.0))
    prior = {"drag": dist.LogNormal(-0.5, 0.3), "drive": dist.Normal(1.0, 0.4)}
    start = {"place": dist.Normal(0.3, 0.5), "speed": dist.Normal(-0.2, 0.4)}
    sensors = {"near": 0.2, "far": 0.1}
    step, diffusion, noise_floor, integrator = H, (0.1, 0.3), 0.0, "euler"
    defaults = nb.Defaults(horizon=6)

    def drift(self, x, u, theta):
        return x.speed, -theta.drag * x.speed + theta.drive * u.force

    def observe(self, x, theta):
        return x.place, 0.5 * x.place + 0.2 * x.speed


class SeenCart(nb.System):
    """The same, every state seen as it is."""

    state, designs, prior = Cart.state, Cart.designs, Cart.prior
    step, diffusion, noise_floor, integrator = H, (0.1, 0.3), 0.0, "euler"
    start = {"place": 0.3, "speed": -0.2}
    drift = Cart.drift


class LateCart(Cart):
    delay = {"force": 2}


class HalfLateCart(Cart):
    delay = {"force": 1.25}


class UnknownLateCart(Cart):
    prior = {**Cart.prior, "late": dist.Uniform(0.0, 3.0)}
    delay = {"force": "late"}


SHOWN = np.array([[1.0, 0.0], [0.5, 0.2]])
SENSED = np.diag([0.04, 0.01])
START = np.array([0.3, -0.2]), np.diag([0.25, 0.16])


def working(designs, late):
    """Return the designs at work, by interpolation over all of them, rest before the first."""
    t = np.arange(len(designs))
    return np.interp(t - late, np.arange(-20, len(designs)), np.concatenate([np.zeros(20), designs]))


def joint(drag, drive, forces, lengths, spread=START[1]):
    """Return mean and covariance of all states at once, by brute force: no filter."""
    count = len(forces)
    mean, blocks = [START[0]], np.zeros((2 * (count + 1), 2 * (count + 1)))
    blocks[:2, :2] = spread
    for t, (u, h) in enumerate(zip(forces, lengths, strict=True)):
        along = np.array([[1.0, h], [0.0, 1.0 - h * drag]])
        mean.append(along @ mean[-1] + h * np.array([0.0, drive * u]))
        now, after = slice(2 * t, 2 * t + 2), slice(2 * t + 2, 2 * t + 4)
        blocks[after, : 2 * t + 2] = along @ blocks[now, : 2 * t + 2]
        blocks[: 2 * t + 2, after] = blocks[after, : 2 * t + 2].T
        blocks[after, after] = along @ blocks[now, now] @ along.T + h * np.diag([0.01, 0.09])
    return np.concatenate(mean), blocks


def brute(drag, drive, forces, lengths, seen, given_first=True):
    """Return log p(seen | parameters) of what is not NaN, given the first observation, as one Gaussian."""
    mean, blocks = joint(drag, drive, forces, lengths)
    shown = np.kron(np.eye(len(forces) + 1), SHOWN)
    mean, blocks = shown @ mean, shown @ blocks @ shown.T + np.kron(np.eye(len(forces) + 1), SENSED)
    flat = seen.ravel()
    there = np.flatnonzero(~np.isnan(flat))

    def density(rows):
        if not len(rows):
            return 0.0
        return stats.multivariate_normal(mean[rows], blocks[np.ix_(rows, rows)]).logpdf(flat[rows])

    return density(there) - (density(there[there < 2]) if given_first else 0.0)


def filtered(system, observations, designs, theta, **given):
    likelihood = Kalman(system, **given)
    table = history.tabulate(Record(jnp.asarray(observations)[None], jnp.asarray(designs)[None]))
    theta = tuple(jnp.full((1, 1), value) for value in theta)
    count = jnp.asarray(len(designs))
    return float(jax.jit(lambda theta: history.log_likelihood(likelihood, table, count, theta)[1])(theta)[0, 0])


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(3)
    return draw.normal(0.3, 0.6, (8, 2)), draw.uniform(-1.0, 1.0, 7)


@pytest.mark.parametrize(("kind", "late"), [(Cart, 0.0), (LateCart, 2.0), (HalfLateCart, 1.25)])
def test_the_density_of_a_record(kind, late, data):
    seen, forces = data
    got = filtered(kind(), seen, forces[:, None], (0.7, 1.1))
    np.testing.assert_allclose(got, brute(0.7, 1.1, working(forces, late), [H] * 7, seen), rtol=1e-10)


@pytest.mark.parametrize("late", [0.0, 0.6, 1.0, 2.3, 2.999])
def test_an_unknown_delay(late, data):
    seen, forces = data
    got = filtered(UnknownLateCart(), seen, forces[:, None], (0.7, 1.1, late))
    np.testing.assert_allclose(got, brute(0.7, 1.1, working(forces, late), [H] * 7, seen), rtol=1e-10)


def with_gaps(data):
    seen, forces = data
    seen = seen.copy()
    seen[0, 1] = seen[2, 0] = seen[5, 1] = np.nan
    seen[3] = np.nan
    return seen, forces


def table_of(system, seen, forces, times=None):
    from nestbed.evaluation import records

    return records.tabulated(system, records.read(system, seen, forces, times))


def test_missing_samples(data):
    seen, forces = with_gaps(data)
    table = table_of(Cart(), seen, forces[:, None])
    got = filtered(Cart(), table.record.observations[0], table.record.designs[0], (0.7, 1.1), given=True)
    np.testing.assert_allclose(got, brute(0.7, 1.1, forces, [H] * 7, seen), rtol=1e-10)


def test_uneven_times_and_pauses(data):
    """What is longer than a step is cut; all rows by brute force, with nothing seen within a pause."""
    seen, forces = with_gaps(data)
    times = np.cumsum([1.0, 0.4, 0.3, 0.35, 1.1, 0.4, 0.05, 0.8])
    table = table_of(Cart(), seen, forces[:, None], times)
    rows = table.record
    assert table.experiment.tolist() == [0, 1, 2, 3, 3, 3, 4, 5, 6, 6]
    np.testing.assert_allclose(rows.designs[0, :, 1], [0.4, 0.3, 0.35, *[1.1 / 3] * 3, 0.4, 0.05, 0.4, 0.4])
    got = filtered(Cart(), rows.observations[0], rows.designs[0], (0.7, 1.1), given=True)
    wanted = brute(0.7, 1.1, np.asarray(rows.designs[0, :, 0]), rows.designs[0, :, 1], np.asarray(rows.observations[0]))
    np.testing.assert_allclose(got, wanted, rtol=1e-10)


def test_delays_of_uneven_times(data):
    """A design arrives a time later, not so many samples: the mean of what was held then, by its integral."""
    seen, forces = data
    times = np.cumsum([0.0, 0.4, 0.2, 0.2, 0.4, 0.1, 0.3, 0.4])
    table = table_of(HalfLateCart(), seen, forces[:, None], times)
    given = {"given": True, "memory": table.memory}
    got = filtered(HalfLateCart(), seen, table.record.designs[0], (0.7, 1.1), **given)
    total = np.cumsum([0.0, *(forces * np.diff(times))])  # of the force, nothing before the first
    late = np.diff(np.interp(times - 1.25 * H, times, total)) / np.diff(times)
    np.testing.assert_allclose(got, brute(0.7, 1.1, late, np.diff(times), seen), rtol=1e-10)


def test_several_records_of_different_lengths(data):
    seen, forces = with_gaps(data)
    parts = [seen, seen[:4] + 0.1, seen[2:7]], [forces, forces[:3], forces[3:7]]
    table = table_of(Cart(), parts[0], [part[:, None] for part in parts[1]])
    got = filtered(Cart(), table.record.observations[0], table.record.designs[0], (0.7, 1.1), given=True)
    wanted = sum(brute(0.7, 1.1, u, [H] * len(u), y) for y, u in zip(*parts, strict=True))
    np.testing.assert_allclose(got, wanted, rtol=1e-10)


class BiasedCart(Cart):
    """A sensor that is off by an unknown bias, and one of unknown noise: the first observation tells of both."""

    prior = {**Cart.prior, "bias": dist.Normal(0.0, 0.5), "noise": dist.LogNormal(-2.0, 0.3)}
    sensors = {"near": 0.2, "far": "noise"}

    def observe(self, x, theta):
        return x.place + theta.bias, 0.5 * x.place + 0.2 * x.speed


def test_a_first_observation_that_tells_of_the_parameters_counts(data):
    seen, forces = data
    off = seen - np.array([0.15, 0.0])
    got = filtered(BiasedCart(), seen, forces[:, None], (0.7, 1.1, 0.15, 0.1))
    np.testing.assert_allclose(got, brute(0.7, 1.1, forces, [H] * 7, off, given_first=False), rtol=1e-10)


def test_states_seen_as_they_are_may_have_gaps():
    """A system without sensors: the same densities as where every state is seen, and brute force with gaps."""
    system = SeenCart()
    draw = np.random.default_rng(5)
    seen = np.concatenate([[[0.3, -0.2]], draw.normal(0.3, 0.4, (5, 2))])
    forces = draw.uniform(-1.0, 1.0, (5, 1))
    theta = 0.7, 1.1
    rows = Record(jnp.asarray(seen)[None], jnp.asarray(forces)[None])
    exact = nb.likelihood.of(system)
    parameters = tuple(jnp.full((1, 1), value) for value in theta)
    plain = history.log_likelihood(exact, history.tabulate(rows), jnp.asarray(5), parameters)
    table = table_of(system, seen, forces, np.arange(6) * H)
    got = filtered(system, seen, table.record.designs[0], theta, given=True)
    np.testing.assert_allclose(got, float(plain[1][0, 0]), rtol=1e-9)
    seen[2, 1] = seen[4, 0] = np.nan
    table = table_of(system, seen, forces)
    got = filtered(system, seen, table.record.designs[0], theta, given=True)
    mean, blocks = joint(*theta, forces[:, 0], [H] * 5, np.zeros((2, 2)))
    there = 2 + np.flatnonzero(~np.isnan(seen[1:].ravel()))
    wanted = stats.multivariate_normal(mean[there], blocks[np.ix_(there, there)]).logpdf(seen.ravel()[there])
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


def test_records_tell_together_what_they_tell_apart():
    """Where every state is seen, what another record begins with adds nothing, and is no number of its own."""
    system, draw = SeenCart(), np.random.default_rng(6)
    seen = [np.concatenate([[[0.3, -0.2]], draw.normal(0.3, 0.4, (n, 2))]) for n in (4, 3)]
    forces = [draw.uniform(-1.0, 1.0, (n, 1)) for n in (4, 3)]
    w = tuple(jnp.full((1, 1), value) for value in (0.2, -0.3))
    theta, slopes = proposal.parameters(system.parameters, w)

    def told(which):
        read = records.read(system, [seen[i] for i in which], [forces[i] for i in which], None)
        table = records.tabulated(system, read)
        likelihood, steps = Kalman(system, given=True, memory=table.memory), table.record.designs.shape[1]
        return sensitivity.of_histories(likelihood, table.record, jnp.asarray(steps), theta, slopes).information[0]

    np.testing.assert_allclose(told([0, 1]), told([0]) + told([1]), rtol=1e-9)


def by_grid(observations, forces, late=0.0):
    """Return posterior mean and covariance of drag and drive, and the log-evidence, on a grid of the prior."""
    z = np.linspace(-5.0, 5.0, 61)
    drag, drive = np.exp(-0.5 + 0.3 * z), 1.0 + 0.4 * z
    logs = np.array(
        [[brute(a, b, working(forces, late), [H] * len(forces), observations) for b in drive] for a in drag]
    )
    prior = stats.norm.logpdf(z)[:, None] + stats.norm.logpdf(z) + 2 * np.log(z[1] - z[0])
    weights = np.exp(logs + prior - (logs + prior).max())
    evidence = np.log(weights.sum()) + (logs + prior).max()
    weights /= weights.sum()
    values = np.stack(np.meshgrid(drag, drive, indexing="ij"), axis=-1).reshape(-1, 2)
    mean = weights.ravel() @ values
    return mean, (values - mean).T @ (weights.ravel()[:, None] * (values - mean)), evidence


@pytest.mark.filterwarnings("ignore:the model does not explain the data")  # they are made up
@pytest.mark.slow
def test_the_posterior_of_a_record_with_gaps(data):
    """8 keys: within five standard errors of quadrature."""
    seen, forces = with_gaps(data)
    mean, covariance, evidence = by_grid(seen[:6], forces[:5])
    found = [nb.posterior(jax.random.key(i), Cart(), seen[:6], forces[:5, None]) for i in range(8)]
    for got, truth in (
        (np.array([each.mean for each in found]), mean),
        (np.array([each.covariance for each in found]), covariance),
        (np.array([each.log_predictive.sum() for each in found]), evidence),
    ):
        assert np.all(np.abs(got.mean(axis=0) - truth) < 5 * got.std(axis=0, ddof=1) / 8**0.5 + 1e-4)
    assert found[0].residuals.shape == (5, 2)
    assert np.isnan(found[0].residuals[2]).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the model does not explain the data")
def test_what_is_known_of_hidden_states(data):
    """Filtered means and deviations, averaged over the posterior by a grid."""
    seen, forces = with_gaps(data)
    found = nb.posterior(KEY, Cart(), seen, forces[:, None], particles=4096)
    assert found.course.states.shape == (8, 2)
    theta, weights = np.stack(found.belief.theta, -1)[:200], np.exp(found.belief.log_weights)[:200]
    means = []
    for drag, drive in theta:
        mean, blocks = joint(drag, drive, forces, [H] * 7)
        shown = np.kron(np.eye(8), SHOWN)
        there = np.flatnonzero(~np.isnan(seen.ravel()))
        cross = (blocks @ shown.T)[-2:, there]
        inner = (shown @ blocks @ shown.T + np.kron(np.eye(8), SENSED))[np.ix_(there, there)]
        means.append(mean[-2:] + cross @ np.linalg.solve(inner, seen.ravel()[there] - (shown @ mean)[there]))
    weights /= weights.sum()
    off = found.course.states[-1] - weights @ np.array(means)
    assert np.all(np.abs(off) < 0.2 * found.course.states_sd[-1])


def test_nothing_is_known_beyond_the_start_where_nothing_is_seen():
    known = gaussian.at_start(Cart(), (3,))
    state, found = gaussian.corrected(Cart(), known, (0.0,), (0.7, 1.1), lambda i, *_: jnp.full(3, jnp.nan), gaps=True)
    for before, after in zip(jax.tree.leaves(known), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(before, after)
    assert not any(np.any(each.measured) for each in found)


def test_sensors_that_round_have_the_variance_of_their_step():
    system = Cart(resolution={"far": 0.3})
    assert sensors.variances(system, (), (), ())[1] == pytest.approx(0.01 + 0.09 / 12)


def test_designs_of_one_record_do_not_arrive_in_the_next(data):
    seen, forces = data
    parts = [seen[:5], seen[2:7]], [forces[:4], forces[3:7]]
    table = table_of(LateCart(), parts[0], [part[:, None] for part in parts[1]])
    given = {"given": True, "memory": table.memory}
    got = filtered(LateCart(), table.record.observations[0], table.record.designs[0], (0.7, 1.1), **given)
    wanted = sum(brute(0.7, 1.1, working(u, 2.0), [H] * len(u), y) for y, u in zip(*parts, strict=True))
    np.testing.assert_allclose(got, wanted, rtol=1e-10)


def double_noise(monkeypatch):
    variances = sensors.variances
    monkeypatch.setattr(sensors, "variances", lambda *a: tuple(2.0 * v for v in variances(*a)))


def delay_off_by_one(monkeypatch):
    arriving = sensors.arriving
    monkeypatch.setattr(
        sensors, "arriving", lambda system, designs, *a: arriving(system, (*designs[1:], designs[0]), *a)
    )


def missing_is_zero(monkeypatch):
    corrected = gaussian.corrected

    def filled(system, known, u, theta, value_of, *, gaps):
        return corrected(system, known, u, theta, lambda *a: jnp.nan_to_num(value_of(*a)), gaps=gaps)

    monkeypatch.setattr(gaussian, "corrected", filled)


def no_sensor_part(monkeypatch):
    spread = gaussian._spread
    monkeypatch.setattr(gaussian, "_spread", lambda known, slope, own: spread(known, slope, 1e-6))


def no_process_noise(monkeypatch):
    from nestbed.model import integration

    noise = integration.noise
    monkeypatch.setattr(
        integration,
        "noise",
        lambda *a, **k: noise(*a, **k)._replace(variance=tuple(0.0 * v for v in noise(*a, **k)[0])),
    )


def process_noise_twice(monkeypatch):
    from nestbed.model import integration

    noise = integration.noise
    monkeypatch.setattr(
        integration,
        "noise",
        lambda *a, **k: noise(*a, **k)._replace(variance=tuple(2.0 * v for v in noise(*a, **k).variance)),
    )


@pytest.mark.parametrize(
    ("mutate", "check"),
    [
        (process_noise_twice, lambda data: test_the_density_of_a_record(Cart, 0.0, data)),
        (double_noise, lambda data: test_the_density_of_a_record(Cart, 0.0, data)),
        (delay_off_by_one, lambda data: test_the_density_of_a_record(LateCart, 2.0, data)),
        (missing_is_zero, test_missing_samples),
        (no_sensor_part, lambda data: test_the_density_of_a_record(Cart, 0.0, data)),
        (no_process_noise, lambda data: test_the_density_of_a_record(Cart, 0.0, data)),
    ],
)
def test_mutants_are_caught(mutate, check, data, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check(data)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"sensors": {"near": 0.2}}, "does not return one value per sensor, 1 in all"),
        ({"sensors": {"near": 0.2, "far": -1.0}}, "standard deviation of its noise, 0 or more"),
        ({"sensors": {"near": 0.2, "far": "dragg"}}, "which is no parameter; did you mean 'drag'"),
        ({"sensors": "near"}, "write a dictionary of names and standard deviations"),
        ({"delay": {"force": -1}}, "from 0 to 256"),
        ({"delay": {"forse": 1}}, "which is no design; did you mean 'force'"),
        ({"delay": {"force": "drive"}}, "the prior of 'drive' reaches below 0"),
        ({"resolution": {"nearer": 0.1}}, "which is not seen; did you mean 'near'"),
        ({"start": {"place": dist.Cauchy(0.0, 1.0)}}, "but a filter needs both"),
        ({"state_particles": 1}, "give how many particles follow the hidden states"),
        (
            {"sensors": {"near": 0.0, "far": 0.1}, "diffusion": (0.0, 0.0), "start": 0.0},
            "the sensor 'near' of Cart has no noise, and no state that it shows has any",
        ),
    ],
)
def test_mistakes_in_a_description_get_a_sentence(settings, told):
    with pytest.raises(nb.NestbedError, match=told):
        Cart(**settings)


@pytest.mark.parametrize(
    ("observations", "designs", "times", "told"),
    [
        (np.zeros((3, 2)), np.zeros((2, 1)), [0.0, 1.0, 0.5], "the times of the record do not rise: 1 at row 1"),
        (np.zeros((3, 2)), np.zeros((2, 1)), [0.0, 1.0], "there are 3 observations: give one time for each"),
        (np.zeros((3, 2)), np.zeros((2, 1)), [0.0, 1.0, 1e9], "give times in the unit of the model"),
        (np.full((3, 2), np.nan), np.zeros((2, 1)), None, "has no measurement at all"),
        (np.zeros((3, 2)), np.full((2, 1), np.nan), None, "every design must be known"),
        (np.zeros((3, 2)), np.zeros((2, 1)), [0.0, np.nan, 2.0], "the time of the record at row 1 is nan"),
        (np.zeros((3, 2)), np.zeros((2, 1)), [0.0, 1.0, 1.001], "which is 800 times in the delay of 0.8"),
        ([np.zeros((3, 2))], [np.zeros((3, 1))], None, "record 0 has observations of shape"),
        ([np.zeros((3, 2))], np.zeros((3, 1)), None, "1 records of observations but 3 of designs"),
        (
            [np.zeros((3, 2))] * 2,
            [np.zeros((2, 1))] * 2,
            [0.0, 1.0, 2.0],
            "times must be a list with one entry for each",
        ),
    ],
)
def test_mistakes_in_records_get_a_sentence(observations, designs, times, told):
    system = LateCart() if "delay" in told else Cart()
    with pytest.raises(nb.NestbedError, match=told):
        nb.posterior(KEY, system, observations, designs, times=times)


def test_a_sensor_named_as_no_state_needs_observe():
    class Dumb(nb.System):
        state, designs, prior = ("place",), nb.Box(force=(-1.0, 1.0)), {"drag": dist.Normal(1.0, 0.1)}
        sensors = {"somewhere": 0.1}

        def drift(self, x, u, theta):
            return -theta.drag * x.place + u.force

    with pytest.raises(nb.NestbedError, match="which is no state, so Dumb needs a method observe"):
        Dumb()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no proposal fits the posterior of 2 records of Heater")  # of 512, and so told
@pytest.mark.parametrize("name", ["encoder_pendulum", "encoder_cart_pole", "heater"])
def test_posteriors_are_calibrated(name):
    """Ranks of true parameters among posterior draws are uniform: Kolmogorov–Smirnov, false alarms of 1 in 1000."""
    from nestbed.evaluation import experiments
    from nestbed.policies.base import prepare

    system = nb.systems.load(name)
    policy = prepare(nb.policies.PRBS(system), system, system.horizon)
    theta, record = experiments.simulated(KEY, system, policy, system.horizon, 512)
    found = nb.posterior(jax.random.key(1), system, *record, particles=256)
    weights = np.exp(found.belief.log_weights)
    for truth, draws in zip(theta, found.belief.theta, strict=True):
        ranks = np.sum(weights * (np.asarray(draws) < np.asarray(truth)[:, None]), axis=1)
        assert stats.kstest(ranks, "uniform").pvalue > 1e-3 / len(theta)
    z = np.asarray(found.residuals).ravel()
    assert stats.kstest(z, "norm").pvalue > 1e-3


@pytest.mark.parametrize(("rows", "particles"), [(1, 1), (3, 901), (25, 90), (2500, 1), (2, 3001)])
def test_blocks_of_histories_are_those_of_each_record_and_particle(rows, particles, monkeypatch):
    """Whatever they are cut into, the last block moved back: the same densities and carries."""
    system, draw = LateCart(), np.random.default_rng(rows)
    record = Record(
        jnp.asarray(draw.normal(0.3, 0.6, (rows, 8, 2))), jnp.asarray(draw.uniform(-1.0, 1.0, (rows, 7, 1)))
    )
    theta = system.parameters.constrain(system.parameters.sample(KEY, (rows, particles)))

    def run(block):
        monkeypatch.setattr(history, "BLOCK", block)
        table, count = history.tabulate(record), jnp.asarray(5)
        return jax.tree.leaves(jax.jit(lambda: history.log_likelihood(Kalman(system), table, count, theta))())

    for a, b in zip(run(history.BLOCK), run(rows * particles), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)  # rounding of states about 1


class Rocket(nb.System):
    """Its drag is far too fast for the Runge–Kutta step where the prior hardly leads; its speed is hidden."""

    state = ("height", "speed")
    designs = nb.Box(thrust=(-5.0, 5.0))
    prior = {"drag": dist.LogNormal(-1.5, 1.2)}
    start = {"speed": dist.Normal(9.0, 1.0)}
    sensors = {"height": 0.02}
    step, diffusion, integrator, substeps = 0.05, (0.005, 0.1), "rk4", 2

    def drift(self, x, u, theta):
        return x.speed, u.thrust - theta.drag * x.speed * jnp.abs(x.speed)


def test_where_a_filter_explodes_nothing_can_be_seen():
    """Not a number that is no number: such particles are dropped; what a fault is is told by `cause`."""
    system = Rocket()
    record = Record(jnp.array([[[0.0], [0.4], [0.8]]]), jnp.ones((1, 2, 1)))
    theta = (jnp.array([[0.2, 30.0, 1e6]]),)
    table = history.tabulate(record)
    carry, density = history.log_likelihood(Kalman(system), table, jnp.asarray(2), theta)
    assert np.isfinite(density[0, 0])
    assert density[0, 2] == -np.inf
    assert not np.isnan(density).any()
    assert np.isfinite(jnp.stack(carry.state.mean)).all()
