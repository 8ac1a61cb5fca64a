"""Encode mod-2 branching programs between two parties."""
