"""Schemes in which publisher and subscriber talk before there are events."""
