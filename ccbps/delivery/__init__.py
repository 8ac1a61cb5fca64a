"""Delivery: the payload reaches the matched subscribers, and nobody else can read it."""

from ccbps.delivery.naive import PayloadOpener, PayloadSealer

__all__ = ["PayloadOpener", "PayloadSealer"]
