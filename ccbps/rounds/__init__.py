"""Records of which rounds were used: on disk, for events, and over a network."""

from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.ledger_server import LedgerServer
from ccbps.rounds.remote_ledger import RemoteLedger

__all__ = ["EventLedger", "LedgerServer", "RemoteLedger"]
