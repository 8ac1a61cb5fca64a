"""Secrets: seeds, pads, role keys; the rounds they may be used in; where they are kept."""
