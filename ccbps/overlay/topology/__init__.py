"""Networks of logical brokers and the paths through them."""
