"""Work is counted, so that what is done of it is the same on every machine."""

import jax
import jax.numpy as jnp
import numpy as np

import nestbed as nb
from nestbed.information import effort, search
from nestbed.training.pathwise_config import ENOUGH, LEAST_ROUNDS, LEAST_STEPS, PathwiseConfig
from toys import Leak


def test_work_grows_with_what_is_computed():
    system = Leak()
    ten, hundred = (effort.operations(system, horizon) for horizon in (10, 100))
    assert 8.0 < hundred / ten < 11.0
    finer = system.replace(integrator="rk4", substeps=50)
    assert effort.operations(finer, 10) > 50 * ten


def test_loops_count_as_often_as_they_turn():
    calm, fine = (effort.operations(Leak(integrator="rk4", substeps=count), 10) for count in (8, 32))
    assert 2.5 < fine / calm < 4.0


def test_what_does_not_change_from_turn_to_turn_counts_once():
    def total(turns):
        def turn(x, row):
            return x * jnp.sin(fixed).sum() + row, None

        return jax.lax.scan(turn, 0.0, jnp.zeros(turns))[0]

    fixed = jnp.ones(1000)
    ten, hundred = (effort._counted(jax.make_jaxpr(lambda n=n: total(n))().jaxpr, (), 1) for n in (10, 100))
    assert 1000 * effort.DEAR["sin"] < ten < 2000 * effort.DEAR["sin"]
    assert 0 < hundred - ten < 1000


def test_what_a_loop_changes_counts_at_every_turn_however_it_begins():
    def total(turns):
        def turn(x, _):
            found = jax.lax.while_loop(lambda c: c[0] < 9.0, lambda c: (c[0] + jnp.sin(c[0]), c[1] + c[0]), (0.5, x))
            return found[1], None

        return jax.lax.scan(turn, 0.0, None, length=turns)[0]

    one, ten = (effort._counted(jax.make_jaxpr(lambda n=n: total(n))().jaxpr, (), 1) for n in (1, 10))
    assert one > effort.DEAR["sin"]
    assert ten == 10 * one


def test_dear_systems_are_searched_for_fewer_rounds(monkeypatch):
    system, work = Leak(), search.ENOUGH / search.RIGS
    for times, rounds in ((0.1, 40), (1.0, 40), (4.0, 20), (1e4, LEAST_ROUNDS)):
        monkeypatch.setattr(effort, "operations", lambda *_, times=times: times * work)
        assert PathwiseConfig().resolve(system).rounds == rounds
    for times, steps in ((0.1, 100), (1.0, 100), (2.0, 50), (1e3, LEAST_STEPS)):
        monkeypatch.setattr(effort, "operations", lambda *_, times=times: times * ENOUGH)
        assert PathwiseConfig().resolve(system).steps == steps
    assert (
        PathwiseConfig(rounds=7, steps=9).resolve(system).rounds,
        PathwiseConfig(steps=9).resolve(system).steps,
    ) == (
        7,
        9,
    )


def test_the_built_in_systems_get_all_rounds():
    for name in ("nonlinear_pendulum", "double_link"):
        full = PathwiseConfig().resolve(nb.systems.load(name))
        assert np.array_equal((full.rounds, full.steps), (40, 100))


def test_filters_of_many_states_are_dear():
    limits = {"position": (-1.0, 1.0)}
    systems = [nb.systems.load(name).replace(limits=limits) for name in ("cart_pole", "encoder_cart_pole")]
    seen, hidden = (PathwiseConfig().resolve(system) for system in systems)
    assert (seen.rounds, seen.steps) == (40, 100)
    assert LEAST_ROUNDS < hidden.rounds < 40
    assert LEAST_STEPS < hidden.steps <= 100
