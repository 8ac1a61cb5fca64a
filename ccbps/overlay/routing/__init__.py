"""Routing of events through a tree of brokers, by subscriptions and advertisements."""
