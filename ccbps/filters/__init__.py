"""Filters: sets of keys in little memory that know for sure which keys are absent."""

from ccbps.filters.bloom import BloomFilter, CountingBloomFilter, bloom_size
from ccbps.filters.cuckoo import CuckooFilter, cuckoo_buckets
from ccbps.filters.hashing import Hashing, Murmur3, SipHash
from ccbps.filters.tokens import TopicTokens
from ccbps.keys.plain_key import FilterKey

__all__ = [
    "BloomFilter",
    "CountingBloomFilter",
    "CuckooFilter",
    "FilterKey",
    "Hashing",
    "Murmur3",
    "SipHash",
    "TopicTokens",
    "bloom_size",
    "cuckoo_buckets",
]
