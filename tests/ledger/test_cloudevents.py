"""CloudEvents against the reference implementation, in both directions, and what is refused."""

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings import http as core_http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as CoreEvent
from cloudevents.v1 import conversion as old_conversion
from cloudevents.v1.http import CloudEvent as OldEvent
from cloudevents.v1.http import from_http as old_from_http
from cloudevents.v1.http import from_json as old_from_json
from hypothesis import given
from hypothesis import strategies as st

from perdure import App, Duplicate, Emitted
from perdure.errors import InvalidPayload
from perdure.inputs import Fact
from perdure.ledger.cloudevents import (
    BATCH_TYPE,
    STRUCTURED_TYPE,
    from_json,
    to_batch_json,
    to_cloudevent,
    to_json,
)
from perdure.model import limits
from perdure.model.codec import codec_for
from perdure.model.events import Cause, Event

SOURCE = "/perdure/shop"
ULID = "01JZ0000000000000000000001"
OTHER = "01JZ0000000000000000000002"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MOMENT = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)

full = Event(
    position=2**40,
    event_id=ULID,
    type="order.paid",
    entity_type="order",
    entity_id="42",
    payload={"total": 7, "lines": [{"sku": "ü"}]},
    occurred_at=MOMENT,
    recorded_at=MOMENT + timedelta(seconds=1),
    caused_by=Cause(event_id=OTHER, run_id="run-1", path="pay#2", consumer="c", replay=True),
    root_id=OTHER,
    depth=3,
    key="order-42",
    trace=TRACE,
)
bare = Event(
    position=1,
    event_id=OTHER,
    type="ping",
    entity_type=None,
    entity_id=None,
    payload=None,
    occurred_at=MOMENT.replace(microsecond=0),
    recorded_at=MOMENT,
    root_id=OTHER,
)


def sent(**changes: Any) -> dict[str, Any]:
    """A CloudEvent of somebody else; a change to `...` leaves that out."""
    event = {"specversion": "1.0", "id": "a-1", "source": "/their", "type": "order.paid", **changes}
    return {name: value for name, value in event.items() if value is not ...}


def read(**changes: Any) -> Fact:
    (fact,) = from_json(json.dumps(sent(**changes)))
    return fact


# --- out -----------------------------------------------------------------------------------------


def test_every_field_has_its_attribute() -> None:
    assert to_cloudevent(full, SOURCE) == {
        "specversion": "1.0",
        "id": ULID,
        "source": SOURCE,
        "type": "order.paid",
        "subject": "order/42",
        "time": "2026-03-04T05:06:07.890123Z",
        "datacontenttype": "application/json",
        "position": str(2**40),
        "recordedtime": "2026-03-04T05:06:08.890123Z",
        "rootid": OTHER,
        "depth": 3,
        "causeid": OTHER,
        "causerunid": "run-1",
        "causepath": "pay#2",
        "causeconsumer": "c",
        "causereplay": True,
        "idempotencykey": "order-42",
        "traceparent": TRACE,
        "data": {"total": 7, "lines": [{"sku": "ü"}]},
    }


def test_what_is_none_is_left_out() -> None:
    written = to_cloudevent(bare, SOURCE)
    assert None not in {value for name, value in written.items() if name != "data"}
    assert not {"subject", "causeid", "causereplay", "idempotencykey", "traceparent"} & set(written)
    assert written["time"] == "2026-03-04T05:06:07Z"


@pytest.mark.parametrize("name", to_cloudevent(full, SOURCE))
def test_names_are_as_the_standard_wants_them(name: str) -> None:
    assert name.isascii() and name.isalnum() and name == name.lower() and len(name) <= 20


@pytest.mark.parametrize("source", ["", None, 5])
def test_a_source_is_needed(source: Any) -> None:
    with pytest.raises(limits.BadValue, match="source"):
        to_json(full, source)


# --- what we write, the reference reads -----------------------------------------------------------


def core_reads(text: str) -> dict[str, Any]:
    message = core_http.HTTPMessage({"content-type": STRUCTURED_TYPE}, text.encode())
    event = core_http.from_http(message, JSONFormat(), CoreEvent)
    assert event.get_attributes() == core_http.from_structured_event(message).get_attributes()
    attributes = event.get_attributes()
    return {**attributes, "time": attributes["time"].isoformat(), "data": event.get_data()}


def old_reads(text: str) -> dict[str, Any]:
    event = old_from_http({"content-type": STRUCTURED_TYPE}, text)
    assert event == old_from_json(text)
    return {
        name: value
        for name, value in old_conversion.to_dict(event).items()
        if value is not None or name == "data"
    }


@pytest.mark.parametrize("reads", [core_reads, old_reads])
@pytest.mark.parametrize("event", [full, bare], ids=["full", "bare"])
def test_the_reference_reads_what_we_write(reads: Any, event: Event) -> None:
    ours = to_cloudevent(event, SOURCE)
    theirs = reads(to_json(event, SOURCE))
    for instant in (ours, theirs):
        instant["time"] = datetime.fromisoformat(instant["time"])
    assert theirs == ours


@pytest.mark.parametrize("reads", [core_reads, old_reads])
def test_the_reference_reads_each_event_of_a_batch(reads: Any) -> None:
    """It knows no batches itself; one is an array of structured events."""
    parts = json.loads(to_batch_json([full, bare], SOURCE))
    assert [reads(json.dumps(part))["id"] for part in parts] == [ULID, OTHER]
    assert json.loads(to_batch_json([], SOURCE)) == []


# --- what the reference writes, we read -----------------------------------------------------------

attributes = {
    "id": "a-1",
    "source": "https://their.example/shop",
    "type": "com.example.paid",
    "subject": "order/42",
    "time": MOMENT,
    "datacontenttype": "application/json",
    "traceparent": TRACE,
}


def core_writes(data: Any, **changes: Any) -> bytes:
    event = CoreEvent({**attributes, **changes}, data)
    return core_http.to_structured_event(event).body


def old_writes(data: Any, **changes: Any) -> bytes:
    event = OldEvent({**attributes, "time": MOMENT.isoformat(), **changes}, data)
    _, body = old_conversion.to_structured(event)
    assert body == old_conversion.to_json(event)
    return body


@pytest.mark.parametrize("writes", [core_writes, old_writes])
def test_we_read_what_the_reference_writes(writes: Any) -> None:
    assert from_json(writes({"total": 7}), STRUCTURED_TYPE) == [
        Fact(
            topic="com.example.paid",
            payload={"total": 7},
            entity="order/42",
            key="https://their.example/shop/a-1",
            occurred_at=MOMENT,
            trace=TRACE,
        )
    ]


@pytest.mark.parametrize("writes", [core_writes, old_writes])
def test_we_read_a_batch_of_what_the_reference_writes(writes: Any) -> None:
    batch = b"[%b]" % b",".join(writes({"n": n}, id=f"a-{n}") for n in range(3))
    found = from_json(batch, f"{BATCH_TYPE}; charset=utf-8")
    assert [(one.payload, one.key) for one in found] == [
        ({"n": n}, f"https://their.example/shop/a-{n}") for n in range(3)
    ]


@pytest.mark.parametrize("writes", [core_writes, old_writes])
def test_we_read_the_bytes_that_the_reference_writes(writes: Any) -> None:
    (parsed,) = from_json(writes(b'{"total": 7}'))
    assert parsed.payload == {"total": 7}
    (kept,) = from_json(writes(b"\x00\xff", datacontenttype="image/png"))
    assert kept.payload == base64.b64encode(b"\x00\xff").decode()
    assert codec_for(bytes).decode(json.dumps(kept.payload)) == b"\x00\xff"


# --- round trip ----------------------------------------------------------------------------------

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(limits.int_min, limits.int_max)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
keys = st.none() | st.text("abc/%# ü", min_size=1, max_size=9).filter(
    lambda key: key == key.strip()
)


def kept(event: Event) -> Fact:
    """All that another ledger keeps of an event."""
    return Fact(
        topic=event.type,
        payload=event.payload,
        entity=event.entity,
        event_id=event.event_id,
        key=event.key,
        occurred_at=event.occurred_at,
        trace=event.trace,
    )


@pytest.mark.parametrize("event", [full, bare], ids=["full", "bare"])
def test_an_event_comes_back(event: Event) -> None:
    assert from_json(to_json(event, SOURCE)) == [kept(event)]


@given(st.lists(plain, max_size=3), keys, st.datetimes(timezones=st.just(UTC)))
def test_any_payloads_come_back(payloads: list[Any], key: str | None, moment: datetime) -> None:
    events = [
        msgspec.structs.replace(full, payload=payload, key=key, occurred_at=moment)
        for payload in payloads
    ]
    assert from_json(to_batch_json(events, SOURCE), BATCH_TYPE) == [kept(one) for one in events]


def test_the_largest_and_the_deepest_payload_come_back() -> None:
    deep: Any = None
    for _ in range(limits.payload_depth_max):
        deep = [deep]
    for payload in (
        "x" * (limits.payload_bytes_max - 2),
        deep,
        [0] * (limits.payload_nodes_max - 1),
    ):
        event = msgspec.structs.replace(full, payload=payload)
        assert from_json(to_json(event, SOURCE)) == [kept(event)]


# --- identity ------------------------------------------------------------------------------------


def test_an_id_that_is_a_ulid_is_the_id() -> None:
    assert (read(id=ULID).event_id, read(id=ULID).key) == (ULID, None)


@pytest.mark.parametrize("other", [ULID.lower(), "8" + ULID[1:], ULID[:-1], ULID[:-1] + "U", "7"])
def test_any_other_id_is_kept_in_the_key(other: str) -> None:
    assert (read(id=other).event_id, read(id=other).key) == (None, f"/their/{other}")


def test_a_given_key_comes_first() -> None:
    assert read(idempotencykey="k").key == "k"
    assert read(id=ULID, idempotencykey="k") == read(id=ULID, idempotencykey="k", position="7")


@pytest.mark.parametrize(
    ("source", "event_id"),
    [("a", "x" * 600), ("s" * 600, "1"), ("a", "b "), (" a", "b"), ("a", "\u2028b")],
)
def test_an_identity_that_is_no_key_is_hashed(source: str, event_id: str) -> None:
    key = read(source=source, id=event_id).key
    assert key is not None and key.startswith("cloudevent:")
    assert limits.check_key(key) == key == read(source=source, id=event_id, type="other").key


identities = st.tuples(*2 * [st.text("ab/% ", min_size=1, max_size=4)])


@given(identities, identities)
def test_two_identities_never_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = (read(source=source, id=event_id).key for source, event_id in (one, other))
    assert (first == second) == (one == other)


def test_the_slash_that_parts_source_and_id_is_known() -> None:
    assert read(source="a/b", id="c").key == "a/b/c"
    assert read(source="a", id="b/c").key == "a/b%2Fc"
    assert read(source="a", id="b%2Fc").key == "a/b%252Fc"


# --- what is understood --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "entity"),
    [("order/42", "order/42"), ("42", "subject/42"), ("/a.png", "subject//a.png"), (None, None)],
)
def test_a_subject_is_an_entity_or_kept_as_one(subject: str | None, entity: str | None) -> None:
    assert read(subject=subject).entity == entity


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-04T05:06:07Z", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2026-03-04t05:06:07z", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2026-03-04T05:06:07.5+02:00", datetime(2026, 3, 4, 3, 6, 7, 500_000, tzinfo=UTC)),
        ("2026-03-04T05:06:07.123456789Z", datetime(2026, 3, 4, 5, 6, 7, 123_456, tzinfo=UTC)),
        (None, None),
    ],
)
def test_times_of_rfc_3339_are_read(text: str | None, moment: datetime | None) -> None:
    found = read(time=text).occurred_at
    assert found == moment
    assert found is None or found.tzinfo is UTC


@pytest.mark.parametrize(
    ("changes", "payload"),
    [
        ({}, None),
        ({"data": None}, None),
        ({"data": "text", "datacontenttype": "text/plain"}, "text"),
        ({"data": "text"}, "text"),
        ({"data": {"a": 1}, "data_base64": None}, {"a": 1}),
        ({"data_base64": "WzFd"}, "WzFd"),
        ({"data_base64": "WzFd", "datacontenttype": "application/json"}, [1]),
        ({"data_base64": "WzFd", "datacontenttype": "application/x+JSON; charset=utf-8"}, [1]),
        ({"data_base64": "WzFd", "datacontenttype": "application/jsonish"}, "WzFd"),
    ],
)
def test_data_becomes_the_payload(changes: dict[str, Any], payload: object) -> None:
    assert read(**changes).payload == payload


def test_extensions_of_others_are_left_out() -> None:
    assert read(theirs="x", flag=True, number=7, nothing=None, dataschema="urn:x") == read()


def test_an_empty_batch_has_no_events() -> None:
    assert from_json(" [ ] ", BATCH_TYPE) == []


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *[({name: ...}, f"attribute '{name}' is missing") for name in sent()],
        *[({name: None}, f"attribute '{name}' is missing") for name in sent()],
        *[({name: ""}, f"attribute '{name}' is empty") for name in sent()],
        *[({name: 7}, f"attribute '{name}' is a int; give text") for name in sent()],
        ({"subject": ""}, "attribute 'subject' is empty"),
        ({"time": ""}, "attribute 'time' is empty"),
        (
            {"specversion": "0.3"},
            "'specversion' is '0.3', which is not read here; send CloudEvents 1.0",
        ),
        ({"id": "a\x00"}, "attribute 'id' holds a control character"),
        ({"type": "a/b"}, "attribute 'type': event type name 'a/b' contains '/'"),
        ({"type": "x" * 257}, "name_bytes_max"),
        ({"subject": "x" * 257}, "attribute 'subject': entity id"),
        ({"idempotencykey": "x" * 513}, "key_bytes_max"),
        ({"traceparent": 5}, "attribute 'traceparent' is a int"),
        ({"data": 1, "data_base64": "WzFd"}, "'data_base64' stands beside data"),
        ({"data_base64": 7}, "attribute 'data_base64' is a int"),
        ({"data_base64": "a"}, "attribute 'data_base64': data is not base64"),
        ({"data_base64": "WzFd\n"}, "is not base64"),
        (
            {"data_base64": "W2Fd", "datacontenttype": "text/json"},
            "'data_base64': JSON text cannot",
        ),
        (
            {"data_base64": "gA==", "datacontenttype": "text/json"},
            "'data_base64': JSON text cannot",
        ),
        ({"time": "yesterday"}, "attribute 'time' is 'yesterday'; give a time of RFC 3339"),
        ({"time": "2026-03-04"}, "RFC 3339"),
        ({"time": "2026-03-04T05:06:07"}, "RFC 3339"),
        ({"time": "2026-03-04 05:06:07Z"}, "RFC 3339"),
        ({"time": "2026-02-31T05:06:07Z"}, "RFC 3339"),
        ({"time": "2026-03-04T25:06:07Z"}, "RFC 3339"),
        ({"time": "0001-01-01T00:00:00+12:00"}, "RFC 3339"),
        ({"time": 1700000000}, "attribute 'time' is a int; give text"),
        ({"Subject": "a"}, "attribute 'Subject' is no name for one; use lower-case"),
        ({"trace_parent": "a"}, "'trace_parent' is no name"),
        ({"": "a"}, "attribute '' is no name"),
        ({"ü": "a"}, "'ü' is no name"),
        ({"list": [1]}, "attribute 'list' is a list"),
        ({"object": {}}, "attribute 'object' is a dict"),
        ({"share": 1.5}, "attribute 'share' is a float"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        from_json(json.dumps(sent(**changes)))
    assert words in str(caught.value)
    with pytest.raises(InvalidPayload) as caught:
        from_json(json.dumps([sent(), sent(**changes)]))
    assert str(caught.value).startswith("CloudEvent 2 of 2 does not fit: ")
    assert words in str(caught.value)


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (deep(limits.payload_depth_max + 1), "attribute 'data': payload nests"),
        (deep(limits.payload_depth_max * 3), "payload_depth_max"),
        (json.dumps("x" * limits.payload_bytes_max), "payload_bytes_max"),
        (json.dumps([0] * limits.payload_nodes_max), "payload_nodes_max"),
        (str(2**63 * 10), "beyond 64 bits"),
        ("NaN", "no NaN"),
        ("[Infinity]", "no NaN"),
        ("1e999", "Number out of range"),
        ("nope", "cannot be read"),
        ("", "cannot be read"),
        ('"\\ud800"', "cannot be read"),
    ],
)
def test_data_over_a_bound_is_refused(data: str, words: str) -> None:
    text = json.dumps(sent(data="HERE")).replace('"HERE"', data)
    with pytest.raises(InvalidPayload) as caught:
        from_json(f"[{text}]")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "content_type", "words"),
    [
        ("7", None, "Expected `object`"),
        ('"x"', None, "Expected `object`"),
        ("", None, "cannot be read"),
        ("[7]", None, "CloudEvent 1 of 1"),
        ("[[]]", None, "CloudEvent 1 of 1"),
        ("[{},]", None, "the batch of CloudEvents"),
        ("{}", BATCH_TYPE, "a batch is no JSON array; send one"),
        ("7", BATCH_TYPE, "a batch is no JSON array; send one"),
        ("[]", STRUCTURED_TYPE, "an event is no JSON object; send one"),
        ("{}", "application/json", "content type 'application/json' is not read here; give"),
        (deep(100_000), None, "nests too deep (payload_depth_max)"),
        ("[" * 100_000, None, "nests too deep (payload_depth_max)"),
        ('{"a":' * 100_000, None, "nests too deep (payload_depth_max)"),
        ("[" + "{}," * 1000 + "{}]", None, "cloudevents_per_batch_max"),
        ("[" + "1," * 300_000 + "1]", None, "cloudevents_values_max"),
        (" " * (limits.cloudevents_bytes_max + 1), None, "cloudevents_bytes_max"),
        (json.dumps(sent(x="x" * 5000)), None, "cloudevent_attribute_bytes_max"),
        (b"\xff", None, "cannot be read"),
        (b'{"id": "\xff"}', None, "cannot be read"),
        ('{"id": "\ud800"}', None, "lone surrogate"),
        (None, None, "is a NoneType; give a str or bytes"),
        ({}, None, "is a dict; give a str or bytes"),
    ],
)
def test_text_that_is_no_event_is_refused(text: Any, content_type: str | None, words: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        from_json(text, content_type)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@given(st.binary(max_size=60) | st.text(max_size=60) | plain.map(json.dumps))
def test_any_text_is_events_or_refused(text: str | bytes) -> None:
    try:
        assert from_json(text) == []
    except InvalidPayload:
        pass


@given(
    st.dictionaries(
        st.sampled_from([*sent(), "time", "subject", "data", "data_base64", "x"]), plain
    )
)
def test_any_attributes_are_an_event_or_refused(changes: dict[str, Any]) -> None:
    try:
        (found,) = from_json(json.dumps(sent(**changes)))
    except InvalidPayload:
        return
    limits.check_name("event type", found.topic)
    assert found.event_id or limits.check_key(found.key)
    assert found.entity is None or limits.check_entity(found.entity)


def test_an_offset_is_written_as_utc() -> None:
    east = MOMENT.astimezone(timezone(timedelta(hours=5)))
    event = msgspec.structs.replace(full, occurred_at=east)
    assert to_cloudevent(event, SOURCE)["time"] == "2026-03-04T05:06:07.890123Z"


async def test_an_app_takes_cloudevents_and_gives_them(world: Any, app: App) -> None:
    async with world(app) as w:
        text = json.dumps([sent(id="1", data={"n": 1}), sent(id="2", data={"n": 2})])
        first = await w.app.emit_cloudevents(text)
        assert [type(one) for one in first] == [Emitted, Emitted]
        again = await w.app.emit_cloudevents(text)
        assert [type(one) for one in again] == [Duplicate, Duplicate]
        events = [await w.app.event(one.event_id) for one in first]
        assert [one.payload for one in events] == [{"n": 1}, {"n": 2}]
        (given,) = from_json(w.app.as_cloudevents(events[0]))
        assert given.event_id == events[0].event_id and given.payload == {"n": 1}
        assert len(from_json(w.app.as_cloudevents(*events), BATCH_TYPE)) == 2
        with pytest.raises(InvalidPayload):
            await w.app.emit_cloudevents(json.dumps([sent(id="3"), {"id": "4"}]))
        assert len(await w.app.events(events[0].type)) == 2
