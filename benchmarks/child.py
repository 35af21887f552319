"""One measurement in a process of its own: `python -m benchmarks.child ORDER`, one JSON line as the answer."""

import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.common import NotAvailable, Order, Stopwatch, Values, run


def measure(order: Order, watch: Stopwatch) -> Values:
    """Engines are imported here only, so that a process holds none but its own."""
    if order.engine in ("perdure", "on Postgres"):
        return run(our_jobs(order)[order.job](order, watch), uvloop=order.uvloop)
    if order.engine == "dbos":
        from benchmarks import dbos_loads

        return dbos_loads.jobs[order.job](order, watch)
    if order.engine == "bare":
        return bare_jobs(order)[order.job](order, watch)
    from benchmarks import bare

    jobs = {"bare-group": bare.group_jobs, "bare-bulk": bare.bulk_jobs}[order.engine]
    return jobs[order.job](order, watch)


def bare_jobs(order: Order) -> dict[str, Callable[[Order, Stopwatch], Values]]:
    if order.database is not None and order.database.startswith("redis:"):
        from benchmarks import bare_valkey

        return bare_valkey.jobs
    from benchmarks import bare_postgres

    return bare_postgres.jobs


def our_jobs(order: Order) -> dict[str, Callable[[Order, Stopwatch], Coroutine[Any, Any, Values]]]:
    from benchmarks import ledger_loads, perdure_loads, shared_loads

    jobs = perdure_loads.jobs | ledger_loads.jobs
    if order.database is not None and order.database.startswith("redis:"):
        from benchmarks import companions

        return jobs | {"across": companions.across, "across-worker": companions.across_worker}
    if order.database is None or not order.database.startswith("postgresql:"):
        from benchmarks import http_loads

        return jobs | shared_loads.jobs | http_loads.jobs
    from benchmarks import full_tables, postgres_loads

    return jobs | postgres_loads.jobs | full_tables.jobs


def main() -> None:
    order = Order.from_json(sys.argv[1])
    try:
        answer: dict[str, object] = {"values": measure(order, Stopwatch())}
    except NotAvailable as reason:
        answer = {"not available": str(reason)}
    print(json.dumps(answer), flush=True)
    sys.stderr.flush()
    os._exit(0)  # some engines leave threads behind that are not daemons


if __name__ == "__main__":
    main()
