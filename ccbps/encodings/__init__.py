"""Two-decomposable randomized encodings: two encoders, a decoder REC and a simulator SIM."""

from ccbps.encodings.branching import BranchingEncoding
from ccbps.encodings.triangle import TriangleLayout

__all__ = ["BranchingEncoding", "TriangleLayout"]
