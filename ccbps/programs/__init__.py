"""Programs that compute a predicate: branching programs, formulas and group programs."""
