"""Numbers and files: weights, resampling, random numbers, intervals, storage, and errors as sentences."""
