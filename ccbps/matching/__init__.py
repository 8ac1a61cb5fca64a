"""Matchers: one file each, all with the same three roles and verbs."""

from ccbps.matching.access_tree import AccessTreeMatch
from ccbps.matching.aspe import AspeMatch
from ccbps.matching.branching import BranchingMatch
from ccbps.matching.commutative import CommutativeMatch
from ccbps.matching.fixed_structure import FSGPMatch, OFSGPMatch
from ccbps.matching.keyword import KeywordMatch
from ccbps.matching.keyword_dictionary import KeywordDictionaryMatch
from ccbps.matching.keyword_filter import KeywordFilterMatch
from ccbps.matching.masks import AdditiveMaskMatch, MaskedTopicMatch
from ccbps.matching.matcher import Matcher
from ccbps.matching.oblivious_topic import ObliviousTopicMatch
from ccbps.matching.paillier_range import PaillierRangeMatch
from ccbps.matching.prefix import PrefixMatch
from ccbps.matching.public_function import PublicFunctionMatch
from ccbps.matching.reusable import KeyServer, ReusableMatcher
from ccbps.matching.reusable_roles import ReusableBroker, ReusablePublisher, ReusableSubscriber
from ccbps.matching.role_keys import RoleKey
from ccbps.matching.roles import Broker, Publisher, Subscriber
from ccbps.matching.tag import TagMatch
from ccbps.matching.ugp import UGPMatch

__all__ = [
    "AccessTreeMatch",
    "AdditiveMaskMatch",
    "AspeMatch",
    "BranchingMatch",
    "Broker",
    "CommutativeMatch",
    "FSGPMatch",
    "KeyServer",
    "KeywordDictionaryMatch",
    "KeywordFilterMatch",
    "KeywordMatch",
    "MaskedTopicMatch",
    "Matcher",
    "OFSGPMatch",
    "ObliviousTopicMatch",
    "PaillierRangeMatch",
    "PrefixMatch",
    "PublicFunctionMatch",
    "Publisher",
    "ReusableBroker",
    "ReusableMatcher",
    "ReusablePublisher",
    "ReusableSubscriber",
    "RoleKey",
    "Subscriber",
    "TagMatch",
    "UGPMatch",
]
