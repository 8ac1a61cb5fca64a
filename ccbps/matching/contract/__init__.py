"""The contract of matching schemes, and the roles, tables and texts that all of them share."""
