"""What is durable: one Store interface, and behind it the journal (a log of our own)."""

from hms.store.interface import DictionaryMaker, Parts, Store, StoredRecord
from hms.store.journal import Journal

__all__ = ["DictionaryMaker", "Journal", "Parts", "Store", "StoredRecord"]
