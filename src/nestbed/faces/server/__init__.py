"""`nestbed serve`: sessions and runs of one folder, as a page and as JSON for programs beside a rig."""
