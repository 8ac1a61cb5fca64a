"""Boolean circuits: building blocks, rewriting, sorting networks, universal circuits, files."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.circuits.circuit import Circuit as Circuit
    from ccbps.circuits.circuit import CircuitBuilder as CircuitBuilder
    from ccbps.circuits.circuit import Gate as Gate
    from ccbps.circuits.circuit import Op as Op
    from ccbps.circuits.circuit import Wire as Wire
    from ccbps.circuits.rewriting import balance as balance
    from ccbps.circuits.rewriting import fix_inputs as fix_inputs
    from ccbps.circuits.rewriting import negation_normal_form as negation_normal_form
    from ccbps.circuits.rewriting import pad as pad
    from ccbps.circuits.rewriting import without_xor as without_xor
