"""Secrets: seeds, pads, role keys; and where processes look for them."""

from ccbps.keys.any_key import from_text
from ccbps.keys.epochs import EpochSeed
from ccbps.keys.ledger_key import LedgerKey
from ccbps.keys.pad import OneTimePad
from ccbps.keys.rings import SeedRing
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.sources import EnvKey, FileKey, KeySource

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
