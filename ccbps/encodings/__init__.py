"""Two-decomposable randomized encodings: two encoders, a decoder REC and a simulator SIM."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.encodings.branching.encoding import BranchingEncoding as BranchingEncoding
    from ccbps.encodings.branching.triangle import TriangleLayout as TriangleLayout
