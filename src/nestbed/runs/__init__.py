"""Run folders: what they hold, how they are read back, and trainings that are kept in them."""
