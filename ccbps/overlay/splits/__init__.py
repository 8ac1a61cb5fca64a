"""Protocols by which secrets travel in fragments, their simulation, and collusion."""
