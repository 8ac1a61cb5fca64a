"""Attacks on matchers: adversaries that read the messages of real roles."""
