"""Filters: sets of keys in little memory, with false positives but no false negatives."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.filters.bloom import BloomFilter as BloomFilter
    from ccbps.filters.bloom import CountingBloomFilter as CountingBloomFilter
    from ccbps.filters.bloom import bloom_size as bloom_size
    from ccbps.filters.contents import ContentFilter as ContentFilter
    from ccbps.filters.contents import MaskLayout as MaskLayout
    from ccbps.filters.contents import may_match as may_match
    from ccbps.filters.cuckoo import CuckooFilter as CuckooFilter
    from ccbps.filters.cuckoo import cuckoo_buckets as cuckoo_buckets
    from ccbps.filters.hashing import Hashing as Hashing
    from ccbps.filters.hashing import Murmur3 as Murmur3
    from ccbps.filters.hashing import SipHash as SipHash
    from ccbps.filters.tokens import TopicTokens as TopicTokens
    from ccbps.keys.plain_key import FilterKey as FilterKey
