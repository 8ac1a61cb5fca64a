"""Reusable schemes that compare words of events and subscriptions."""
