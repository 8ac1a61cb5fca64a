"""Encode formulas so that one event message serves all interests of a round."""
