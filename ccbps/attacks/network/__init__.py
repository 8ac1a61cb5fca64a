"""Attacks on networks of brokers, simulated message by message."""
