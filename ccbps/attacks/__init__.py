"""Attacks on a deployment, each with what it does, what it measures and what helps.

Adversaries against the network are simulated on `ccbps.overlay.Links`. Adversaries against a scheme
read messages that the scheme's own roles made. `answers` needs neither: it estimates what match
bits alone give away.
"""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.attacks.catalogue import Attack as Attack
    from ccbps.attacks.catalogue import Curve as Curve
    from ccbps.attacks.catalogue import Figure as Figure
    from ccbps.attacks.catalogue import Outcome as Outcome
    from ccbps.attacks.catalogue import Taxonomy as Taxonomy
    from ccbps.attacks.catalogue import all_attacks as all_attacks
    from ccbps.attacks.catalogue import attack as attack
    from ccbps.attacks.catalogue import run as run
    from ccbps.attacks.network.filters import costly_filters as costly_filters
    from ccbps.attacks.network.filters import uncovering_churn as uncovering_churn
    from ccbps.attacks.network.filters import wide_filters as wide_filters
    from ccbps.attacks.network.floods import publication_flood as publication_flood
    from ccbps.attacks.network.floods import subscription_flood as subscription_flood
    from ccbps.attacks.network.loads import localisation as localisation
    from ccbps.attacks.network.loads import transmission as transmission
    from ccbps.attacks.network.messages import malformed_messages as malformed_messages
    from ccbps.attacks.network.replays import replay as replay
    from ccbps.attacks.network.rounds import round_exhaustion as round_exhaustion
