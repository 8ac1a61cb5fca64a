"""Run straight-line programs over GF(2) on many rows at once."""
