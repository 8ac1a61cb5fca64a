"""Encode formulas between two parties by rank-one gates."""
