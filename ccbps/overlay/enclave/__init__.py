"""Simulated enclaves, their attestation and their sessions."""
