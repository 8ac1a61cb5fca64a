"""What schemes see of an event: bits of a program or circuit, prefixes, topics, words."""
