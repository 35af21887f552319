"""Webhooks. Out: events of the ledger are posted to an address. In: what others post becomes an event or a signal.

`addresses` knows where a webhook may lead; `wire` connects there and nowhere else; `outgoing` is the consumer that
sends; `signing` has the schemes of signatures; `incoming` the hooks that take deliveries. What needs packages of the
extra `webhooks` is imported where it is first used.
"""

from perdure.webhooks.incoming import Hook, receive
from perdure.webhooks.signing import Verified

__all__ = ["Hook", "Verified", "receive"]
