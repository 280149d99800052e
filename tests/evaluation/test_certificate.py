"""Certificates against exact gains, quadrature and their own promises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nestbed as nb
from nestbed.belief import proposal
from nestbed.evaluation import experiments, judging, level_sets, weighing
from nestbed.likelihood.sensitivity import Local
from nestbed.model.prior import Prior
from nestbed.numerics import controls
from toys import Banana, Constant, Drive, Leak, LinearLeak, Squared, gains_by_quadrature

KEY = jax.random.key(0)
FLOW = 2.0
TRUTH = 0.5 * np.log(1.0 + 3 * FLOW**2)
"""What three experiments of `Drive` gain, by its closed form."""


def drive(draws, records=1024, key=KEY, **settings):
    return nb.certificate(key, Drive(), Constant(FLOW), horizon=3, records=records, draws=draws, **settings)


def within(value, truth, error, most=4.5):
    return abs(value - truth) < most * error


def test_the_closed_form_lies_between_the_bounds():
    """64 draws: both bounds, and what lies between them, at 4.5 standard errors; control variates leave no variance."""
    found = drive(64)
    assert found.lower <= found.mean <= found.upper
    assert found.upper - found.lower < 0.01
    assert found.interval.low < TRUTH < found.interval.high
    assert found.standard_error < 0.01
    assert found.ess.shape == (1024,)
    assert 0.8 < found.ess.min() <= found.ess.max() <= 1.0
    assert found.records == 1024
    assert not found.mixed.any()


def evidences(draws, records=4096):
    """Return both estimates of log p(z) of records of `Drive`, with and without θ₀, less the exact one."""
    system = Drive()
    theta, record = experiments.simulated(KEY, system, Constant(FLOW), 3, records)
    exact = nb.posterior(KEY, system, record.observations, record.designs, belief="exact").log_predictive.sum(axis=1)
    weigh = eqx.filter_jit(lambda *a: weighing.by_gaussian.__wrapped__(*a))
    if weighing.likeliest is KNOWN:
        KNOWN.theta = theta
    weighed = weigh(jax.random.key(1), system, theta, record, jnp.asarray(3), draws, (True,) * len(system.prior))
    return np.asarray(weighed.excluding - exact), np.asarray(weighed.including - exact), weighed


def sound(draws=2):
    """Return whether the evidence without θ₀ is unbiased and its log errs to the low side, with θ₀ to the high side."""
    without, with_own, weighed = evidences(draws)
    mean = lambda values: (values.mean(), values.std() / np.sqrt(len(values)))  # noqa: E731
    (ratio, ratio_error), (low, low_error), (high, high_error) = map(mean, (np.exp(without), without, with_own))
    plain = weighed.average - weighed.excluding
    adjusted = controls.adjusted(np.asarray(plain), np.asarray(weighed.controls))
    return (
        abs(ratio - 1.0) < 4.5 * ratio_error
        and low < -2 * low_error
        and high > 2 * high_error
        and high - low < 0.1
        and adjusted.std() < 0.5 * plain.std()
    )


def test_each_evidence_errs_to_its_own_side():
    """Against the exact evidence of each record, so that even a good proposal's small errors show."""
    assert sound()


class Known:
    """A start that knows θ₀."""

    theta = None

    def __call__(self, key, system, own, record, count, free):
        return jnp.stack(proposal.whiten(system.parameters, system.parameters.unconstrain(self.theta)), axis=-1)


KNOWN = Known()


def knowing(patch):
    """A fit that starts from θ₀ and stays there."""
    true_fit = proposal.fit
    patch(weighing, "likeliest", KNOWN)
    patch(proposal, "fit", lambda *a, **k: true_fit(*a, **{**k, "steps": 0}))


def without_jacobian(patch):
    """A proposal density that forgets how the fit stretches its draws."""
    whole = proposal.Proposal._log_density

    def density(self, square):
        return whole(self, square) - jnp.sum(jnp.log(jnp.diagonal(self.factor, axis1=1, axis2=2)), axis=-1)[:, None]

    patch(proposal.Proposal, "_log_density", density)


def forgotten(patch):
    """A lower bound without θ₀."""
    plain = weighing._weigh
    patch(weighing, "_weigh", lambda *a, **k: (w := plain(*a, **k))._replace(including=w.excluding))


def wrong_sign(patch):
    """A control variate that is added."""
    right = controls.adjusted
    patch(controls, "adjusted", lambda values, c: 2.0 * values - right(values, c))


@pytest.mark.parametrize("mutant", [knowing, without_jacobian, forgotten, wrong_sign])
def test_mutants_are_caught(monkeypatch, mutant):
    mutant(monkeypatch.setattr)
    assert not sound()


def test_the_gap_closes_as_draws_are_added():
    gaps = [drive(draws, records=256).upper - drive(draws, records=256).lower for draws in (4, 64)]
    assert gaps[0] > 8 * gaps[1] > 0


def test_more_records_are_made_until_the_accuracy_is_reached():
    system = Leak()
    policy = nb.policies.Random(system)
    found = nb.certificate(KEY, system, policy, records=256, accuracy=0.02)
    assert 0.5 * (found.interval.high - found.interval.low) <= 0.02
    assert found.records > 256
    first = nb.certificate(KEY, system, policy, records=256)
    assert first.records == 256
    with pytest.warns(UserWarning, match=r"accuracy of 0.001 nats was not reached: .* since the bounds are apart"):
        nb.certificate(KEY, system, policy, records=256, draws=4, accuracy=0.001)


def test_the_same_key_gives_the_same_rigs_so_that_differences_are_sure():
    one, other = (nb.certificate(KEY, Drive(), Constant(flow), horizon=3, records=512) for flow in (2.0, 1.5))
    more = one.less(other)
    truth = TRUTH - 0.5 * np.log(1.0 + 3 * 1.5**2)
    assert more.interval.low < truth < more.interval.high
    assert more.standard_error < 0.01
    with pytest.raises(nb.NestbedError, match="certificates are of other records"):
        one.less(drive(64, records=512, key=jax.random.key(1)))


def test_the_curve_is_the_certificate_after_each_experiment():
    curve = drive(64, records=256).curve
    truth = 0.5 * np.log(1.0 + np.arange(1, 4) * FLOW**2)
    assert curve.mean.shape == (3,)
    assert (np.abs(curve.mean - truth) < 4.5 * curve.standard_error + 0.01).all()
    assert (curve.lower <= curve.upper).all()


class TwoGains(Drive):
    """Two gains of which one is of interest: they act together, so that they are known less well than either alone."""

    prior = {"gain": dist.Normal(0.0, 1.0), "other": dist.Normal(0.0, 0.5)}

    def drift(self, x, u, theta):
        return (theta.gain + theta.other) * u.flow

    def features(self, x, u):
        return ((u.flow, u.flow),)


@pytest.mark.slow
def test_a_target_is_certified_with_the_rest_as_nuisance():
    """I(gain; z) = ½ log of the ratio of the sum's predictive variances with and without the gain's own."""
    information = 3 * FLOW**2
    truth = 0.5 * np.log((1.0 + information * 1.25) / (1.0 + information * 0.25))
    found = nb.certificate(KEY, TwoGains(), Constant(FLOW), horizon=3, records=2048, target=("gain",))
    assert found.target == ("gain",)
    assert found.interval.low < truth < found.interval.high
    assert found.upper - found.lower < 0.02
    assert found.upper - found.lower > 0.0
    both = nb.certificate(KEY, TwoGains(), Constant(FLOW), horizon=3, records=256, target=("other", "gain"))
    assert both.target is None
    assert both.mean > found.mean


class Line(nb.System):
    """An intercept and the logarithm of a gain, seen in noise: linear in Gaussian coordinates."""

    state = ("height",)
    designs = nb.Box(place=(-1.0, 1.0))
    prior = {"offset": dist.Normal(1.0, 0.5), "gain": dist.LogNormal(0.0, 0.7)}
    step, diffusion, noise_floor, integrator = 1.0, (0.5,), 0.0, "euler"

    def drift(self, x, u, theta):
        return theta.offset + jnp.log(theta.gain) * u.place - x.height

    def worth(self, theta):
        return theta.gain**2 * jnp.exp(theta.offset)


PLACES = np.array([-1.0, -0.5, 0.2, 1.0])


def told_about_worth():
    """Return what `PLACES` tell about the worth: it is the exponential of a combination of Gaussian coordinates."""
    seen = np.stack([np.ones(4), PLACES], axis=1)
    prior, slopes = np.diag([0.5**2, 0.7**2]), np.array([1.0, 2.0])
    after = np.linalg.inv(np.linalg.inv(prior) + seen.T @ seen / 0.5**2)
    return 0.5 * np.log((slopes @ prior @ slopes) / (slopes @ after @ slopes))


def worth(target, records=1024, **settings):
    line = Line()
    policy = nb.policies.Replay(line, PLACES[:, None])
    return nb.certificate(KEY, line, policy, horizon=4, records=records, target=target, **settings)


@pytest.mark.slow
def test_what_follows_from_parameters_is_certified():
    """Against the closed form, at 4.5 standard errors; and whatever it is measured in, it is the same."""
    found = worth("worth")
    assert found.target == ("worth",)
    assert within(found.lower, told_about_worth(), found.lower_standard_error)
    assert within(found.upper, told_about_worth(), found.upper_standard_error)
    assert 0.0 < found.upper - found.lower < 0.01
    assert not found.elsewhere.any()
    line = Line()
    bent = worth(lambda theta: 1.0 / line.worth(theta) ** 0.3)
    assert within(bent.mean, found.mean, found.standard_error)


def told_about_a_bent_target(records=20_000):
    """Return what `PLACES` tell about offset + gain, and its error: both densities of the sum by quadrature.

    The posterior of (offset, log gain) is Gaussian; how fast the sum changes differs along the line that has its value.
    """
    random = np.random.default_rng(0)
    seen = np.stack([np.ones(4), PLACES], axis=1)
    middle, before = np.array([1.0, 0.0]), np.diag([0.5**2, 0.7**2])
    after = np.linalg.inv(np.linalg.inv(before) + seen.T @ seen / 0.5**2)
    own = middle + random.standard_normal((records, 2)) * [0.5, 0.7]
    outcomes = own @ seen.T + 0.5 * random.standard_normal((records, 4))
    means = (after @ (np.linalg.inv(before) @ middle[:, None] + seen.T @ outcomes.T / 0.5**2)).T
    value = own[:, 0] + np.exp(own[:, 1])
    logs = np.linspace(-5.0, 5.0, 4001)

    def log_density(value, mean, covariance):
        gain = stats.norm(mean[:, 1:], covariance[1, 1] ** 0.5).pdf(logs)
        rest = mean[:, :1] + covariance[0, 1] / covariance[1, 1] * (logs - mean[:, 1:])
        width = (covariance[0, 0] - covariance[0, 1] ** 2 / covariance[1, 1]) ** 0.5
        offset = stats.norm(rest, width).pdf(value[:, None] - np.exp(logs))
        return np.log((gain * offset).sum(axis=1) * (logs[1] - logs[0]))

    every = np.concatenate(
        [
            log_density(value[part], means[part], after) - log_density(value[part], middle[None], before)
            for part in np.array_split(np.arange(records), 40)
        ]
    )
    return every.mean(), every.std() / records**0.5


@pytest.mark.slow
def test_a_target_that_bends_is_certified():
    """At 4.5 standard errors of both; without the slopes along which it is solved for, the gain would be another."""
    truth, error = told_about_a_bent_target()
    found = worth(lambda theta: theta.offset + theta.gain, records=16_384)
    assert within(found.mean, truth, np.hypot(found.standard_error, error))
    assert found.upper - found.lower < 0.01


@pytest.mark.slow
def test_mutant_target_without_its_slopes_is_caught(monkeypatch):
    monkeypatch.setattr(level_sets, "_log_det", lambda squares: jnp.zeros(squares.shape[0]))
    jax.clear_caches()
    truth, error = told_about_a_bent_target()
    found = worth(lambda theta: theta.offset + theta.gain, records=16_384)
    jax.clear_caches()
    assert not within(found.mean, truth, np.hypot(found.standard_error, error))


@pytest.mark.slow
def test_parameters_and_what_follows_from_them_are_one_target():
    """A parameter that is named and one that a function returns are the same."""

    class Three(Line):
        prior = {**Line.prior, "rest": dist.Normal(0.0, 1.0)}

        def drift(self, x, u, theta):
            return theta.offset + theta.rest + jnp.log(theta.gain) * u.place - x.height

    system = Three()
    policy = nb.policies.Replay(system, PLACES[:, None])
    named, through = (
        nb.certificate(KEY, system, policy, horizon=4, records=512, target=target)
        for target in (("offset", "gain"), ("gain", lambda theta: theta.offset))
    )
    assert through.target == ("gain", "target")
    assert named.mean == pytest.approx(through.mean, abs=0.005)


@pytest.mark.slow
def test_a_target_that_has_its_value_twice_is_told():
    with pytest.warns(UserWarning, match="records target has the same value at several places"):
        worth(lambda theta: (theta.offset - 1.0) ** 2, records=256)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (("worht",), r"no parameter 'worht' to be a target.*needs a method worht\(self, theta\)"),
        (("drift",), "no parameter 'drift' to be a target"),
        (lambda theta: 1.0, r"returned float.* of shape \(\) for parameters of shape"),
        (lambda theta: theta.mass, "the target target failed with AttributeError"),
        (lambda theta: 0.0 * theta.gain, "is the same for all parameters"),
        (lambda theta: jnp.log(theta.offset - 1.0), "is not finite for some parameters"),
        (("gain", lambda theta: theta.offset), "has 2 quantities, as many as Line has parameters"),
    ],
)
def test_a_target_that_is_none_is_told(target, told):
    with pytest.raises(nb.NestbedError, match=told):
        worth(target)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"target": ("gian",)}, "no parameter 'gian' to be a target; did you mean 'gain'"),
        ({"target": ()}, "target is empty"),
        ({"accuracy": 0.0}, "accuracy is 0.0, but it must be a positive number of nats"),
        ({"records": 0}, "records is 0"),
        ({"draws": 0}, "draws is 0"),
        ({"horizon": 0}, "horizon is 0"),
    ],
)
def test_mistakes_get_a_sentence(settings, told):
    with pytest.raises(nb.NestbedError, match=told):
        nb.certificate(KEY, Drive(), Constant(FLOW), **{"horizon": 3, **settings})


@pytest.mark.parametrize(
    "kind", [pytest.param(Squared, marks=pytest.mark.slow), pytest.param(Banana, marks=pytest.mark.slow)]
)
def test_two_modes_and_bananas_are_bounded_by_mixtures(kind):
    """Against quadrature of 2048 other records: within 4.5 errors. The fallback is taken for all
    records of two modes.
    """
    system = kind()
    policy = nb.policies.Random(system)
    truth = gains_by_quadrature(system, policy, 2048)
    found = nb.certificate(KEY, system, policy, records=256)
    error = np.hypot(truth.std() / np.sqrt(len(truth)), found.standard_error)
    assert within(found.mean, truth.mean(), error)
    assert found.upper - found.lower < 0.02
    assert found.mixed.mean() > (0.99 if kind is Squared else 0.0)


@pytest.mark.slow
def test_two_modes_are_weighed_by_several_fits():
    """Between the bounds by quadrature of 2048 other records, within 4.5 errors, from as many records as are afforded;
    no particle is led from the prior.
    """
    system = Squared()
    policy = nb.policies.Random(system)
    judge = judging.Judge(KEY, system, policy, system.horizon, 64, None)
    judge.probe()
    assert judge.ways == [weighing.by_fits]
    truth = gains_by_quadrature(system, policy, 2048)
    found = nb.certificate(KEY, system, policy)
    assert found.records == judging.AFFORDED[weighing.by_fits]
    error = np.hypot(truth.std() / np.sqrt(len(truth)), found.standard_error)
    assert within(found.mean, truth.mean(), error)
    assert found.upper - found.lower < 0.02
    after = judge.after_each()
    assert {len(each.lower) for each in after} == {judging.CURVED}
    own = after[-1].lower
    assert within(own.mean(), found.lower, np.hypot(own.std() / np.sqrt(len(own)), found.lower_standard_error))


def test_records_are_fewer_where_they_take_long(monkeypatch):
    system = Squared()
    judge = judging.Judge(KEY, system, nb.policies.Random(system), system.horizon, 64, None)
    cases = [
        (1e4, 0.0, weighing.by_gaussian, 1024),
        (1e4, 0.5, weighing.by_gaussian, 1024),
        (15e6, 0.1, weighing.by_gaussian, 256),
        (15e6, 1.0, weighing.by_gaussian, 64),
        (15e6, 0.0, weighing.by_fits, 256),
        (15e6, 0.0, weighing.by_mixture, 64),
        (1e5, 0.0, weighing.by_mixture, 256),
        (60e6, 0.0, weighing.by_gaussian, 256),
        (1e10, 0.0, weighing.by_gaussian, 64),
    ]
    for operations, unsuited, way, count in cases:
        monkeypatch.setattr(judging.effort, "operations", lambda *_, found=operations: int(found))
        judge.unsuited, judge.ways = unsuited, [way]
        assert judge.afforded == count


def test_records_that_one_fit_does_not_suit_are_weighed_by_several_before_mixtures(monkeypatch):
    """Each of them once more, and by mixtures only those that several fits do not suit either."""
    system, asked = Squared(), []
    judge = judging.Judge(KEY, system, nb.policies.Random(system), system.horizon, 64, None)
    rows = np.arange(6.0)

    def weighed(pilot, value):
        return weighing.Weighed(*(np.full(len(pilot), value) for _ in range(5)), np.array(pilot), np.zeros(len(pilot)))

    def again(how, key, theta, record, count, free, chosen):
        asked.append((how, list(chosen)))
        return weighed([0.05, 0.2, 0.02], 1.0) if how is weighing.by_fits else weighed([weighing.MIXED] * 2, 2.0)

    monkeypatch.setattr(judge, "weigh", lambda *_: weighed([0.9, 0.1, 0.8, 0.2, 0.0, 0.7], 0.0))
    monkeypatch.setattr(judge, "try_again", lambda *_: None)
    monkeypatch.setattr(judge, "again", again)
    (one,) = judge.weighed(KEY, KEY, (rows,), None, 3)
    assert asked == [(weighing.by_fits, [1, 3, 4]), (weighing.by_mixture, [1, 4])]
    np.testing.assert_array_equal(one.excluding, [0.0, 2.0, 0.0, 1.0, 2.0, 0.0])
    np.testing.assert_array_equal(one.pilot == weighing.MIXED, [False, True, False, True, True, False])


def test_the_same_rigs_are_met_whatever_is_weighed_together():
    """Records of small blocks are those of a large one."""
    system = Squared()
    judge = judging.Judge(KEY, system, nb.policies.Random(system), system.horizon, 64, None)
    theta, record, *_ = judge.rigs(0)
    judge.ways = [weighing.by_fits]
    parts = [judge.rigs(i) for i in range(2)]
    size = judge.size
    assert size < len(theta[0])
    for i, (own, seen, *_) in enumerate(parts):
        np.testing.assert_array_equal(own[0], theta[0][i * size : (i + 1) * size])
        np.testing.assert_array_equal(seen.observations, record.observations[i * size : (i + 1) * size])
    assert not np.array_equal(*(jax.random.key_data(part[2]) for part in parts))


def test_without_the_fallback_two_modes_would_be_told_by_the_gap(monkeypatch):
    """One Gaussian sees half of the posterior: the upper bound is log 2 too high, the lower one far too low."""
    monkeypatch.setattr(judging.Judge, "probe", lambda self: False)
    monkeypatch.setattr(judging, "GOOD", 0.0)
    system = Squared()
    with pytest.warns(UserWarning, match="records .* has a shape that no proposal fits"):
        found = nb.certificate(KEY, system, nb.policies.Random(system), records=256)
    assert found.upper - found.lower > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LinearLeak, Leak])
def test_intervals_cover_as_often_as_they_say(kind):
    """400 certificates of 256 records; the truth is exact, or from quadrature of many: 95 % ± 3.5 %."""
    system = kind()
    policy = nb.policies.Random(system)
    if kind is LinearLeak:
        exact = nb.eig(jax.random.key(5), system, policy, trajectories=100_000, belief="exact", gain="closed_form")
        truth = exact.mean
    else:
        truth = nb.certificate(jax.random.key(5), system, policy, records=200_000).mean
    found = [nb.certificate(jax.random.key(100 + i), system, policy, records=256).interval for i in range(400)]
    covered = np.mean([low <= truth <= high for low, high in found])
    assert 0.915 <= covered <= 0.985


@pytest.mark.slow
def test_a_nuisance_with_two_modes_is_no_excuse():
    """The sign of b cannot be told, and the target is another parameter: ½ log(1 + 1/0.5²), whatever b does."""

    class Apart(nb.System):
        state = ("x", "y")
        designs = nb.Box(u=(0.0, 1.0))
        prior = {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)}
        step, noise_floor, diffusion = 1.0, 0.0, (0.5, 0.05)

        def drift(self, x, u, theta):
            return theta.a, abs(theta.b)

    found = nb.certificate(KEY, Apart(), nb.policies.Random(Apart()), horizon=1, records=512, target="a")
    assert found.upper - found.lower < 0.02
    assert found.interval.low < 0.5 * np.log(5.0) < found.interval.high


@pytest.mark.slow
def test_moments_of_priors_that_a_grid_does_not_tell_are_left_out():
    """Two needles, and tails beyond the grid: their entropies by quadrature were 0.24 and 0.02 off."""
    needles = dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.array([0.5, 0.5])), dist.Normal(jnp.array([-5.0, 5.0]), 0.002)
    )
    for prior, known in (
        (needles, False),
        (dist.StudentT(0.5), False),
        (dist.StudentT(3.0), True),
        (dist.Beta(0.5, 0.5), True),
    ):
        _, _, entropy = Prior({"a": prior}).moments
        assert np.isfinite(entropy) == known
    assert Prior({"a": dist.Normal(0.0, 2.0)}).moments[2] == pytest.approx(
        0.5 * np.log(2 * np.pi * np.e * 4.0), abs=1e-6
    )


def test_controls_keep_the_mean_and_take_the_variance():
    random = np.random.default_rng(0)
    controls_ = random.normal(size=(400, 3))
    values = 2.0 + controls_ @ np.array([1.0, -2.0, 0.5]) + 0.1 * random.normal(size=400)
    adjusted = controls.adjusted(values, controls_)
    assert adjusted.std() < 0.12
    assert within(adjusted.mean(), 2.0, 0.1 / 20)
    assert controls.adjusted(values[:5], controls_[:5]).shape == (5,)


@pytest.mark.slow
def test_a_place_that_no_part_reaches_does_not_tear_the_bounds_apart():
    """Two modes seen through a square, the smaller of any size: the bounds stay close, and quadrature between them."""

    class Root(Squared):
        prior = {"root": dist.Normal(0.6, 0.5)}
        step, diffusion, noise_floor = 1.0, (1e-3,), 0.0

    found = nb.certificate(KEY, Root(), Constant(1.0), horizon=1, records=512)
    assert found.upper - found.lower < 0.05
    assert found.interval.low < 5.915 < found.interval.high  # E log p(z | θ) − E log p(z), on a grid


def test_a_fit_does_not_leave_the_prior_behind():
    """From the prior's edge a whole Gauss–Newton step would lead ten deviations off, where nothing is learned."""
    flat = Local(jnp.zeros(1), jnp.array([[5.0, -1.0]]), jnp.array([[[0.1, 0.0], [0.0, 1.0]]]))
    move, rise = proposal._newton(flat, jnp.zeros(1))
    np.testing.assert_allclose(move, [[proposal.REACH, -proposal.REACH / 50.0]])
    assert float(rise[0]) == pytest.approx(251.0)
