"""`nestbed systems`."""


def systems() -> None:
    """List the built-in systems: states, designs with their limits, unknown parameters and settings."""
    from nestbed.faces.terminal import tables
    from nestbed.systems import SYSTEMS, load

    tables.systems({name: load(name) for name in SYSTEMS})
