"""One measurement in a process of its own: `python -m benchmarks.child ORDER`, one JSON line as the answer."""

import json
import os
import sys

from benchmarks.common import NotAvailable, Order, Stopwatch, Values, run


def measure(order: Order, watch: Stopwatch) -> Values:
    """Engines are imported here only, so that a process holds none but its own."""
    if order.engine == "perdure":
        from benchmarks import ledger_loads, perdure_loads

        ours = perdure_loads.jobs | ledger_loads.jobs
        return run(ours[order.job](order, watch), uvloop=order.uvloop)
    if order.engine == "dbos":
        from benchmarks import dbos_loads

        return dbos_loads.jobs[order.job](order, watch)
    from benchmarks import bare

    jobs = {"bare-group": bare.group_jobs, "bare-bulk": bare.bulk_jobs}[order.engine]
    return jobs[order.job](order, watch)


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
