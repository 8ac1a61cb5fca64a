"""The catalogue: a line for each scheme, from which all lists of schemes are made.

`ccbps.matching` exports these names, and `ccbps.matching.schemes` lists them. To add a scheme, add
its line here, its file, its own test and its page. The first scheme is the one to take where there
are three independent operators, and the second one elsewhere.
Schemes with a known attack have their line in `ccbps.matching.broken` instead.
"""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.matching.three_brokers.matcher import (  # isort: split
        ThreeBrokerMatch as ThreeBrokerMatch,
    )
    from ccbps.matching.one_time.formula import FormulaMatch as FormulaMatch  # isort: split

    from ccbps.matching.group.fixed_structure import FSGPMatch as FSGPMatch
    from ccbps.matching.group.fixed_structure import OFSGPMatch as OFSGPMatch
    from ccbps.matching.group.public_function import PublicFunctionMatch as PublicFunctionMatch
    from ccbps.matching.group.universal import UGPMatch as UGPMatch
    from ccbps.matching.inner_product import InnerProductMatch as InnerProductMatch
    from ccbps.matching.one_time.branching import BranchingMatch as BranchingMatch
    from ccbps.matching.one_time.broadcast import BroadcastMatch as BroadcastMatch
    from ccbps.matching.one_time.equality import EqualityMatch as EqualityMatch
    from ccbps.matching.one_time.equality import MembershipMatch as MembershipMatch
    from ccbps.matching.one_time.garbled import GarbledMatch as GarbledMatch
    from ccbps.matching.one_time.threshold import ThresholdMatch as ThresholdMatch
    from ccbps.matching.one_time.truth_table import TruthTableMatch as TruthTableMatch
    from ccbps.matching.session.oblivious_topic import ObliviousTopicMatch as ObliviousTopicMatch
    from ccbps.matching.tag.tag import TagMatch as TagMatch
    from ccbps.matching.users.keyword import KeywordMatch as KeywordMatch
    from ccbps.matching.words.keyword_dictionary import (
        KeywordDictionaryMatch as KeywordDictionaryMatch,
    )
    from ccbps.matching.words.topics import CommutativeMatch as CommutativeMatch
    from ccbps.matching.words.topics import MaskedTopicMatch as MaskedTopicMatch
    from ccbps.matching.words.words import KeywordFilterMatch as KeywordFilterMatch
