"""The excitations that engineers use: spectra, balance, limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestbed as nb
from toys import LinearLeak

LINK = nb.systems.load("double_link")
CART = nb.systems.load("cart_pole")
SIGNALS = (nb.policies.Chirp, nb.policies.Multisine, nb.policies.MaximumLength)


def played(policy, steps):
    memory, rows = policy.init(), []
    for _ in range(steps):
        memory, u = policy.step(jax.random.key(0), memory, jnp.zeros(4), jnp.zeros(2))
        rows.append(np.asarray(u))
    return np.array(rows)


@pytest.mark.parametrize("kind", SIGNALS)
@pytest.mark.parametrize("system", [LINK, CART, LinearLeak()])
def test_signals_stay_in_the_box_and_reach_its_limits(kind, system):
    rows = np.asarray(kind(system).table)
    low, high = np.array(system.designs.low), np.array(system.designs.high)
    assert ((rows >= low) & (rows <= high)).all()
    assert (np.abs(rows - 0.5 * (low + high)).max(0) > 0.4 * (high - low)).all()


def test_maximum_length_sequences_are_balanced_and_white():
    rows = np.asarray(nb.policies.MaximumLength(CART, order=6).table)[:, 0] / 5.0
    assert len(rows) == 63
    assert abs(rows.sum()) == 1
    correlations = [rows @ np.roll(rows, k) for k in range(1, 63)]
    np.testing.assert_allclose(correlations, -1)


def test_maximum_length_sequences_are_held_and_do_not_repeat_within_the_horizon():
    policy = nb.policies.MaximumLength(CART, hold=3)
    assert 3 * policy.table.shape[0] >= 50
    rows = played(policy, 12)[:, 0]
    np.testing.assert_array_equal(rows, np.repeat(np.asarray(policy.table)[:4, 0], 3))


def test_channels_of_a_maximum_length_sequence_are_nearly_uncorrelated():
    rows = np.asarray(nb.policies.MaximumLength(LINK, order=7).table) / [4.0, 2.0]
    assert abs(rows[:, 0] @ rows[:, 1]) == 1


def test_a_chirp_sweeps_from_the_lowest_to_the_highest_frequency():
    steps = 4000
    rows = np.asarray(nb.policies.Chirp(CART, low=1.0, high=4.0, horizon=steps).table)[:, 0]
    crossings = np.flatnonzero(np.diff(np.sign(rows[1:])))  # the first value is 0
    periods = 2 * np.diff(crossings) * CART.step
    assert 1 / periods[0] == pytest.approx(1.0, rel=0.1)
    assert np.mean(1 / periods[-20:]) == pytest.approx(4.0, rel=0.05)


def test_a_multisine_has_equal_power_in_its_band_and_none_outside():
    rows = np.asarray(nb.policies.Multisine(CART, low=0.8, high=2.0).table)[:, 0]
    power = np.abs(np.fft.rfft(rows)) ** 2
    band = np.arange(2, 6)  # harmonics of 1 / (50 · 0.05 s) = 0.4 per second
    np.testing.assert_allclose(power[band], power[band].mean(), rtol=1e-9)
    assert np.delete(power, band).max() < 1e-9 * power[band].mean()


def test_schroeders_phases_keep_the_peaks_low():
    """Of ten harmonics in phase the peak is √20 = 4.5 times the rms; Schroeder's phases bring it to about 1.7."""
    rows = np.asarray(nb.policies.Multisine(CART, high=4.0).table)[:, 0]
    assert np.abs(rows).max() / rows.std() < 2.0


def test_several_channels_need_room():
    three = nb.systems.load("double_link")
    with pytest.raises(nb.NestbedError, match="there are 1 harmonics of one cycle per horizon, but the 2 channels"):
        nb.policies.Multisine(three, low=0.8, high=0.8)
    with pytest.raises(nb.NestbedError, match="need one each; widen the band or lengthen the horizon"):
        nb.policies.Multisine(three, horizon=3)
    assert nb.policies.Multisine(three, horizon=5).table.shape == (5, 2)
    rows = np.asarray(nb.policies.MaximumLength(three, horizon=2).table)
    assert not (rows[:, 0] / 4 == rows[:, 1] / 2).all()


def test_channels_of_a_multisine_are_orthogonal():
    rows = np.asarray(nb.policies.Multisine(LINK).table)
    assert abs(rows[:, 0] @ rows[:, 1]) < 1e-9 * np.abs(rows).sum()


def test_a_given_signal_is_replayed_and_begins_again():
    signal = np.array([[0.1], [0.2], [0.3]])
    system = LinearLeak()
    result = nb.sweep(
        jax.random.key(0), system, nb.policies.Replay(system, signal), horizon=4, trajectories=2, belief="exact"
    )
    np.testing.assert_array_equal(result.designs[0, :, 0], [0.1, 0.2, 0.3, 0.1])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: nb.policies.Chirp(CART, low=3.0, high=1.0), "3.0 to 1.0, but they must be positive, in rising order"),
        (lambda: nb.policies.Multisine(CART, high=11.0), "at most 10, half the sampling rate of CartPole"),
        (lambda: nb.policies.Chirp(CART, low=0.0), "must be positive"),
        (lambda: nb.policies.MaximumLength(CART, hold=0), "hold is 0"),
        (
            lambda: nb.policies.MaximumLength(CART, order=1),
            r"order is 1, but .* of 1 channel\(s\) has from 2 to 20 stages",
        ),
        (lambda: nb.policies.Replay(LINK, np.zeros((5, 1))), r"shape \(5, 1\), but DoubleLink needs one row of 2"),
        (lambda: nb.policies.Chirp("cart_pole"), "the system is 'cart_pole'"),
        (lambda: nb.policies.Chirp(CART, low="a"), "low is 'a', but it must be a frequency"),
        (lambda: nb.policies.Replay(CART, "abc"), "the signal must be an array of numbers"),
    ],
)
def test_wrong_signals_get_a_sentence(make, told):
    with pytest.raises(nb.NestbedError, match=told):
        make()
