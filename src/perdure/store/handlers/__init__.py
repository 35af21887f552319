"""What each op does, once: the decisions that all stores share.

A handler takes a `Tables` and an op, decides, writes rows and answers. It validates before its first write,
so an op that cannot apply changes nothing and never spoils its batch. It reads no clock, makes no I/O of its
own and calls no user code. So a decision can be made inside a transaction, as on SQLite, or away from the store and
then be compared with it, as on Postgres (store/optimistic).
"""

from collections.abc import Callable
from typing import Any

from perdure.model import ops
from perdure.store.handlers import (
    approving,
    consuming,
    importing,
    keeping,
    ledger,
    outbox,
    owning,
    pooling,
    queues,
    scheduling,
    sending,
    steering,
    streaming,
    timing,
    turning,
)
from perdure.store.tables import Tables

# In the order of model/ops.py.
HANDLERS: dict[type[ops.Op[Any]], Callable[[Tables, Any], Any]] = {
    ops.StartRun: owning.start_run,
    ops.SignalWithStart: owning.signal_with_start,
    ops.ImportRun: importing.import_run,
    ops.ClaimRuns: owning.claim_runs,
    ops.Beat: owning.beat,
    ops.Recover: owning.recover,
    ops.Mend: steering.mend,
    ops.Release: owning.release,
    ops.RecordStep: turning.record_step,
    ops.Suspend: turning.suspend,
    ops.RecordSend: turning.record_send,
    ops.Publish: streaming.publish,
    ops.RecordCancel: turning.record_cancel,
    ops.RejectSignal: turning.reject_signal,
    ops.Finish: turning.finish,
    ops.ContinueAs: turning.continue_as,
    ops.Park: turning.park,
    ops.FireTimers: timing.fire_timers,
    ops.Cancel: steering.cancel,
    ops.Terminate: steering.terminate,
    ops.Pause: steering.pause,
    ops.Resume: steering.resume,
    ops.Retry: steering.retry,
    ops.SendSignal: sending.send_signal,
    ops.ResendDeadLetter: sending.resend_dead_letter,
    ops.Decide: approving.decide,
    ops.Emit: ledger.emit,
    ops.FanOut: ledger.fan_out,
    ops.ResolveWait: ledger.resolve_wait,
    ops.Put: queues.put,
    ops.PurgeQueue: queues.purge_queue,
    ops.ApplyOutbox: outbox.apply_outbox,
    ops.ClaimConsumer: consuming.claim_consumer,
    ops.AdvanceCursor: consuming.advance_cursor,
    ops.CommitEffects: consuming.commit_effects,
    ops.DrainDeferred: consuming.drain_deferred,
    ops.SteerConsumer: consuming.steer_consumer,
    ops.DropConsumer: consuming.drop_consumer,
    ops.DropParked: consuming.drop_parked,
    ops.PutSubscription: consuming.put_subscription,
    ops.SwitchSubscription: consuming.switch_subscription,
    ops.DropSubscription: consuming.drop_subscription,
    ops.PutSchedule: scheduling.put_schedule,
    ops.SteerSchedule: scheduling.steer_schedule,
    ops.DropSchedule: scheduling.drop_schedule,
    ops.FireSchedules: scheduling.fire_schedules,
    ops.TriggerSchedule: scheduling.trigger_schedule,
    ops.BackfillSchedule: scheduling.backfill_schedule,
    ops.DeclarePools: pooling.declare_pools,
    ops.SetPool: pooling.set_pool,
    ops.AdmitRuns: pooling.admit_runs,
    ops.Declare: keeping.declare,
    ops.Prune: keeping.prune,
    ops.TrimLedger: ledger.trim_ledger,
}
