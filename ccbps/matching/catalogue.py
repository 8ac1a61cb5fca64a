"""The catalogue: a line for each scheme, from which everything else that lists schemes is made.

Exports, the documentation's tables, the test that every scheme must pass, and planners read it, by
way of `ccbps.matching.schemes`. To add a scheme, add its line here, its file, its own test and its
page. The first one is the one to start with.
"""

from ccbps.matching.one_time.formula import FormulaMatch as FormulaMatch  # isort: split

from ccbps.matching.boxes.additive_mask import AdditiveMaskMatch as AdditiveMaskMatch
from ccbps.matching.boxes.aspe import AspeMatch as AspeMatch
from ccbps.matching.boxes.paillier import PaillierRangeMatch as PaillierRangeMatch
from ccbps.matching.boxes.prefix import PrefixMatch as PrefixMatch
from ccbps.matching.boxes.tag import TagMatch as TagMatch
from ccbps.matching.one_time.branching import BranchingMatch as BranchingMatch
from ccbps.matching.one_time.broadcast import BroadcastMatch as BroadcastMatch
from ccbps.matching.one_time.fixed_structure import FSGPMatch as FSGPMatch
from ccbps.matching.one_time.fixed_structure import OFSGPMatch as OFSGPMatch
from ccbps.matching.one_time.public_function import PublicFunctionMatch as PublicFunctionMatch
from ccbps.matching.one_time.universal import UGPMatch as UGPMatch
from ccbps.matching.session.oblivious_topic import ObliviousTopicMatch as ObliviousTopicMatch
from ccbps.matching.users.access_tree import AccessTreeMatch as AccessTreeMatch
from ccbps.matching.users.keyword import KeywordMatch as KeywordMatch
from ccbps.matching.words.commutative import CommutativeMatch as CommutativeMatch
from ccbps.matching.words.keyword_dictionary import KeywordDictionaryMatch as KeywordDictionaryMatch
from ccbps.matching.words.keyword_filter import KeywordFilterMatch as KeywordFilterMatch
from ccbps.matching.words.masked_topic import MaskedTopicMatch as MaskedTopicMatch
