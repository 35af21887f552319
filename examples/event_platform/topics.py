"""Who writes: every type of event on the platform, with what it carries.

Events about runs (`workflow.run_started`, `run_completed`, `run_failed`) are not here: the engine writes them itself.
"""

from dataclasses import dataclass
from typing import Literal

from perdure import Topic


@dataclass
class TierCompleted:
    tier: Literal["hot", "warm", "cold"]
    rows: int


@dataclass
class Decision:
    """What a human said of a proposed action. The key lets whoever acts on it know it again."""

    idempotency_key: str
    kind: str
    by: str


@dataclass
class PriceChanged:
    old: int
    new: int


@dataclass
class LineChanged:
    line: int
    old: int
    new: int


@dataclass
class Mail:
    message_id: str


@dataclass
class BucketMoved:
    """How many days an account is overdue, before and now."""

    old: int
    new: int


@dataclass
class CollectionSent:
    level: int


@dataclass
class CustomerUpdated:
    field: str


@dataclass
class OrderPlaced:
    total: int


@dataclass
class CostChanged:
    sku: str
    old: int
    new: int


@dataclass
class ItemCreated:
    name: str


@dataclass
class SpecUpdated:
    revision: int
    readable: bool = True


tier_completed = Topic("sync.tier_completed", TierCompleted)

approved = Topic("hitl.approved", Decision)
rejected = Topic("hitl.rejected", Decision)
deferred = Topic("hitl.deferred", Decision)

price_changed = Topic("price.changed", PriceChanged)
bid_line_changed = Topic("price.bid_line_changed", LineChanged)
quote_line_changed = Topic("price.quote_line_changed", LineChanged)

email_parsed = Topic("email.parsed", Mail)
email_bounced = Topic("email.bounced", Mail)
email_replied = Topic("email.replied", Mail)

bucket_moved = Topic("ar.bucket_moved", BucketMoved)
collection_sent = Topic("ar.collection_sent", CollectionSent)
customer_updated = Topic("customer.updated", CustomerUpdated)
order_placed = Topic("order.placed", OrderPlaced)

cost_changed = Topic("vendor.cost_changed", CostChanged)
item_created = Topic("item.created", ItemCreated)
spec_updated = Topic("spec.updated", SpecUpdated)
