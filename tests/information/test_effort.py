"""Work is counted, so that what is done of it is the same on every machine."""

import numpy as np

import nestbed as nb
from nestbed.information import effort
from nestbed.training.pathwise_config import AFFORDED, PathwiseConfig, afforded
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


def test_dear_systems_are_searched_for_fewer_rounds():
    usual, least, enough = AFFORDED["rounds"]
    assert [afforded("rounds", work) for work in (0.1 * enough, enough, 2 * enough, 1e3 * enough)] == [
        usual,
        usual,
        usual // 2,
        least,
    ]
    dear = Leak(integrator="rk4", substeps=400)
    full = PathwiseConfig().resolve(dear)
    assert (full.rounds, full.steps) == (usual, full.steps)
    assert AFFORDED["steps"].least <= full.steps < AFFORDED["steps"].usual
    assert (PathwiseConfig(rounds=7, steps=9).resolve(dear).rounds, PathwiseConfig().resolve(Leak()).steps) == (7, 100)


def test_the_built_in_systems_get_all_rounds():
    for name in ("nonlinear_pendulum", "double_link"):
        full = PathwiseConfig().resolve(nb.systems.load(name))
        assert np.array_equal((full.rounds, full.steps), (40, 100))


def test_filters_of_many_states_are_dear():
    limits = {"position": (-1.0, 1.0)}
    systems = [nb.systems.load(name).replace(limits=limits) for name in ("cart_pole", "encoder_cart_pole")]
    seen, hidden = (PathwiseConfig().resolve(system) for system in systems)
    assert (seen.rounds, seen.steps) == (40, 100)
    assert AFFORDED["rounds"].least <= hidden.rounds < 20
    assert AFFORDED["steps"].least <= hidden.steps < 100
