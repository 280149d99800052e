"""Weights, resampling and the nested sweep."""
