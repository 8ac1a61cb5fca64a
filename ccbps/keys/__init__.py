"""Secrets: seeds, pads, role keys; the rounds they may be used in; where they are kept."""

from ccbps.keys.any_key import from_text
from ccbps.keys.epochs import EpochSeed
from ccbps.keys.event_ledger import EventLedger
from ccbps.keys.ledger_key import LedgerKey
from ccbps.keys.ledger_server import LedgerServer
from ccbps.keys.pad import OneTimePad
from ccbps.keys.remote_ledger import RemoteLedger
from ccbps.keys.rings import SeedRing
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.sources import EnvKey, FileKey, KeySource

__all__ = [
    "EnvKey",
    "EpochSeed",
    "EventLedger",
    "FileKey",
    "KeySource",
    "KeyUpdate",
    "LedgerKey",
    "LedgerServer",
    "OneTimePad",
    "RemoteLedger",
    "RoleKey",
    "SeedRing",
    "SharedSeed",
    "from_text",
]
