"""Onions: messages under layers, of which each relay removes one and learns two neighbours only."""
