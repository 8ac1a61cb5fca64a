"""Roles on Arrow columns: a batch of records or messages in, a column of messages or answers out.

What runs on Spark's workers, without Spark: keys come by name (`ccbps.keys.sources`), rows that
have a NULL have no message, and a row that cannot be used is named, or set aside with the reason.
"""
