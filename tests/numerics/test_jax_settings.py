"""Importing nestbed sets jax up, leaves the environment as it was, and respects what a user has set."""

import os
import subprocess
import sys

import pytest

SHOW = "print(jax.config.jax_enable_x64, jax.config.jax_compilation_cache_dir)"

JAXS = {"TF_CPP_MIN_LOG_LEVEL", "TPU_SKIP_MDS_QUERY"}
"""What jax puts into the environment by itself."""


def python(code, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_environment_stays_and_jax_loads_later():
    code = (
        "import os, sys; before = dict(os.environ); import nestbed; assert 'jax' not in sys.modules; import jax; "
        f"new = set(os.environ.items()) - set(before.items()); jaxs = {JAXS}; "
        f"assert {{name for name, _ in new}} <= jaxs and before.items() <= dict(os.environ).items(), new; {SHOW}"
    )
    assert python(code, XDG_CACHE_HOME="/nowhere") == "True /nowhere/nestbed/compiled"


def test_looking_for_jax_is_not_importing_it():
    code = "import nestbed, copy; from importlib.util import find_spec; find_spec('jax'); import jax"
    code = f"{code}; copy.copy(jax.__loader__)"
    assert python(f"{code}; {SHOW}", XDG_CACHE_HOME="/nowhere") == "True /nowhere/nestbed/compiled"


@pytest.mark.parametrize("order", ["import jax, nestbed", "import nestbed, jax"])
def test_a_users_own_cache_folder_stays(order):
    assert python(f"{order}; {SHOW}", JAX_COMPILATION_CACHE_DIR="/mine") == "True /mine"


def test_a_users_own_32_bits_stay_and_are_told_in_a_sentence():
    code = (
        "import nestbed as nb\n"
        "try:\n    nb.systems.load('cart_pole')\n"
        "except nb.NestbedError as error:\n    print(error)"
    )
    assert python(code, JAX_ENABLE_X64="0").startswith("jax runs in 32 bits, but filters need 64")


TOLD = "from jaxlib import xla_client; print(xla_client.CompileOptions().SerializeAsString())"


def test_xla_is_told_of_fast_loops_and_a_users_own_flags_stay():
    assert "xla_cpu_small_while_loop_byte_threshold" in python(f"import nestbed, jax; {TOLD}")
    own = {"XLA_FLAGS": "--xla_backend_extra_options=mine=3"}
    told = python(f"import nestbed, jax, os; print(os.environ['XLA_FLAGS']); {TOLD}", **own)
    assert told.startswith(own["XLA_FLAGS"])
    assert "mine" in told
    assert "xla_cpu_small_while_loop_byte_threshold" not in told


def test_flags_of_an_unknown_xla_are_left_alone():
    code = f"from nestbed.numerics import jax_settings; jax_settings.KNOWN = (0, 1); import jax; {TOLD}"
    assert "xla_cpu_small_while_loop_byte_threshold" not in python(code)
