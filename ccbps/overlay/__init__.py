"""Networks of brokers."""
