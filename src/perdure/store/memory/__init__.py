"""The store in plain dicts: the readable specification, and the oracle of the tests.

Its rooms are those of the SQLite store, so that the two can be read side by side.
"""

from perdure.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
