"""The caller's own transaction on Redis: a pipeline of redis-py that is to be carried out as MULTI and EXEC.

What is added to it is done when the caller executes it, with all else in it, or not at all.
"""

from typing import Any, Final

from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.client import Pipeline

from perdure.store.borrowing import refuse, without_transaction
from perdure.store.redis.connecting import Options, address_of

_fitting: Final = "use `client.pipeline(transaction=True)`"


def check_pipeline(connection: Any, options: Options) -> None:
    """Raises BadValue unless it is a transaction on this very server that is still to be carried out."""
    if not isinstance(connection, AsyncPipeline | Pipeline):
        refuse(connection, f"is no pipeline of redis-py on a single server; {_fitting}")
    if not (_is_transaction(connection) or connection.explicit_transaction):
        without_transaction(connection, _fitting)
    if connection.watching and not connection.explicit_transaction:
        without_transaction(connection, "call `pipeline.multi()` after the reads that it watches")
    theirs, ours = address_of(connection.connection_pool), address_of(options.url)
    if theirs != ours:
        refuse(connection, f"leads to {theirs}, and this app's store is at {ours}")


def _is_transaction(pipeline: AsyncPipeline | Pipeline) -> bool:
    """Each of the two kinds has its own word for it."""
    if isinstance(pipeline, AsyncPipeline):
        return pipeline.is_transaction
    return bool(pipeline.transaction)
