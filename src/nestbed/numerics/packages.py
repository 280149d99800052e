"""The versions of all that numbers hang on."""

import importlib.metadata

PACKAGES = ("nestbed", "jax", "jaxlib", "equinox", "optax", "numpyro", "numpy")


def versions() -> dict[str, str]:
    """Return them by name."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}
