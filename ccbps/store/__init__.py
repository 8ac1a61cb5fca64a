"""Messages in files."""
