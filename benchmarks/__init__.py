"""Measurements of the project's own speed: `make bench` runs them all and prints what stands in results/."""
