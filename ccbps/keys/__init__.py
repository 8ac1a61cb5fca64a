"""Secrets: seeds, pads, role keys, and the places that processes load them from."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.keys.pad import OneTimePad as OneTimePad
    from ccbps.keys.plain_key import ClientKey as ClientKey
    from ccbps.keys.plain_key import ExchangeKey as ExchangeKey
    from ccbps.keys.plain_key import LedgerKey as LedgerKey
    from ccbps.keys.plain_key import OperatorKey as OperatorKey
    from ccbps.keys.plain_key import SigningKey as SigningKey
    from ccbps.keys.role_key import KeyUpdate as KeyUpdate
    from ccbps.keys.role_key import RoleKey as RoleKey
    from ccbps.keys.seeds import EpochSeed as EpochSeed
    from ccbps.keys.seeds import SeedRing as SeedRing
    from ccbps.keys.seeds import SharedSeed as SharedSeed
    from ccbps.keys.sources import EnvKey as EnvKey
    from ccbps.keys.sources import FileKey as FileKey
    from ccbps.keys.sources import KeySource as KeySource
    from ccbps.keys.sources import from_text as from_text
