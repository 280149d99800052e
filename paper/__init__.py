"""The whole paper again: every table and figure, beside the published numbers."""
