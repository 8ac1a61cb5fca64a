"""Matchers: one file each, all with the same three roles and verbs."""

from ccbps.keys.role_key import RoleKey
from ccbps.matching.boxes.additive_mask import AdditiveMaskMatch, MaskedTopicMatch
from ccbps.matching.boxes.aspe import AspeMatch
from ccbps.matching.boxes.paillier import PaillierRangeMatch
from ccbps.matching.boxes.prefix import PrefixMatch
from ccbps.matching.boxes.tag import TagMatch
from ccbps.matching.matcher import Matcher
from ccbps.matching.one_time.branching import BranchingMatch
from ccbps.matching.one_time.fixed_structure import FSGPMatch, OFSGPMatch
from ccbps.matching.one_time.public_function import PublicFunctionMatch
from ccbps.matching.one_time.universal import UGPMatch
from ccbps.matching.reusable import KeyServer, ReusableMatcher
from ccbps.matching.reusable_roles import ReusableBroker, ReusablePublisher, ReusableSubscriber
from ccbps.matching.roles import Broker, Publisher, Subscriber
from ccbps.matching.session.oblivious_topic import ObliviousTopicMatch
from ccbps.matching.users.access_tree import AccessTreeMatch
from ccbps.matching.users.keyword import KeywordMatch
from ccbps.matching.words.commutative import CommutativeMatch
from ccbps.matching.words.keyword_dictionary import KeywordDictionaryMatch
from ccbps.matching.words.keyword_filter import KeywordFilterMatch

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
