"""Ledgers of rounds, on disk and behind a server: no round is used for two contents."""

from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.ledger_file import MarkedLedger
from ccbps.rounds.remote_ledger import LedgerServer, RemoteLedger

__all__ = ["EventLedger", "LedgerServer", "MarkedLedger", "RemoteLedger"]
