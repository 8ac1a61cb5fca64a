"""Events and predicates as schemes see them: bits of programs, prefixes, topics, words."""
