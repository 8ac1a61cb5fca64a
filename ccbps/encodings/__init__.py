"""Two-decomposable randomized encodings: two encoders, a decoder REC and a simulator SIM."""

from ccbps.encodings.branching.encoding import BranchingEncoding
from ccbps.encodings.branching.triangle import TriangleLayout

__all__ = ["BranchingEncoding", "TriangleLayout"]
