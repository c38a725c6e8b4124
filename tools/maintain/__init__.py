"""Keeping the series alive over upstream's releases: the matrix and what is built on it."""

from tools.maintain.matrix import Cell, Matrix, Summary, releases_since, run_matrix

__all__ = ["Cell", "Matrix", "Summary", "releases_since", "run_matrix"]
