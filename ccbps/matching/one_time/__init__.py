"""Schemes over shared one-time randomness: a message for every pair."""
