"""Reusable schemes in which every user has a key of its own."""
