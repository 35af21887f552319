"""The trampoline: the code of a run, driven by `coro.send`, never as an asyncio.Task.

A branch is one line of it: the workflow itself, or a child of a gather. All are driven until each stands at a
durable call or has ended, in the order in which they can go on, which is the same on every replay. An await of
anything foreign is answered with ForeignAwait where it stands. What a call means, and what it means to leave one,
is the business of recorded.py.
"""

import abc
import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable
from types import FrameType
from typing import Any

from perdure.errors import Evicted, ForeignAwait, NonDeterminism, PerdureError
from perdure.observing.speaking import driven
from perdure.runtime.calls import Durable, GatherCall
from perdure.runtime.failures import both
from perdure.runtime.forgotten import is_dropped
from perdure.runtime.paths import Scope

log = logging.getLogger("perdure.runtime")


class Branch(Scope):
    """One line of workflow code: the workflow itself, or a child of a gather."""

    __slots__ = ("cancelled", "coro", "ended", "index", "join", "received", "stands", "told")

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        prefix: str = "",
        join: GatherCall | None = None,
        index: int = 0,
    ) -> None:
        self.enter(prefix)
        self.coro = coro
        self.join = join
        self.index = index
        self.stands: Durable[Any] | None = None
        self.ended = False
        self.cancelled = False  # a sibling failed: CancelledError at the next opportunity, once
        self.told = False
        # The signal that it has received last, which it may answer; at first that of the branch around it.
        self.received: str | None = None if join is None else join.branch.received


class Branches(abc.ABC):
    """The branches of one run. `Recorded` says what a call means, and what leaving one means."""

    __slots__ = (
        "_branch",
        "_failure",
        "_newest",
        "_outcome",
        "_runnable",
        "_unawaited",
        "dead",
        "run_id",
    )

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.dead = False  # being unwound, or unwound
        self._branch: Branch | None = None  # whose code is running
        # Made when it is needed: most runs are one branch, which goes on as soon as it can.
        self._runnable: deque[tuple[Branch, Any, BaseException | None]] | None = None
        self._failure: PerdureError | None = None  # nothing may be driven any more
        self._outcome: tuple[Any, BaseException | None] | None = None  # of the workflow itself
        # Calls that were made and that no branch stands at yet: the newest, and those before it, which are few.
        self._newest: Durable[Any] | None = None
        self._unawaited: dict[Durable[Any], None] | None = None

    @abc.abstractmethod
    def _ask(self, call: Durable[Any]) -> None:
        """A branch has come to a call that is not a gather, and stands there."""

    @abc.abstractmethod
    def _is_decided(self, call: Durable[Any]) -> bool:
        """Whether its branch will be given the result of this call, whatever happens to others; then it is told that it
        is cancelled where it stands next."""

    @abc.abstractmethod
    def _abandon(self, call: Durable[Any]) -> None:
        """Its branch leaves this call for good."""

    # --- driving ---

    def current_branch(self) -> Branch:
        """The branch whose code is running; ctx works nowhere else."""
        if self.dead:
            # The code is being unwound. The call is made and its await is where Evicted is raised, by
            # `_unwind`: raised here, code that catches everything in a loop would never let go of us.
            return Branch(_nobody)
        if self._branch is None:
            raise ForeignAwait(
                f"the ctx of run {self.run_id!r} was used outside its workflow code (in a step, a task or "
                "another run): pass values to steps instead"
            )
        return self._branch

    # --- calls that are made, and awaited later ---

    def made(self, call: Durable[Any], frame: FrameType) -> None:
        """Code has made a call, here. It is to be awaited, or to be handed to a gather."""
        call.made_in, call.made_at = frame.f_code, frame.f_lasti
        if self._newest is not None:
            if self._unawaited is None:
                self._unawaited = {}
            self._unawaited[self._newest] = None
        self._newest = call

    def taken(self, call: Durable[Any]) -> None:
        """It was awaited, or somebody is charged with it."""
        if call is self._newest:
            self._newest = None
        elif self._unawaited is not None:
            self._unawaited.pop(call, None)
            if not self._unawaited:
                self._unawaited = None

    @property
    def unawaited(self) -> list[Durable[Any]]:
        """In the order in which they were made."""
        newest = [] if self._newest is None else [self._newest]
        return [*(self._unawaited or ()), *newest]

    def _excuse(self) -> None:
        """An error comes into the code: what it had made before, to await it later, it may never come to.

        Not so what it had let go of on the spot.
        """
        if self._newest is not None or self._unawaited is not None:
            left = [one for one in self.unawaited if is_dropped(one)]
            self._newest, self._unawaited = None, dict.fromkeys(left) or None

    def _drain(
        self, branch: Branch | None = None, value: Any = None, error: BaseException | None = None
    ) -> None:
        """Drive this branch, if one is given, and then whatever can go on."""
        # Whatever task we happen to be driven from is none of the workflow's business: an asyncio.timeout in
        # its code would cancel the engine. Without a task around it, it refuses to work.
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is not None:
            asyncio._leave_task(loop, task)
        try:
            if branch is not None and self._failure is None:
                self._send(branch, value, error)
            while self._runnable and self._failure is None:
                self._send(*self._runnable.popleft())
        except NonDeterminism as mismatch:
            self._failure = mismatch
        except Exception as error:
            self._failure = broken(self.run_id, error)
        finally:
            if task is not None:
                asyncio._enter_task(loop, task)

    def _let_run(
        self, branch: Branch, value: Any, error: BaseException | None, *, first: bool = False
    ) -> None:
        branch.stands = None
        if self._runnable is None:
            self._runnable = deque()
        if first:
            self._runnable.appendleft((branch, value, error))
        else:
            self._runnable.append((branch, value, error))

    def _send(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        if branch.ended:
            return
        branch.stands = None
        if error is not None:
            self._excuse()
        self._branch = branch
        outer, driven.run = driven.run, self
        try:
            asked = branch.coro.send(value) if error is None else branch.coro.throw(error)
        except StopIteration as stop:
            self._branch_ended(branch, stop.value, None)
        except BaseException as raised:
            if isinstance(raised, KeyboardInterrupt | SystemExit):
                raise
            self._branch_ended(branch, None, raised)
        else:
            self._stand(branch, asked)
        finally:
            driven.run = outer
            self._branch = None

    def _stand(self, branch: Branch, asked: Any) -> None:
        if not isinstance(asked, Durable) or asked.owner is not self or asked.used:
            self._let_run(branch, None, _foreign(branch, asked), first=True)
            return
        asked.used = True
        if asked is self._newest:
            self._newest = None  # nearly always: a call is awaited as soon as it is made
        else:
            self.taken(asked)
        asked.branch = branch
        branch.stands = asked
        if branch.cancelled and not branch.told:
            branch.told = True
            self._let_run(branch, None, asyncio.CancelledError())
        elif isinstance(asked, GatherCall):
            self._open_gather(asked)
        else:
            self._ask(asked)

    def _branch_ended(self, branch: Branch, value: Any, error: BaseException | None) -> None:
        branch.ended = True
        if error is not None:
            self._excuse()
        if branch.join is None:
            self._outcome = (value, error)
            return
        self._join(branch.join, branch, value, error)

    # --- gathers ---

    def _open_gather(self, call: GatherCall) -> None:
        call.open = len(call.makers)
        if not call.makers:
            self._let_run(call.branch, call.results, None)
            return
        while call.started < min(call.concurrency, len(call.makers)):
            self._start_branch(call)

    def _start_branch(self, call: GatherCall) -> None:
        index = call.started
        call.started += 1
        branch = Branch(call.makers[index](), f"{call.path}[{index}]/", call, index)
        call.branches.append(branch)
        self._let_run(branch, None, None)

    def _join(
        self, call: GatherCall, branch: Branch, value: Any, error: BaseException | None
    ) -> None:
        call.open -= 1
        call.results[branch.index] = value
        if error is not None and call.failure is None:
            call.failure = error
            # Branches not begun never begin; those that stand are told to clean up.
            call.open -= len(call.makers) - call.started
            call.started = len(call.makers)
            for sibling in call.branches:
                self._cancel_branch(sibling)
        elif error is not None and call.failure is not None:
            call.failure = both(call.failure, error)
        elif call.started < len(call.makers):
            self._start_branch(call)
        if call.open == 0:
            result = (None, call.failure) if call.failure is not None else (call.results, None)
            self._let_run(call.branch, *result)

    def _cancel_branch(self, branch: Branch) -> None:
        if branch.ended or branch.cancelled or branch.told:
            return
        branch.cancelled = True
        stands = branch.stands
        if isinstance(stands, GatherCall):
            branch.told = True
            for child in stands.branches:
                self._cancel_branch(child)
        elif stands is not None and not self._is_decided(stands):
            branch.told = True
            self._abandon(stands)
            self._let_run(branch, None, asyncio.CancelledError())

    # --- unwinding ---

    def _unwind(self, leaves: Iterable[Branch]) -> None:
        """End all branches that have not ended: those that stand, those that could go on, those around them."""
        waiting = [one for one, _, _ in self._runnable or ()]
        for branch in _from_the_inside([*leaves, *waiting]):
            if not branch.ended:
                _unwind(branch)


async def _nothing_more() -> None:
    """The code of a branch that is only there to give calls of an unwound run their paths."""


_nobody = _nothing_more()
_nobody.close()


def _from_the_inside(leaves: list[Branch]) -> list[Branch]:
    """These branches and those around them, the deepest first: a child is unwound before its parent."""
    depths: dict[Branch, int] = {}
    for leaf in leaves:
        line = [leaf]
        while (join := line[-1].join) is not None:
            line.append(join.branch)
        depths.update((one, depth) for depth, one in enumerate(reversed(line)))
    return sorted(depths, key=depths.__getitem__, reverse=True)


def _unwind(branch: Branch) -> None:
    branch.ended = True
    try:
        for _ in range(100):  # code that awaits in `finally` is told again, but not for ever
            branch.coro.throw(Evicted())
        branch.coro.close()
    except (StopIteration, Evicted):
        pass
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        # What cleanup code raises while it is unwound changes nothing: the run will be replayed.


def broken(run_id: str, error: Exception) -> PerdureError:
    """What parks a run on which the engine itself failed: it must never hang, nor take others with it."""
    log.error("run %r broke the engine", run_id, exc_info=error, extra={"run_id": run_id})
    return PerdureError(f"the engine failed on this run: {type(error).__name__}: {error}")


def _foreign(branch: Branch, asked: Any) -> ForeignAwait:
    if isinstance(asked, Durable) and asked.used:
        return ForeignAwait(
            f"the durable call at {asked.path!r} was awaited twice: make a new call"
        )
    if isinstance(asked, Durable):
        return ForeignAwait(f"the durable call at {asked.path!r} belongs to another run")
    where = _where(branch.coro)
    what = type(asked).__name__ if asked is not None else "a bare yield (asyncio.sleep(0)?)"
    return ForeignAwait(
        f"{where} awaited {what}, which is not durable. In a workflow await only ctx calls: put I/O into a step "
        "(`await ctx.step(fetch, url)`), use `ctx.sleep` for time and `ctx.gather` for concurrency"
    )


def _where(coro: Any) -> str:
    """File and line of the innermost workflow frame that awaits."""
    frame, line = coro.cr_frame, ""
    inner = coro
    while inner is not None and getattr(inner, "cr_frame", None) is not None:
        frame = inner.cr_frame
        if "asyncio" in frame.f_code.co_filename.replace("\\", "/").split("/"):
            break
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        inner = inner.cr_await
    return line or "the workflow"
