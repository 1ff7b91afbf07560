"""Rounds of residual mixtures (design ``adaptive``): the public model, and the private sums."""
