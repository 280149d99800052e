"""Training: from a system and a configuration to a policy."""
