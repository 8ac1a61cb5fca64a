"""The scheme of three brokers, no two of which work together."""
