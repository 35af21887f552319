"""The faces of an app: `app.sync`, and what it gives for a run.

Their verbs are those of App and RunHandle, and given to them when those are made. `faces.pyi` tells type checkers of
each; a test sees to it that it tells the truth.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.errors import NotRunning
from perdure.handle import RunHandle
from perdure.synchronous.bridge import Background, ask
from perdure.synchronous.face import Face, Opener, give_verbs

if TYPE_CHECKING:
    from perdure.app import App

R_co = TypeVar("R_co", covariant=True)


class SyncRun(Face, Generic[R_co]):
    """One run, for code that may wait: as a RunHandle or a RemoteRun, without `await`."""

    _said = _said_real = "run"

    @property
    def id(self) -> str:
        return self.run_id

    @property
    def run_id(self) -> str:
        run_id: str = self._real.run_id
        return run_id

    @property
    def created(self) -> bool:
        """Whether the call that gave this has made the run; else it had existed before."""
        created: bool = self._real.created
        return created

    def __repr__(self) -> str:
        return f"SyncRun({self.run_id!r})"


give_verbs(SyncRun, RunHandle)


class SyncApp(Opener):
    """The verbs of an App for code that may wait. `with app.sync as shop:` opens the app in the background.

    Where the app is open already, in the loop of a server, any other thread uses it as it is.
    """

    _said, _said_real = "app.sync", "app"
    _handle, _run = RunHandle, SyncRun

    def __init__(self, real: "App") -> None:
        super().__init__(real, real._life.loop)

    def _waits_for_steps(self) -> bool:
        return self._real._life.waits_for_steps

    def schema_version(self) -> Any:
        """Which schema is stored, and whether to open the store would bring it up. The app need not be open."""
        try:
            return self._ask("schema_version", (), {})
        except NotRunning:  # for this one the app need not be open
            once = Background(nullcontext(), "once")
            once.open()
            try:
                return ask(once.loop, self._real.schema_version())
            finally:
                once.close()

    def __repr__(self) -> str:
        return f"{self._real!r}.sync"
