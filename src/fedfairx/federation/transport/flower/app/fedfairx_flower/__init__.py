"""Carries sealed messages between the agents of a federation, by Flower. It needs Flower and nothing else."""
