"""Replicated secret sharing over GF(2) between three brokers, no two of which work together."""
