"""Ciphers of the reusable matchers: one file each, no knowledge of predicates or messages."""
