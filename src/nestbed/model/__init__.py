"""The user's model: a system, its prior, its design box, and what can be wrong with them."""
