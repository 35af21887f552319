"""From a request to a verb of the library, and from its answer to what is sent back.

Most routes need nothing of their own: path, query and body have the names of the verb's arguments. Those whose form
over HTTP differs have a function here, found by the name of their verb. What a verb raises is told by the server.
"""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, get_origin

import msgspec
from msgspec import UNSET

from perdure.app import App
from perdure.errors import OutcomeUnknown, PerdureError, RunNotFound, ScopeMissing
from perdure.handle import RunHandle
from perdure.http import wire
from perdure.http.holding import Stopping, unless_stopping
from perdure.http.problems import told_problem_of
from perdure.http.routes import Route
from perdure.http.security import Principal, group_name
from perdure.inputs import Fact, checked_limit
from perdure.ledger import cloudevents
from perdure.model import limits
from perdure.model.duration import parse_duration
from perdure.model.limits import BadValue, check_name, shown
from perdure.model.status import TERMINAL
from perdure.views import Page, Refused, ScheduleInfo, StreamItem, failure_of

_time = re.compile(r"\d{4}-\d\d-\d\d")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its route reads it: who asks, the parts of the path, the query, the body, and both as they came."""

    principal: Principal
    path: dict[str, str]
    query: Any = None
    body: Any = None
    raw: bytes = b""
    headers: dict[str, str] = {}


Handler = Callable[[App, Call], Awaitable[Any]]


async def answer(app: App, route: Route, call: Call) -> Any:
    """What a route answers a request with."""
    return _told(await _asked(app, route, call), route)


async def _asked(app: App, route: Route, call: Call) -> Any:
    own = HANDLERS.get(route.verb) if route.on == "own" else None
    if own is not None:
        return await own(app, call)
    given = {**call.path, **_given(call.query), **_given(call.body)}
    if route.on == "run":
        handle = app.run(given.pop("run_id"))
        return await getattr(handle, route.verb)(**given)
    return await getattr(app, route.verb)(**given)


def _given(sent: msgspec.Struct | None) -> dict[str, Any]:
    """What a query or body says, by the names of arguments; what it does not say is left out."""
    if sent is None:
        return {}
    return {
        name: _moment(value) if name in wire.MOMENTS else value
        for name in sent.__struct_fields__
        if (value := getattr(sent, name)) is not UNSET
    }


def _moment(value: Any) -> Any:
    """A text that begins as a time does is one; a duration, a position or a word stays what it is."""
    if not isinstance(value, str) or not _time.match(value):
        return value
    try:
        return msgspec.convert(value, datetime)
    except msgspec.ValidationError as error:
        raise BadValue("time", value, "is not RFC 3339, such as 2030-01-31T09:00:00Z") from error


def _told(value: Any, route: Route) -> Any:
    """The answer of a verb in the form that the table promises."""
    if get_origin(route.answer) is wire.Value:
        return value if isinstance(value, wire.Value) else wire.Value(value)
    match value:
        case Page():
            return wire.Listing(items=value.items, cursor=value.cursor)
        case list():
            return wire.Listing(items=value)
        case RunHandle():
            return wire.Started(id=value.id, created=value.created)
        case _:
            return value


# --- runs ---


async def _start(app: App, call: Call) -> Any:
    given = _given(call.body)
    return await app.start(given.pop("workflow"), *given.pop("input"), **given)


async def _signal_with_start(app: App, call: Call) -> Any:
    given = _given(call.body)
    args = given.pop("input")
    workflow = given.pop("workflow")
    handle, sent = await app.signal_with_start(workflow, *args, **given)
    return wire.StartedAndSent(run=wire.Started(id=handle.id, created=handle.created), signal=sent)


async def _runs(app: App, call: Call) -> Any:
    given = _given(call.query)
    name, value = given.pop("tag_name", None), given.pop("tag_value", None)
    if name is None and value is not None:
        raise BadValue("tag_value", value, "is of no tag_name: give that too")
    if name is not None and "tag" in given:
        raise BadValue("tag_name", name, "is beside a tag: give one of them")
    if "tag" in given:  # as people write it
        name, colon, rest = given["tag"].partition(":")
        value = rest if colon else None
    if name is not None:
        given["tag"] = name if value is None else (name, value)
    return await app.runs(**given)


async def _result(app: App, call: Call) -> Any:
    run_id = call.path["run_id"]
    wait = _given(call.query).get("wait", "0s")
    wait_us = _held_for(wait, "wait")
    handle = app.run(run_id)
    if wait_us:
        try:
            await unless_stopping(handle.result(timeout=timedelta(microseconds=wait_us)))
        except (TimeoutError, PerdureError, Stopping):
            pass  # what became of it is told below; one that is not there too
    run = await app._engine().store.run(handle.id)
    if run is None:
        raise RunNotFound(run_id)
    return wire.Ended(
        id=run.run_id,
        status=run.status,
        ended=run.status in TERMINAL,
        output=None if run.output is None else msgspec.json.decode(run.output),
        failure=failure_of(run),
        reason=run.reason,
    )


def _held_for(given: Any, what: str) -> int:
    span_us = parse_duration(_number_or_text(given), what)
    if span_us > limits.http_wait_us_max:
        raise BadValue(what, given, "is longer than a minute (http_wait_us_max): ask again")
    return span_us


def _number_or_text(given: Any) -> Any:
    """A query has texts only: a bare number is seconds."""
    try:
        return float(given)
    except ValueError:
        return given


async def _published(app: App, call: Call) -> Any:
    run = await app._engine().store.run(app.run(call.path["run_id"]).id)
    if run is None:
        raise RunNotFound(call.path["run_id"])
    return msgspec.json.decode(run.published or "{}", type=dict[str, Any])


async def _state_at(app: App, call: Call) -> Any:
    handle = app.run(call.path["run_id"])
    path = _given(call.query).get("path")
    state = await (handle.get("state") if path is None else handle.state_at(path))
    return wire.Value(_written(app, state))


def _written(app: App, value: Any) -> Any:
    """A value of no type that is known here, as JSON tells it, with tags for what JSON has not."""
    return msgspec.json.decode(app._untyped.encode(value))


def item_line(app: App, item: StreamItem[Any]) -> StreamItem[Any]:
    """An item of a stream, likewise."""
    return msgspec.structs.replace(item, value=_written(app, item.value))


async def _fork(app: App, call: Call) -> Any:
    given = _given(call.body)
    if "input" in given:
        given["input"] = tuple(given["input"])
    return await app.run(call.path["run_id"]).fork(**given)


async def _stream_items(app: App, call: Call) -> Any:
    given = _given(call.query)
    limit = checked_limit(given.pop("limit", limits.page_rows_default))
    found = []
    items = app.run(call.path["run_id"]).stream(call.path["name"], follow=False, **given)
    try:
        async for one in items:
            found.append(item_line(app, one))
            if len(found) == limit:
                break
    finally:
        await items.aclose()
    return found


# --- signals ---


async def _signal_many(app: App, call: Call) -> Any:
    sends: list[wire.OneSend] = _not_too_many("sends", call.body.sends)
    outcomes = await app.signal_many((one.run_id, one.signal, one.payload) for one in sends)
    return wire.Listing(items=[_or_problem(one) for one in outcomes])


def _not_too_many(what: str, several: list[Any]) -> list[Any]:
    if len(several) > limits.http_sends_max:
        most = f"at most {limits.http_sends_max} (http_sends_max)"
        raise BadValue(what, limits.unsaid, f"are {len(several)}; {most}: send them in parts")
    return several


def _or_problem(outcome: Any) -> Any:
    if isinstance(outcome, Refused):
        return wire.Refused(told_problem_of(outcome.error))
    return outcome


async def _ask(app: App, call: Call) -> Any:
    given = _given(call.body)
    wait_us = _held_for(given.pop("timeout", "30s"), "timeout")
    question = app._question()
    asking = question.ask(
        call.path["run_id"],
        given.pop("signal"),
        given.pop("payload"),
        timeout=timedelta(microseconds=wait_us),
        **given,
    )
    try:
        reply = await unless_stopping(asking)
    except Stopping:
        why = question.unanswered("before this server was told to stop", given.get("key"))
        raise (TimeoutError(why) if question.is_sent else OutcomeUnknown(why)) from None
    return wire.Value(_written(app, reply))


# --- approvals ---


async def _approvals(app: App, call: Call) -> Any:
    given = _given(call.query)
    if given.get("who") == [""]:
        given["who"] = []
    return await app.approvals(**given)


async def _decide(app: App, call: Call) -> Any:
    """As whoever asks; to speak for others takes the scope of one who operates."""
    given = _given(call.body)
    me = call.principal
    mine = list(map(group_name, me.groups))
    by = given.pop("by", me.name)
    groups = given.pop("groups", mine if by == me.name else [])
    if not me.may("operate") and (by != me.name or not set(map(group_name, groups)) <= set(mine)):
        whom = shown(by) if by != me.name else "groups of others"
        raise ScopeMissing(me.name, "operate", sorted(me.scopes), f"to answer for {whom}")
    return await app.decide(call.path["approval_id"], by=by, groups=groups, **given)


async def _approval_link(app: App, call: Call) -> Any:
    return app.approval_link(call.path["approval_id"], **_given(call.body))


async def _answer(app: App, call: Call) -> Any:
    return await app.answer(**_given(call.body))


# --- the ledger ---


async def _emit_many(app: App, call: Call) -> Any:
    facts = [Fact(**_given(one)) for one in _not_too_many("events", call.body.events)]
    return wire.Listing(items=[_or_problem(one) for one in await app.emit_many(facts)])


async def _emit_cloudevents(app: App, call: Call) -> Any:
    facts = _cloudevents(call)
    told = [_or_problem(one) for one in await app.emit_many(facts)]
    return wire.Listing(items=told)


def _cloudevents(call: Call) -> list[Fact]:
    content_type = call.headers.get("content-type", "")
    if "ce-specversion" in call.headers:
        return [cloudevents.from_binary(call.headers, call.raw)]
    return cloudevents.from_json(call.raw, content_type)


# --- calendars ---


async def _schedules(app: App, call: Call) -> Any:
    found = await app.schedules(**_given(call.query))
    return wire.Listing(items=[schedule_line(one) for one in found], cursor=found.cursor)


def schedule_line(info: ScheduleInfo) -> wire.ScheduleLine:
    fields = msgspec.structs.asdict(info)
    every = fields["every"]
    fields["every"] = every.total_seconds() if isinstance(every, timedelta) else every
    return wire.ScheduleLine(**fields)


async def _schedule(app: App, call: Call) -> Any:
    given = _given(call.body)
    args = given.pop("input")
    name = check_name("schedule", call.path["name"])
    await app.schedule(given.pop("every"), given.pop("workflow"), *args, name=name, **given)


# --- operation ---


async def _alive(app: App, call: Call) -> Any:
    return wire.Alive()


HANDLERS: Final[dict[str, Handler]] = {
    "start": _start,
    "signal_with_start": _signal_with_start,
    "runs": _runs,
    "result": _result,
    "published": _published,
    "state_at": _state_at,
    "fork": _fork,
    "stream_items": _stream_items,
    "signal_many": _signal_many,
    "ask": _ask,
    "approvals": _approvals,
    "decide": _decide,
    "approval_link": _approval_link,
    "answer": _answer,
    "emit_many": _emit_many,
    "emit_cloudevents": _emit_cloudevents,
    "schedules": _schedules,
    "schedule": _schedule,
    "alive": _alive,
}
