"""Garbled circuits: their plan, their hash and their messages."""
