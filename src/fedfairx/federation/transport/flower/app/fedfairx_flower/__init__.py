"""Flower app that carries envelopes between the members of a federation. It needs Flower and nothing else."""
