"""The contract of a store as tests, by subject. A store that passes them can carry Perdure.

A few lines make a test module out of the whole suite:

    from perdure.testing.conformance import *

    @pytest.fixture
    def make_store(tmp_path):
        return lambda clock, ids, lifecycle: MyStore(tmp_path / "db", clock, ids, lifecycle)

    @pytest.fixture
    def write_outbox():
        return in_a_transaction_of_ones_own

A store whose steps can be transactions also imports `TestTransactions` from `transactions`, beside this.

`make_store` may be called several times in a test; each call is a namespace of its own, empty. `write_outbox` plays a
caller with a transaction of its own. Every test uses the
store through its contract only, in virtual time, and ends with `check_invariants`. Needs pytest-asyncio.
"""

import pytest

_subjects = (
    "approvals",
    "batches",
    "catalogue",
    "claiming",
    "consumers",
    "dead_letters",
    "emitting",
    "fan_out",
    "importing",
    "ledger",
    "ledger_reads",
    "matching",
    "outbox",
    "plays",
    "pruning",
    "queues",
    "reads",
    "recovery",
    "retention",
    "retrying",
    "schedules",
    "signals",
    "standing",
    "starting",
    "steering",
    "sticky",
    "streams",
    "subscriptions",
    "timers",
    "topics",
    "transactions",
    "turns",
    "waits",
)
# Before they are imported: plain asserts then say what they saw.
pytest.register_assert_rewrite(*(f"{__name__}.{one}" for one in _subjects))

# ruff: noqa: E402
from perdure.testing.conformance.approvals import (
    TestAlarms,
    TestApprovals,
    TestClosing,
    TestSetAside,
)
from perdure.testing.conformance.batches import TestBatches
from perdure.testing.conformance.catalogue import TestCatalogue, TestOtherWords
from perdure.testing.conformance.claiming import TestClaiming, TestOwners
from perdure.testing.conformance.consumers import TestConsumers, TestEffects, TestParked
from perdure.testing.conformance.dead_letters import TestDeadLetters
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import comparable, dump, normal
from perdure.testing.conformance.emitting import TestEmit
from perdure.testing.conformance.fan_out import TestFanOut, TestFanOutIsUnseen
from perdure.testing.conformance.fixtures import (
    MakeStore,
    WriteOutbox,
    clock,
    d,
    make_store,
    quiet,
    store,
    write_outbox,
)
from perdure.testing.conformance.importing import TestFork, TestImport
from perdure.testing.conformance.invariants import check_invariants
from perdure.testing.conformance.ledger import TestLedger, TestQuietLedger
from perdure.testing.conformance.ledger_reads import TestLedgerReads
from perdure.testing.conformance.looking_after import TestLookingAfter, TestMending
from perdure.testing.conformance.matching import TestMatching
from perdure.testing.conformance.outbox import TestOutbox
from perdure.testing.conformance.plays import TestPlays
from perdure.testing.conformance.pools import (
    TestAdmission,
    TestClaimsByPool,
    TestIdleSlots,
    TestPoolRows,
    TestRates,
    TestSlots,
)
from perdure.testing.conformance.pruning import TestPruning
from perdure.testing.conformance.queues import TestQueues
from perdure.testing.conformance.reads import TestReads
from perdure.testing.conformance.recovery import TestRecovery
from perdure.testing.conformance.retention import TestRetention
from perdure.testing.conformance.retrying import TestRetry
from perdure.testing.conformance.schedules import TestScheduleRows, TestTicks, TestTicksByHand
from perdure.testing.conformance.signals import TestSignals
from perdure.testing.conformance.standing import (
    TestCancelOn,
    TestCancelOnByMany,
    TestDeadlines,
    TestDebounce,
)
from perdure.testing.conformance.starting import TestSignalWithStart, TestStarting
from perdure.testing.conformance.steering import (
    TestCancel,
    TestPause,
    TestSteering,
    TestTerminate,
)
from perdure.testing.conformance.sticky import TestSticky
from perdure.testing.conformance.streams import TestStreams
from perdure.testing.conformance.subscriptions import TestDeferred, TestSubscriptions
from perdure.testing.conformance.timers import TestTimers
from perdure.testing.conformance.topics import TestTopics
from perdure.testing.conformance.traces import TestTraces
from perdure.testing.conformance.turns import TestTurns
from perdure.testing.conformance.waits import TestWaits

__all__ = [
    "Driver",
    "MakeStore",
    "TestAdmission",
    "TestAlarms",
    "TestApprovals",
    "TestBatches",
    "TestCancel",
    "TestCancelOn",
    "TestCancelOnByMany",
    "TestCatalogue",
    "TestClaiming",
    "TestClaimsByPool",
    "TestClosing",
    "TestConsumers",
    "TestDeadLetters",
    "TestDeadlines",
    "TestDebounce",
    "TestDeferred",
    "TestEffects",
    "TestEmit",
    "TestFanOut",
    "TestFanOutIsUnseen",
    "TestFork",
    "TestIdleSlots",
    "TestImport",
    "TestLedger",
    "TestLedgerReads",
    "TestLookingAfter",
    "TestMatching",
    "TestMending",
    "TestOtherWords",
    "TestOutbox",
    "TestOwners",
    "TestParked",
    "TestPause",
    "TestPlays",
    "TestPoolRows",
    "TestPruning",
    "TestQueues",
    "TestQuietLedger",
    "TestRates",
    "TestReads",
    "TestRecovery",
    "TestRetention",
    "TestRetry",
    "TestScheduleRows",
    "TestSetAside",
    "TestSignalWithStart",
    "TestSignals",
    "TestSlots",
    "TestStarting",
    "TestSteering",
    "TestSticky",
    "TestStreams",
    "TestSubscriptions",
    "TestTerminate",
    "TestTicks",
    "TestTicksByHand",
    "TestTimers",
    "TestTopics",
    "TestTraces",
    "TestTurns",
    "TestWaits",
    "WriteOutbox",
    "check_invariants",
    "clock",
    "comparable",
    "d",
    "dump",
    "make_store",
    "normal",
    "quiet",
    "store",
    "write_outbox",
]
