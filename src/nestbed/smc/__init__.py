"""The nested sweep and its reference."""
