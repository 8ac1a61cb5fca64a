"""Reusable schemes whose subscriptions are boxes: an interval for each attribute."""
