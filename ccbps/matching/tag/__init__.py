"""TagMatch: reusable boxes whose broker compares pseudorandom tags."""
