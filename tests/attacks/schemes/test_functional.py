"""The attack on functional encryption of the catalogue: figures without and with the defence.

`tests/security/test_attack_functional.py` asserts that no other relations hold.
"""

from __future__ import annotations

import numpy as np

from ccbps.attacks import functional_pooled_keys


def test_keys_fit_together_only_if_they_share_their_randomness() -> None:
    outcome = functional_pooled_keys(users=4, attributes=5, seed=3)
    opened = outcome["messages opened"]
    assert opened.expected == 6 / 10 and opened.defended == 0
    assert outcome.curve.at == (1, 2, 3, 4)
    without, fresh = outcome.curve.lines.values()
    assert np.allclose(without, [0, 1 / 10, 3 / 10, 6 / 10])
    assert fresh == (0,) * 4
