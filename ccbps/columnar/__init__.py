"""Roles on Arrow columns: records or messages in, messages or answers out, a batch at a time.

This is the work of Spark's workers, without Spark. Keys come by name (`ccbps.keys.sources`). A row
with a NULL has no message. A row that cannot be used is named in an error, or set aside with a
reason.
"""
