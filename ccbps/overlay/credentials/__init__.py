"""Publish/subscribe without brokers, between holders of credentials."""
