"""Secrets that travel through brokers in fragments: protocols, collusion and simulation."""
