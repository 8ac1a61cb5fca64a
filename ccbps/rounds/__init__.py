"""Ledgers of rounds, on disk and behind a server: no round is used for two contents."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.rounds.event_ledger import EventLedger as EventLedger
    from ccbps.rounds.ledger_file import MarkedLedger as MarkedLedger
    from ccbps.rounds.remote_ledger import LedgerServer as LedgerServer
    from ccbps.rounds.remote_ledger import RemoteLedger as RemoteLedger
