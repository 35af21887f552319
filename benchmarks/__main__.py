"""`python -m benchmarks`: every workload on every engine, in turns, each measurement in a fresh process."""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine, report
from benchmarks.common import NotAvailable, Order, Values, child_command, root
from benchmarks.plan import Job, Workload, rival, workloads

if TYPE_CHECKING:
    from benchmarks.server import AnyServer

_child_seconds_max = 1200.0


class ChildFailed(Exception):
    """A measurement ended without an answer."""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [one.name for one in workloads]
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="W",
        help=f"one of {', '.join(names)}; may be repeated",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: does it work, roughly how fast"
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="times that each is measured (default: 3)"
    )
    parser.add_argument("--no-dbos", action="store_true", help="without the peer")
    parser.add_argument("--no-servers", action="store_true", help="what is on SQLite, no more")
    parser.add_argument(
        "--uvloop", action="store_true", help="Perdure and the bare loops on uvloop"
    )
    parser.add_argument(
        "--dir", help="where the files go; must be a real disk (default: the temporary directory)"
    )
    parser.add_argument("--json", metavar="FILE", help="write every single figure there")
    return parser.parse_args()


class Session:
    """One run of the benchmark: its directory, a copy of the code, its results."""

    def __init__(
        self, args: argparse.Namespace, place: str, servers: "dict[str, AnyServer]"
    ) -> None:
        self.args = args
        self.place = place
        self._servers = servers
        self.failures: list[str] = []
        self.missing: list[str] = []  # what the measured version cannot do
        self.shares: list[float] = []  # of the machine, used by others during each measurement
        self._began = time.monotonic()
        # Somebody may edit the sources while we measure; all repeats must measure the same code.
        self._code = os.path.join(place, "code")
        ignored = shutil.ignore_patterns("__pycache__", "results")
        for part in ("src/perdure", "benchmarks"):
            shutil.copytree(root / part, os.path.join(self._code, part), ignore=ignored)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)

    def measure(self, workload: Workload) -> report.Results:
        """All jobs of a workload in turns; every other turn the other way round."""
        results: report.Results = defaultdict(list)
        jobs = [job for job in workload.jobs if self._is_wanted(job)]
        dead: set[Job] = set()
        turns = min(self.args.repeat, workload.turns_max or self.args.repeat)
        for turn in range(turns):
            for job in jobs if turn % 2 == 0 else reversed(jobs):
                if job in dead:
                    continue
                try:
                    values = self._measure_one(workload, job, turn)
                except NotAvailable as reason:
                    dead.add(job)
                    self.missing.append(f"{workload.name} {job.engine} {job.name}: {reason}")
                    self.say(f"not available: {self.missing[-1]}")
                except ChildFailed as failure:
                    dead.add(job)
                    self.failures.append(f"{workload.name} {job.engine} {job.name}: {failure}")
                    self.say(f"FAILED: {self.failures[-1]}")
                else:
                    results[job.engine, job.name].append(values)
        return results

    def _is_wanted(self, job: Job) -> bool:
        return not (job.engine == rival and self.args.no_dbos)

    def _measure_one(self, workload: Workload, job: Job, turn: int) -> Values:
        size = job.quick if self.args.quick else job.full
        place = os.path.join(self.place, workload.name)
        os.makedirs(place, exist_ok=True)
        server = self._servers.get(workload.store_of(job))
        with nullcontext() if server is None else server.empty_database() as url:
            order = Order(job.engine, job.name, size, place, self.args.uvloop, job.warm, url)
            others = machine.Others(server.pid if server else None)
            values = self._ask(order)
            self.shares.append(others.share())
        shown = "  ".join(f"{key} {value:,.2f}" for key, value in values.items() if "." not in key)
        self.say(
            f"{workload.name} {turn + 1}/{self.args.repeat} {job.engine:<10} {job.name} n={size:,}: {shown}"
            f"  (others {self.shares[-1]:.0%})"
        )
        # Files of this measurement; what is shared stays.
        for directory in Path(place).glob("tmp*"):
            shutil.rmtree(directory, ignore_errors=True)
        return values

    def _ask(self, order: Order) -> Values:
        paths = [os.path.join(self._code, "src"), self._code]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        child = subprocess.Popen(
            child_command(order),
            cwd=self._code,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that what it starts in turn can be ended with it
        )
        try:
            answer, words = child.communicate(timeout=_child_seconds_max)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise ChildFailed(f"no answer within {_child_seconds_max:.0f} s") from None
            raise
        if child.returncode != 0:
            last = "\n    ".join(words.strip().splitlines()[-8:])
            raise ChildFailed(f"exit code {child.returncode}\n    {last}")
        found: dict[str, Any] = json.loads(answer.strip().splitlines()[-1])
        if "not available" in found:
            raise NotAvailable(found["not available"])
        values: Values = found["values"]
        return values


def main() -> int:
    args = parse_args()
    if args.uvloop and find_spec("uvloop") is None:
        print("--uvloop: not installed here (pip install uvloop)", file=sys.stderr)
        return 2
    if not args.no_dbos and find_spec("dbos") is None:
        print(
            "dbos is not installed here: `make bench` builds an environment with it, or use --no-dbos",
            file=sys.stderr,
        )
        return 2
    wanted = wanted_workloads(args)
    place = tempfile.mkdtemp(prefix="perdure-bench-", dir=args.dir)
    try:
        if all(one.stores == {"sqlite"} for one in wanted):
            return measure_all(args, wanted, place, {})
        return measure_with_servers(args, wanted, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def wanted_workloads(args: argparse.Namespace) -> list[Workload]:
    wanted = [one for one in workloads if not args.only or one.name in args.only]
    return [one for one in wanted if not (args.no_servers and one.stores != {"sqlite"})]


def measure_with_servers(args: argparse.Namespace, wanted: list[Workload], place: str) -> int:
    # Here only: without the driver all the rest can be measured.
    try:
        from benchmarks import server
    except ImportError as error:
        print(
            f"{error}: `make bench` builds an environment with it, or use --no-servers",
            file=sys.stderr,
        )
        return 2
    try:
        with ExitStack() as stack:
            home = Path(place).parent
            servers: dict[str, AnyServer] = {}
            stores = {store for one in wanted for store in one.stores}
            if "postgres" in stores:
                servers["postgres"] = stack.enter_context(server.opened(home))
            for store, fsync in (("valkey", "always"), ("valkey-everysec", "everysec")):
                if store in stores:
                    servers[store] = stack.enter_context(server.opened_valkey(home, fsync))
            return measure_all(args, wanted, place, servers)
    except (server.ServerMissing, server.ServerFailed) as error:
        print(f"{error}\n--no-servers measures all the rest", file=sys.stderr)
        return 2


def measure_all(
    args: argparse.Namespace,
    wanted: list[Workload],
    place: str,
    servers: "dict[str, AnyServer]",
) -> int:
    session = Session(args, place, servers)
    facts = machine.facts(place, uvloop=args.uvloop)
    facts |= {store: server.facts() for store, server in servers.items()}
    width = max(map(len, facts))
    print("\n".join(f"{name.ljust(width)}  {value}" for name, value in facts.items()))
    if machine.keeps_nothing(place):
        print(f"WARNING: {place} is in memory; commits cost nothing there. Use --dir.")
    print(flush=True)
    everything: dict[str, report.Results] = {}
    for workload in wanted:
        results = session.measure(workload)
        everything[workload.name] = results
        print(report.table(workload, results, quick=args.quick))
        for missing in session.missing:
            if missing.startswith(f"{workload.name} "):
                print(f"  not available: {missing}")
        for odd in report.odd_rows(results):
            print(f"  WARNING: {odd}")
        print(_sizes(workload, args), end="\n\n", flush=True)
    shares = session.shares or [0.0]
    facts["used by others"] = f"{statistics.median(shares):.0%} (at most {max(shares):.0%})"
    print(_closing(args, facts))
    if args.json:
        write_json(args, facts, everything, session)
    for missing in session.missing:
        print(f"not available: {missing}")
    for failure in session.failures:
        print(f"FAILED: {failure}")
    return 1 if session.failures else 0


def _sizes(workload: Workload, args: argparse.Namespace) -> str:
    sizes = [
        f"{job.engine} {job.name} {job.quick if args.quick else job.full:,}"
        for job in workload.jobs
        if not (job.engine == rival and args.no_dbos)
    ]
    return f"  sizes: {', '.join(sizes)}"


def _closing(args: argparse.Namespace, facts: dict[str, str]) -> str:
    text = (
        f"Median (low .. high) of {args.repeat}. A ratio is of two figures taken in the same turn, and above 1\n"
        "in our favour. SQLite (W): WAL, synchronous=FULL for all. Postgres (P), Valkey (R, E): one server for all.\n"
        f"While we measured, other processes used {facts['used by others']} of the machine."
    )
    if args.quick:
        text += "\nQuick sizes: these figures say that it works, not how fast it is."
    return text


def write_json(
    args: argparse.Namespace,
    facts: dict[str, str],
    everything: dict[str, report.Results],
    session: Session,
) -> None:
    found: dict[str, Any] = {
        "machine": facts,
        "options": {key: value for key, value in vars(args).items() if key not in ("json", "dir")},
        "failures": session.failures,
        "not available": session.missing,
        "workloads": {},
    }
    for workload in workloads:
        results = everything.get(workload.name)
        if results is None:
            continue
        found["workloads"][workload.name] = {
            "title": workload.title,
            "lines": [
                {**asdict(line), "met": line.is_met}
                for line in report.lines(workload, results, quick=args.quick)
            ],
            "raw": {f"{engine} {job}": repeats for (engine, job), repeats in results.items()},
        }
    path = Path(args.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
