"""Policies as files that run without nestbed."""
