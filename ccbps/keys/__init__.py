"""Secrets: seeds, pads, role keys, and the places that processes load them from."""

from ccbps.keys.pad import OneTimePad
from ccbps.keys.plain_key import LedgerKey
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.seeds import EpochSeed, SeedRing, SharedSeed
from ccbps.keys.sources import EnvKey, FileKey, KeySource, from_text

__all__ = [
    "EnvKey",
    "EpochSeed",
    "FileKey",
    "KeySource",
    "KeyUpdate",
    "LedgerKey",
    "OneTimePad",
    "RoleKey",
    "SeedRing",
    "SharedSeed",
    "from_text",
]
