"""Keys that run out: under which an event, an item, or what a consumer dealt with is known for a while.

Those of starts and signals live as long as their run, and are kept where they are used.
"""

from perdure.model.records import KeyRecord
from perdure.store.tables import Tables


def used_key(tables: Tables, scope: str, key: str) -> KeyRecord | None:
    """What the key was used for, unless it has run out."""
    used = tables.key(scope, key)
    return used if used is not None and (used.expires_at or 0) > tables.now else None


def keep_key(
    tables: Tables, scope: str, key: str, lasts_us: int, digest: str = "", answer: str = ""
) -> None:
    """From now on the key is used, in place of what has run out under it, if anything."""
    tables.delete_key(scope, key)
    tables.add_key(
        KeyRecord(
            scope=scope,
            key=key,
            digest=digest,
            answer=answer,
            run_id=None,
            created_at=tables.now,
            expires_at=tables.now + lasts_us,
        )
    )
