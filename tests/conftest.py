"""Strict settings for every test."""

import nestbed  # noqa: F401  # sets float64 before jax starts
