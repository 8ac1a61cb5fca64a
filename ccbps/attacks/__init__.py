"""Attacks on a deployment, each with its adversary, its measured figures and its defence.

Adversaries against the network are simulated on `ccbps.overlay.Links`. Adversaries against a scheme
read messages that the scheme's own roles made. `answers` needs neither: it estimates the leak of
match bits alone.
"""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.attacks.adding_up import AnswersReport as AnswersReport
    from ccbps.attacks.adding_up import answers as answers
    from ccbps.attacks.adding_up import answers_add_up as answers_add_up
    from ccbps.attacks.adding_up import chosen_events as chosen_events
    from ccbps.attacks.anonymity import certainty as certainty
    from ccbps.attacks.anonymity import cloaked_bounds as cloaked_bounds
    from ccbps.attacks.anonymity import colluding_versions as colluding_versions
    from ccbps.attacks.anonymity import fresh_cloaks as fresh_cloaks
    from ccbps.attacks.anonymity import homogeneous_classes as homogeneous_classes
    from ccbps.attacks.anonymity import records_left as records_left
    from ccbps.attacks.catalogue import Attack as Attack
    from ccbps.attacks.catalogue import Curve as Curve
    from ccbps.attacks.catalogue import Figure as Figure
    from ccbps.attacks.catalogue import Outcome as Outcome
    from ccbps.attacks.catalogue import Taxonomy as Taxonomy
    from ccbps.attacks.catalogue import all_attacks as all_attacks
    from ccbps.attacks.catalogue import attack as attack
    from ccbps.attacks.catalogue import run as run
    from ccbps.attacks.inference import Placing as Placing
    from ccbps.attacks.inference import bisect_bounds as bisect_bounds
    from ccbps.attacks.inference import contained as contained
    from ccbps.attacks.inference import event_bits as event_bits
    from ccbps.attacks.inference import events_to_place as events_to_place
    from ccbps.attacks.inference import place_bounds as place_bounds
    from ccbps.attacks.inference import placing as placing
    from ccbps.attacks.inference import placing_error as placing_error
    from ccbps.attacks.network.bogus import bogus_brokers as bogus_brokers
    from ccbps.attacks.network.canaries import lying_broker as lying_broker
    from ccbps.attacks.network.dawn import attack_at_dawn as attack_at_dawn
    from ccbps.attacks.network.filters import costly_filters as costly_filters
    from ccbps.attacks.network.filters import uncovering_churn as uncovering_churn
    from ccbps.attacks.network.filters import wide_filters as wide_filters
    from ccbps.attacks.network.floods import publication_flood as publication_flood
    from ccbps.attacks.network.floods import subscription_flood as subscription_flood
    from ccbps.attacks.network.forgeries import forged_events as forged_events
    from ccbps.attacks.network.loads import localisation as localisation
    from ccbps.attacks.network.loads import transmission as transmission
    from ccbps.attacks.network.messages import malformed_messages as malformed_messages
    from ccbps.attacks.network.partition import partition as partition
    from ccbps.attacks.network.replays import replay as replay
    from ccbps.attacks.network.rounds import round_exhaustion as round_exhaustion
    from ccbps.attacks.network.scans import overlay_scan as overlay_scan
    from ccbps.attacks.network.watchers import layer_watchers as layer_watchers
    from ccbps.attacks.schemes.access_tree import read_access_trees as read_access_trees
    from ccbps.attacks.schemes.additive_mask import unmask_values as unmask_values
    from ccbps.attacks.schemes.aspe import break_aspe as break_aspe
    from ccbps.attacks.schemes.aspe import solve_aspe as solve_aspe
    from ccbps.attacks.schemes.broadcast import broadcast_reused_round as broadcast_reused_round
    from ccbps.attacks.schemes.commutative import guess_filters as guess_filters
    from ccbps.attacks.schemes.commutative import pool_layers as pool_layers
    from ccbps.attacks.schemes.commutative import read_legendre as read_legendre
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
    from ccbps.attacks.schemes.keyword import pool_user_keys as pool_user_keys
    from ccbps.attacks.schemes.keyword import rank_tokens as rank_tokens
    from ccbps.attacks.schemes.masked_topic import rank_topics as rank_topics
    from ccbps.attacks.schemes.oblivious_topic import guess_topics as guess_topics
    from ccbps.attacks.schemes.oblivious_topic import replace_requests as replace_requests
    from ccbps.attacks.schemes.onion import onion_markers as onion_markers
    from ccbps.attacks.schemes.onion import onion_rogue_key as onion_rogue_key
    from ccbps.attacks.schemes.onion import onion_signs as onion_signs
    from ccbps.attacks.schemes.p3s import p3s_co_matches as p3s_co_matches
    from ccbps.attacks.schemes.paillier_range import divide_paillier as divide_paillier
    from ccbps.attacks.schemes.prefix import extend_prefixes as extend_prefixes
    from ccbps.attacks.schemes.prefix import read_prefixes as read_prefixes
    from ccbps.attacks.schemes.reused_rounds import reused_rounds as reused_rounds
    from ccbps.attacks.schemes.tag import tag_bounds_from_hits as tag_bounds_from_hits
    from ccbps.attacks.schemes.tag import tag_collusion as tag_collusion
    from ccbps.attacks.schemes.tag import tag_limits_from_events as tag_limits_from_events
    from ccbps.attacks.schemes.tag import tag_limits_from_intervals as tag_limits_from_intervals
    from ccbps.attacks.schemes.three_brokers import three_brokers_together as three_brokers_together
    from ccbps.attacks.schemes.three_brokers import three_brokers_unmasked as three_brokers_unmasked
    from ccbps.attacks.schemes.words import word_cells_in_order as word_cells_in_order
    from ccbps.attacks.schemes.words import word_frequencies as word_frequencies
