"""Live: sessions on real rigs, and the rigs themselves."""
