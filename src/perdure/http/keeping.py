"""What is kept from readers, where a text may quote what stands elsewhere: what a run was given, what it shows.

A failure has the words of an exception, which has often seen the input of its run. An answer that has both is redacted
by itself; for one that has the failure alone the run is looked up here, and for no more runs than a bound: of the rest,
and of those that are gone, no words are told. Reads only, and only for who may not see all.
"""

from typing import Any

from perdure.app import App
from perdure.http.handling import Call
from perdure.http.redacting import WITH_INPUT, Redacting, failed_runs, quotes_its_run
from perdure.http.routes import Route
from perdure.model import limits
from perdure.observing.redaction import Redaction
from perdure.views import run_contents


class ForReaders:
    """Writes what a route answers one who may not see all. `sent` is what the request has brought."""

    def __init__(self, app: App, redaction: Redaction, route: Route, call: Call, sent: Any) -> None:
        self._app = app
        self._redaction = redaction
        self._verb = route.verb
        self._run_id = call.path.get("run_id")
        self._sent = sent

    async def __call__(self, value: Any) -> bytes:
        quoted = self._quoted(value)
        parameters = await self._parameters() if quoted or self._verb in WITH_INPUT else None
        plain = Redacting(self._redaction, self._verb, self._sent, parameters)
        if not quoted:
            return plain(value)
        hidden = {one: await self._hidden_in(plain, one) for one in quoted}
        own = hidden.get(self._run_id or "") or ()
        return Redacting(self._redaction, self._verb, self._sent, parameters, own, hidden)(value)

    def _quoted(self, value: Any) -> list[str]:
        """The runs that are to be looked up."""
        if self._run_id is not None and quotes_its_run(value):
            return [self._run_id]
        return list(dict.fromkeys(failed_runs(value)))[: limits.http_quoted_runs_max]

    async def _hidden_in(self, plain: Redacting, run_id: str) -> set[str] | None:
        """What is hidden of a run; None if it is gone. One after the other, for inputs may be large."""
        run = await self._app._engine().store.run(run_id)
        return None if run is None else plain.hidden_in(run_contents(run))

    async def _parameters(self) -> dict[str, list[list[str]]]:
        """What workflows call their arguments, by the catalogue: it knows those of other apps too."""
        found: dict[str, list[list[str]]] = {}
        for one in await self._app.catalogue():
            found.setdefault(one.name, []).append(_titles(one.input_schema))
        return found


def _titles(schema: Any) -> list[str]:
    listed = schema.get("prefixItems", []) if isinstance(schema, dict) else []
    return [str(one.get("title", "")) for one in listed]
