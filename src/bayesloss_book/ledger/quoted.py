"""What the papers print, from the ledger beside this module: in a clone, and installed."""

from pathlib import Path
from typing import Any

from paperledger.configuration import Configuration
from paperledger.ledger.claims import ledger


def quoted(claim: str) -> Any:
    """The numbers that the ledger quotes for a claim, such as those of a table."""
    return ledger(Configuration(Path(__file__).parent))[claim].printed
