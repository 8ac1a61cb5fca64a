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
    from ccbps.attacks.network.floods import publication_flood as publication_flood
    from ccbps.attacks.schemes.broadcast import broadcast_reused_round as broadcast_reused_round
    from ccbps.attacks.schemes.functional import functional_pooled_keys as functional_pooled_keys
    from ccbps.attacks.schemes.garbled import garbled_reused_round as garbled_reused_round
    from ccbps.attacks.schemes.inner_product import (
        inner_product_collusion as inner_product_collusion,
    )
    from ccbps.attacks.schemes.inner_product import (
        inner_product_first_components as inner_product_first_components,
    )
    from ccbps.attacks.schemes.inner_product import (
        inner_product_relations as inner_product_relations,
    )
    from ccbps.attacks.schemes.onion import onion_markers as onion_markers
    from ccbps.attacks.schemes.onion import onion_rogue_key as onion_rogue_key
    from ccbps.attacks.schemes.onion import onion_signs as onion_signs
    from ccbps.attacks.schemes.p3s import p3s_co_matches as p3s_co_matches
    from ccbps.attacks.schemes.reused_rounds import reused_rounds as reused_rounds
    from ccbps.attacks.schemes.tag import tag_bounds_from_hits as tag_bounds_from_hits
    from ccbps.attacks.schemes.tag import tag_collusion as tag_collusion
    from ccbps.attacks.schemes.tag import tag_limits_from_events as tag_limits_from_events
    from ccbps.attacks.schemes.tag import tag_limits_from_intervals as tag_limits_from_intervals
    from ccbps.attacks.schemes.three_brokers import three_brokers_together as three_brokers_together
    from ccbps.attacks.schemes.three_brokers import three_brokers_unmasked as three_brokers_unmasked
    from ccbps.attacks.schemes.words import word_cells_in_order as word_cells_in_order
    from ccbps.attacks.schemes.words import word_frequencies as word_frequencies
