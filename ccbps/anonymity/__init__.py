"""Anonymity: records that nobody can tell from k - 1 others, and subscriptions that hide in groups.

Both are transformations before any matcher. They cost precision, which they report. They protect
against holders of the result: subscribers, and brokers that collude with one.
"""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.anonymity.cloaks import Cloaks as Cloaks
    from ccbps.anonymity.cloaks import cloak as cloak
    from ccbps.anonymity.diversity import Distinct as Distinct
    from ccbps.anonymity.diversity import Diversity as Diversity
    from ccbps.anonymity.diversity import Entropy as Entropy
    from ccbps.anonymity.diversity import Recursive as Recursive
    from ccbps.anonymity.releases import Anonymizer as Anonymizer
    from ccbps.anonymity.releases import Release as Release
    from ccbps.anonymity.releases import Report as Report
    from ccbps.anonymity.sticky import Group as Group
    from ccbps.anonymity.sticky import StickyCloaks as StickyCloaks
    from ccbps.anonymity.sticky import expected_candidates as expected_candidates
    from ccbps.anonymity.versions import VersionRelay as VersionRelay
    from ccbps.anonymity.windows import Window as Window
