"""Every bound of the engine, with its reason; and the checks of names, ids, tags, payloads.

A bound that is reached is an error that says which bound it was, so each refusal below names its
constant. The payload checks work on JSON text before anything parses it: a hostile payload must
cost no more than its bytes. Nothing here knows types; that is the codec's part.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from perdure.model.root import PerdureError

# Payloads. One megabyte is far above a sane message and far below what hurts a commit or a replay.
payload_bytes_max = 1024 * 1024
# Parsers recurse in C: nesting of 2,000 raises RecursionError, so stop long before that.
payload_depth_max = 64
# Memory is paid per node, not per byte: 1 MiB of "[[],[]...]" is some hundred times larger parsed.
payload_nodes_max = 100_000
# What `ctx.set` publishes is read by outsiders on every look at a run, so it stays small.
published_bytes_max = 64 * 1024
# Integers that every store, JSON reader and SQL column carries exactly (64-bit signed).
int_min = -(2**63)
int_max = 2**63 - 1

# The command line. Whoever watches looks again and again; a hundred times a second is more than anybody sees.
look_us_min = 10_000
# The ledger is read forwards: `events tail PATTERN` looks for the newest of a pattern no further back than this.
events_looked_back_max = 100_000
# Lines of a file of signals, which is checked whole before the first one is sent, and so held in memory.
signals_per_file_max = 1_000_000

# Names are index keys and parts of paths; 256 bytes fit every index page of every store.
name_bytes_max = 256
run_id_bytes_max = 256
entity_id_bytes_max = 256
# A caller's idempotency key may be a composed one, hence twice a name.
key_bytes_max = 512
# A trace context of W3C has 55 characters; vendors' own are longer.
trace_bytes_max = 512
# A path is scopes, name and number: deep enough for real nesting, short enough for an index key.
path_bytes_max = 1024
# A topic is read by people; sixteen levels of meaning are more than anybody names.
topic_segments_max = 16
# Each `**` of a pattern is one more place to be at, for every event; two at the ends and one between.
pattern_wildcards_max = 3
# Tags are for finding runs, not for storing data.
tags_max = 32
tag_bytes_max = 256

# Listings page by cursor; a page is held in memory on both sides.
page_rows_max = 1000
page_rows_default = 100
# What one fsck tells: a store with more than that is beyond mending one by one, and the list is held in memory.
findings_max = 10_000
# One batch is one commit; beyond this a commit gets slower, not more efficient.
batch_ops_max = 1000
# Events that the ops of one batch bring along, but for a single op: a server does nothing else meanwhile.
batch_events_max = 10_000
# Ops waiting in the coordinator. Over it, submit waits: back-pressure, never loss.
queue_ops_max = 20_000

# The body of an HTTP request: one payload of full size, whose text may be longer escaped, and what goes around it.
http_body_bytes_max = 4 * 1024 * 1024
# Of one that brings many: as much as CloudEvents that come as one text.
http_batch_bytes_max = 16 * 1024 * 1024
# Of one that brings a whole run: its history may be long, and it is read in memory.
http_document_bytes_max = 64 * 1024 * 1024
# How long a body may take to come, whole: a stranger may begin many that never end.
http_body_s = 60
# Values in a body that brings many, or a run: each costs memory, whatever its size.
http_values_max = 1_000_000
# Signals, or events, of one batch: as many as one commit takes.
http_sends_max = 1_000
# How long a request is held for the end of a run, or an answer: proxies cut off what is quiet for longer than a minute.
http_wait_us_max = 60 * 1_000_000
# Requests that one server holds at once: each holds a connection, and looks at the store now and then.
http_held_max = 1_000
# How long a look at the store may take that says whether it is ready: whoever asks, asks again soon.
http_ready_s = 5
# Streams that one server feeds at once; each holds a connection and a queue.
http_streams_max = 1_000
# Events that wait for a reader of a stream who is too slow; then it is cut off, and comes back where it was.
http_stream_backlog_max = 1_000
# And what they may hold in all, beside the newest: a thousand of full size would be a gigabyte.
http_stream_backlog_bytes_max = 4 * 1024 * 1024
# Runs that one stream watches: a page of a listing. Each is read whenever something was committed.
http_stream_runs_max = 100
# Runs that all streams of a server watch: one round of reads is over in a moment; events wait for that.
http_watched_runs_max = 2_000
# Runs that are read for one answer that tells of their failures, where some of their fields are kept from readers.
http_quoted_runs_max = 100
# Connections of one client: each result that is waited for, and each stream, holds one.
client_connections_max = 1_000
# Nesting of a body: a payload of full depth, and what goes around it.
http_depth_max = payload_depth_max + 8
# A token: ours have 47 characters, others' may be signed texts.
token_bytes_max = 4096
# And at least so many: what can be guessed is no token.
token_chars_min = 24
# How long a browser stays signed in.
session_us = 12 * 3600 * 1_000_000
# CloudEvents that come as one text: as many as one commit takes.
cloudevents_per_batch_max = 1000
# The text of a batch is held in memory whole, on top of what is made of it.
cloudevents_bytes_max = 16 * 1024 * 1024
# Values of all events of a batch together, since memory is paid for each: 200 for each event of a full one.
cloudevents_values_max = 200_000
# An attribute of a CloudEvent is a name, an id or a link; anything longer belongs into its data.
cloudevent_attribute_bytes_max = 4096

# Versions of a workflow, which every JSON reader carries exactly: a count, or a date with its time of day.
version_max = 10**15
# A generation is replayed whole, so its steps bound the time of a replay. Then: `continue_as`.
steps_per_generation_max = 50_000
# Streams of one run: they are named in code. What is made from data belongs into the items.
streams_per_run_max = 32
# Items that are kept of a stream, the newest: a long answer, token by token. Who reads later than that reads a result.
stream_items_max = 10_000
# Bytes likewise, and some of the largest items: on Redis they are memory, and a page of a stream may be all of it.
stream_bytes_max = 4 * 1024 * 1024
# Items that a step has published and the store has not taken yet; then publishing is an error, for the step is faster
# than the store.
stream_buffer_items_max = 10_000
# Bytes of those.
stream_buffer_bytes_max = 8 * 1024 * 1024
# Items that go to the store in one op, and so in one commit.
stream_items_per_op_max = 1_000
# Signals accepted for a run that does not take them.
buffered_per_run_max = 10_000
# All payloads among them together: each op that looks into a buffer may have to read it whole.
buffered_chars_per_run_max = 16 * 1024 * 1024
# Signal names that a workflow was seen to wait for without declaring them; more are made from data.
noted_signals_max = 256
# Topics and queues that are used without being declared and that the catalogue remembers all the same.
noted_channels_max = 1024
# Parts of a play. A graph of more is read by nobody, and every one is a line of the catalogue's text.
play_parts_max = 1_000
# Steps that one saga would have to undo, one after the other, before its run has ended.
rollbacks_max = 10_000
# `ctx.wait(a | b | ...)` opens one watcher each.
conditions_per_wait_max = 100
# Events of one op, and so of one commit: with 1,000 ops a batch stays a bounded commit.
events_per_op_max = 500
# Runs that events resume in one commit; the rest follow in commits of their own. A commit stays well under a second.
resumed_per_commit_max = 1_000
# Sends of callers' own transactions that are read, and applied, together; each may hold a whole payload.
outbox_rows_per_read = 100
# What is told of such a send if it cannot be read: enough to see what it was.
refused_send_chars_max = 4_000
# How long the key of an event or an item is remembered. Retries of a producer come within days, not weeks.
emit_key_us = 7 * 24 * 3600 * 1_000_000
put_key_us = 7 * 24 * 3600 * 1_000_000
# How long an answer to a signal is kept for who asked, or asks again with the same key. It may be as large as any
# payload, so not as long as a mere key.
reply_us = 24 * 3600 * 1_000_000
# Keys that have run out are read before they are deleted, with such answers: so many bytes of them at once.
expired_keys_bytes_max = 4 * 1024 * 1024
# How long a consumer with dedupe remembers a key that it has dealt with.
dedupe_key_us = 30 * 24 * 3600 * 1_000_000
# Starts between the first event of a chain and the next start: what starts itself stops here.
event_depth_max = 32
# Runs that subscriptions start for one first event, through whatever chain.
starts_per_root_max = 1_000
# Events that a handler is called with at once: as many as one read of the ledger gives.
events_per_batch_max = 1_000
# Sends that a handler may hold for one commit of its cursor. A commit stays well under a second.
effects_per_commit_max = 2_000
# Starts of subscriptions for one event, in one commit; the rest is put off, and told of.
fanout_default = 8
# Branches of one gather or map: each holds a coroutine and a cursor.
branches_max = 10_000
# Runs a worker drives at once; more wait as `ready`, so a flood of starts does not fill the memory.
active_runs_default = 5_000
# Waiting runs kept in memory, as many as may be active: a small one takes 4 kB. The rest are rows and come back by
# replay, which an event that many wait for pays for each of them.
resident_runs_default = 5_000
# How long a worker that gives no sign is believed to live, where a store cannot see it: a pause of the process or the
# network that is longer costs it its runs, and a dead worker's runs wait as long.
lease_us_default = 30 * 1_000_000
# Five life signs in less than a second would be lost to any busy machine.
lease_us_min = 1_000_000
# How long steps that are under way when an app closes may take to end: Kubernetes kills after 30 s, unless it is told
# otherwise, and there is something to do after it.
grace_us_default = 25 * 1_000_000
# What tells the numbers of one metric apart, such as steps: names from code. What is made from data by mistake is
# counted as `other` from there on.
metric_series_max = 1_000
# How long the store is asked for gauges: an endpoint must answer, and an exporter has a timeout of its own.
gauges_s = 2
# Traces that one span of a consumer's batch is linked to: what OpenTelemetry keeps of one span by default, and less.
span_links_max = 100
# Runs whose last span is remembered, so that the next one is linked to it, and causes of which the same is true.
spans_known_max = 10_000
# What a span has of a payload, if it is to have any.
span_payload_chars_max = 4_096
# Fields that `App(redact=…)` names: each is looked for in every text that is told.
redacted_names_max = 256
# Keys of one such name, one right inside the other; two say which is meant.
redacted_keys_max = 8
# What one process tells the others of a commit: a notification of Postgres has 7,999 bytes. More goes as several.
hint_bytes_max = 7_900
# Runs and consumers of each kind that a hint names: as many as a commit has ops. What is more is found by looking.
hint_names_max = 1_000
# Commits that one hint tells of, gathered within milliseconds.
hint_commits_max = 256
# Other processes on one SQLite file that are told of a commit: each costs a socket, and a send after each commit.
peers_max = 256
# Hints kept for a process that does not read just now; by default Linux keeps 10 more. The oldest goes first.
peer_backlog_max = 64
# Threads for plain `def` steps; they mostly wait for the network.
step_threads_default = 16
# Retries end. With backoff, ten thousand attempts are years.
retry_attempts_max = 10_000
# Ten years: longer waits are mistakes of unit, and deadlines stay far inside 64-bit microseconds.
duration_us_max = 10 * 366 * 24 * 3600 * 1_000_000
# "1w2d3h4m5s6ms7us" with long fractions is well under this; longer text is not a duration.
duration_chars_max = 64
# Every minute of an hour, listed one by one, is 169 characters; longer text is no schedule.
cron_chars_max = 256

# A schedule that ticks more often than this is no schedule but a loop: a run sleeps, or a consumer is live.
schedule_interval_us_min = 1_000_000
# Runs are named after their schedule and the tick, and a run id has 256 bytes.
schedule_name_bytes_max = 200
# With catch_up="none" a tick that is later than this was missed: a busy worker is not late by a minute.
schedule_late_us = 60 * 1_000_000
# Ticks that catch_up="all" makes up for, the newest; and how far ticks that start nothing are counted at once.
schedule_missed_max = 1_000
# Ticks of one schedule that wait for their turn: they stand in its row.
schedule_queue_max = 1_000
# Runs that schedules start in one commit; the rest follow in commits of their own.
schedule_starts_per_commit = 100
# Ticks of one backfill: more is a mistake in the window, or wants to be done in parts.
schedule_backfill_max = 10_000
# Runs of one schedule that it knows to be alive; only with overlap="allow" or by hand are they more than one.
schedule_runs_known_max = 16

# Topics whose events cancel a run: each is a row that is written with its start.
cancel_on_max = 16
# A debounced start begins no later than so long after its first call, by default so many times the pause it waits for.
debounce_us_max = 7 * 24 * 3600 * 1_000_000
debounce_times_default = 10

# A run as a document, which is checked and written as one: some times what a long history takes.
document_bytes_max = 64 * 1024 * 1024
# Records of a document: they are one commit, during which a server does nothing else.
document_rows_max = 20_000
# Generations, attempts and the like that a document tells of: more than any run counts, and room to count on.
document_count_max = 1_000_000_000
# Forks of forks: each is asked about whenever a copied part draws chance. Any one can be forked again and again.
forks_max = 100

# Slots of a pool, or of a key of it: taken ones are counted with each admission. Who needs more needs no limit.
pool_slots_max = 10_000
# Pools of one store: they are named in code. What comes from data, such as tenants, are keys of a pool.
pools_max = 1_000
# A tenant or the like: as long as other names.
pool_key_bytes_max = 256
# Enough to order whatever people order, and three digits in an index.
priority_max = 100
# Runs that are let through from a line in one commit; the rest follow in commits of their own.
admitted_per_commit_max = 100
# Keys of a line that one admission looks at: those that have no room are stepped over, and the next one goes on there.
admission_keys_max = 256
# A run that was let through and that nobody claims for so long may lose its slot to others. Well above the time that it
# takes to hand runs over when workers are replaced.
slot_unclaimed_us = 60 * 1_000_000

# What an approval says is kept with the wait, shown with each page of the inbox, and told on the ledger: words for
# people, and a reference to anything larger.
approval_title_bytes_max = 512
approval_description_bytes_max = 8 * 1024
approval_data_bytes_max = 16 * 1024
# The form of a payload: that of a type that people fill in is a few kilobytes.
approval_schema_bytes_max = 32 * 1024
# Buttons that people can tell apart.
choices_max = 32
# Who may answer: people and groups. More of them are a group.
approvers_max = 64
# A person, such as `mail:anna@example.org`, or a group.
person_bytes_max = 256
# Groups that somebody who answers names: those that matter for it.
groups_max = 256
# Reminders of one approval, and how often one is repeated: who did not hear fifty of them will not hear the next.
reminders_max = 50
# Ids that a place has asked under before, and that are still told from unknown ones.
approval_ids_before_max = 20
# What somebody says with a decision.
comment_bytes_max = 4096
# Rows of the inbox that one call looks through for those that fit: then it gives what it has, and a cursor.
approvals_scanned_max = 5_000
# A secret that links are signed with: shorter ones can be guessed.
secret_bytes_min = 16
# A link: an id, a choice and a name, with their signature.
link_chars_max = 4096

# The address of a webhook: as long as any server takes.
webhook_url_chars_max = 2048
# Secrets of one webhook or hook: the new one and the old, and some to spare. Each signs, or is tried, each time.
webhook_secrets_max = 8
# Headers that a webhook sends beside its own, and the bytes of one, also of those that a hook reads.
webhook_headers_max = 32
webhook_header_bytes_max = 4096
# Hosts and networks that a webhook may reach though they are private; more are a network.
webhook_allowed_max = 64
# How long one delivery may take: its webhook waits meanwhile, and so does the end of the app.
webhook_timeout_us_max = 5 * 60 * 1_000_000
# Addresses of one host that are tried, one after the other, within that time.
webhook_addresses_max = 4
# What is read of an answer: whether it went well is known by then. Longer ones are cut off, with their connection.
webhook_response_bytes_max = 64 * 1024
# What is told of an answer, with the reason: enough to see what was wrong.
webhook_response_chars_shown = 200
# For how long a receiver may put off the next try: a webhook sends in order, so all that follows waits as well.
webhook_retry_after_us_max = 3600 * 1_000_000
# How old, or how far ahead, a signed delivery may be: one that was caught and is sent again later is refused.
webhook_tolerance_us = 5 * 60 * 1_000_000
# Signatures that come with one delivery: each is compared with those of all secrets.
webhook_signatures_max = 16

# Where, map and key of a subscription: a line or two. Longer logic belongs into a consumer.
expression_bytes_max = 4096
# What one evaluation may copy, about in bytes, by an estimate made before it: some tenths of a second.
expression_work_max = 64 * 1024 * 1024
# Compiled expressions kept by text, some 20 kB each; subscriptions share theirs across events.
expressions_kept_max = 1024

# Stored failures: enough to understand, never a second payload.
traceback_chars_max = 20_000
error_message_chars_max = 4_000
error_type_chars_max = 256
# Why an operator cancelled, terminated or paused a run.
reason_bytes_max = 4096
# Problems told at once about one payload.
payload_errors_max = 20
# Custom leaf types; each is looked up by name on decode.
custom_types_max = 1000
# Codecs kept by hint. Hints come from code, not from data; this only bounds odd programs.
codecs_kept_max = 4096

# Parts of a path: `scope/name#2`, and `!` marks the engine's own entries.
_path_marks = "/#!"
_plain_name = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9_.:@+-]{1,256}")
# What stands for a place in a path, and not for itself, wherever addresses are read: no encoding protects it.
_dots: Final = (".", "..")
_shown_chars_max = 80


# Stands for a value that its refusal should not repeat, such as a whole payload.
unsaid: Final = object()


class BadValue(PerdureError, ValueError):
    """A name, id, tag, duration or bound that cannot be accepted: what, its value, and why."""

    def __init__(self, what: str, value: object, problem: str) -> None:
        self.what = what
        self.value_repr = "" if value is unsaid else shown(value)
        super().__init__(" ".join(filter(None, (what, self.value_repr, problem))))


def shown(value: object) -> str:
    """The repr of a value, short enough for a message, whatever its repr does."""
    try:
        # A str is cut before its repr is taken: the repr of a huge text is huger still.
        text = repr(value[: _shown_chars_max + 1] if isinstance(value, str) else value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _shown_chars_max else text[: _shown_chars_max - 1] + "…"


def storable(text: str) -> str:
    """Any text as every store takes it: a lone surrogate is no text, and Postgres keeps no zero byte."""
    return text.encode(errors="backslashreplace").decode().replace("\0", r"\x00")


def is_storable(text: str, bytes_max: int) -> bool:
    """Whether a text may be an id, a name or a path of a row, or nothing: stores choke on what cannot."""
    if text.isascii() and text.isprintable():
        return len(text) <= bytes_max
    try:
        return len(text.encode()) <= bytes_max and not any(map(_is_control, text))
    except UnicodeEncodeError:  # a lone surrogate
        return False


def check_name(kind: str, value: object) -> str:
    """A name of a workflow, step, signal, queue...: it forms paths, so `/ # !` are refused, and `.` and `..`."""
    if type(value) is str and _plain_name.fullmatch(value):
        return value
    name = check_addressable(
        f"{kind} name", _check_text(f"{kind} name", value, name_bytes_max, "name_bytes_max")
    )
    for mark in _path_marks:
        if mark in name:
            raise BadValue(
                f"{kind} name",
                name,
                f"contains {mark!r}, which separates the parts of a path; use '-' or '.'",
            )
    return name


def check_run_id(value: object) -> str:
    if type(value) is str and _plain_name.fullmatch(value):
        return value
    return check_addressable(
        "run id", _check_text("run id", value, run_id_bytes_max, "run_id_bytes_max")
    )


def check_addressable(what: str, text: str) -> str:
    """What may stand in an address of the HTTP API, as one part of its path."""
    if text in _dots:
        raise BadValue(
            what, text, "means another place in every address; give it a name of letters"
        )
    return text


def check_key(value: object) -> str:
    """An idempotency key: any readable text."""
    return _check_text("key", value, key_bytes_max, "key_bytes_max")


def check_pool_key(value: object) -> str:
    """A key of a pool, such as a tenant: any readable text, and "" for none."""
    if value == "":
        return ""
    return _check_text("pool_key", value, pool_key_bytes_max, "pool_key_bytes_max")


def check_priority(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= priority_max:
        return value
    bounds = f"from -{priority_max} to {priority_max} (priority_max)"
    raise BadValue("priority", value, f"must be a whole number {bounds}")


def check_trace(value: object) -> str:
    """A trace context, as W3C's `traceparent`."""
    return _check_text("trace", value, trace_bytes_max, "trace_bytes_max")


def check_path(value: object) -> str:
    """A path as a sender addresses it."""
    return _check_text("path", value, path_bytes_max, "path_bytes_max")


def check_reason(value: object) -> str | None:
    """Why somebody steers a run: any text, also of several lines; None for none."""
    return None if value is None else check_words("reason", value, reason_bytes_max)


def check_words(what: str, value: object, bytes_max: int, bound: str | None = None) -> str:
    """What people write to people: any text, also of several lines. The bound is named after it, if not otherwise."""
    if not isinstance(value, str):
        raise BadValue(what, value, f"is a {type(value).__name__}; give a str")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadValue(
            what, value, "holds a lone surrogate, which is not text; decode it properly"
        ) from None
    if "\0" in value:
        raise BadValue(what, value, "holds a zero byte, which not every store keeps; remove it")
    if size > bytes_max:
        named = bound or f"{what}_bytes_max"
        raise BadValue(what, value, f"is {size} bytes; at most {bytes_max} ({named})")
    # A subclass of str, as templates make them, would travel on with its own behaviour.
    return str.__str__(value)


def check_choice(value: object) -> str:
    """What people choose, as it is shown to them."""
    return _check_text("choice", value, name_bytes_max, "name_bytes_max")


def check_person(what: str, value: object) -> str:
    """A person or a group, as `who` and `by` name them."""
    return _check_text(what, value, person_bytes_max, "person_bytes_max")


def check_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise BadValue("tags", tags, "are not a mapping; give a dict of str to str")
    if len(tags) > tags_max:
        raise BadValue(
            "tags", sorted(map(str, tags)), f"are {len(tags)}; at most {tags_max} (tags_max)"
        )
    return {
        _check_text("tag name", name, tag_bytes_max, "tag_bytes_max"): _check_text(
            f"value of tag {shown(name)}", value, tag_bytes_max, "tag_bytes_max"
        )
        for name, value in tags.items()
    }


def check_entity(text: object) -> tuple[str, str]:
    """`type/id`, split at the first slash; the id may hold further slashes."""
    if not isinstance(text, str) or "/" not in text:
        raise BadValue("entity", text, "is not of the form 'type/id', such as 'order/42'")
    entity_type, entity_id = text.split("/", 1)
    return (
        check_name("entity type", entity_type),
        _check_text("entity id", entity_id, entity_id_bytes_max, "entity_id_bytes_max"),
    )


def _check_text(what: str, value: object, bytes_max: int, bound: str) -> str:
    if not isinstance(value, str):
        raise BadValue(what, value, f"is a {type(value).__name__}; give a str")
    if not value:
        raise BadValue(what, value, "is empty; give at least one character")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadValue(
            what, value, "holds a lone surrogate, which is not text; decode it properly"
        ) from None
    if size > bytes_max:
        raise BadValue(what, value, f"is {size} bytes; at most {bytes_max} ({bound})")
    if value.strip() != value:
        raise BadValue(what, value, "begins or ends with white space; strip it")
    if not (value.isascii() and value.isprintable()):
        _refuse_control(what, value)
    # A subclass of str would travel on with its own behaviour.
    return str.__str__(value)


def _refuse_control(what: str, value: str) -> None:
    for character in filter(_is_control, value):
        raise BadValue(what, value, f"holds the control character {character!r}; remove it")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp")


# A valid text this short cannot nest deeper than half its bytes.
_bytes_never_deep = 2 * payload_depth_max
_int_digits_min = 19
_digit_run = b"0" * _int_digits_min
_digits_alike = bytes.maketrans(b"123456789", b"000000000")
_not_bracket = bytes(sorted(set(range(256)) - set(b"[]{}")))
# Possessive, and content with a missing end quote: one pass over any text, however malformed.
_json_string = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_empty_container = re.compile(rb"\[\s*+\]|\{\s*+\}")
_long_int = re.compile(rb"(?<![0-9.eE+-])-?[0-9]{19,}+(?![.eE])")


def check_payload(text: bytes) -> None:
    """Refuse JSON text over the bounds of size, depth, nodes and integer range, before any parsing.

    Small texts, nearly all there are, pay one search; only what could be over a bound is scanned.
    """
    size = len(text)
    if size < _int_digits_min:
        return
    if size > payload_bytes_max:
        raise _over("is", size, "bytes", payload_bytes_max, "payload_bytes_max")
    bare: bytes | None = None
    if size > _bytes_never_deep and text.count(b"[") + text.count(b"{") > payload_depth_max:
        bare = _json_string.sub(b'""', text)
        _check_nodes(bare)
        _check_depth(bare)
    elif size > payload_nodes_max:
        bare = _json_string.sub(b'""', text)
        _check_nodes(bare)
    if text.translate(_digits_alike).find(_digit_run) >= 0:
        _check_ints(_json_string.sub(b'""', text) if bare is None else bare)


def check_body(text: bytes, values_max: int) -> None:
    """Refuse the body of a request over the bounds of nesting and values, before any parsing; its bytes are counted."""
    if len(text) <= _bytes_never_deep:
        return
    bare = _json_string.sub(b'""', text)
    nodes = _nodes(bare, values_max)
    if nodes > values_max:
        problem = f"has {nodes} values; at most {values_max} here"
        raise BadValue("body", unsaid, f"{problem}; send it in parts")
    if _depth(bare, http_depth_max) > http_depth_max:
        raise BadValue(
            "body", unsaid, f"nests deeper than {http_depth_max} levels (http_depth_max)"
        )


def check_cloudevents(text: bytes) -> None:
    """Refuse the text of CloudEvents over the bounds of size and values; each payload is checked by itself."""
    if len(text) > cloudevents_bytes_max:
        problem = f"are {len(text)} bytes; at most {cloudevents_bytes_max} (cloudevents_bytes_max)"
        raise BadValue("CloudEvents", unsaid, f"{problem}; send fewer at once")
    if len(text) > cloudevents_values_max:
        nodes = _nodes(_json_string.sub(b'""', text), cloudevents_values_max)
        if nodes > cloudevents_values_max:
            problem = f"have {nodes} values; at most {cloudevents_values_max}"
            raise BadValue(
                "CloudEvents", unsaid, f"{problem} (cloudevents_values_max); send fewer at once"
            )


def _over(verb: str, count: int, unit: str, bound: int, name: str) -> BadValue:
    return BadValue(
        "payload",
        unsaid,
        f"{verb} {count} {unit}; at most {bound} ({name}); store a reference instead",
    )


def _check_nodes(bare: bytes) -> None:
    nodes = _nodes(bare, payload_nodes_max)
    if nodes > payload_nodes_max:
        raise _over("has", nodes, "values", payload_nodes_max, "payload_nodes_max")


def _nodes(bare: bytes, bound: int) -> int:
    """How many values there are; exact where that decides whether they are over the bound."""
    # Each comma, and each container that is not empty, brings one more value.
    nodes = 1 + bare.count(b",") + bare.count(b"[") + bare.count(b"{")
    if nodes > bound:
        nodes -= len(_empty_container.findall(bare))
    return nodes


def _check_depth(bare: bytes) -> None:
    depth = _depth(bare, payload_depth_max)
    if depth > payload_depth_max:
        raise _over("nests", depth, "levels or more", payload_depth_max, "payload_depth_max")


def _depth(bare: bytes, bound: int) -> int:
    """How deep it nests, as far as one beyond the bound."""
    depth = deepest = 0
    for byte in bare.translate(None, _not_bracket):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > bound:
                break
        else:
            depth -= 1
    return deepest


def _check_ints(bare: bytes) -> None:
    for match in _long_int.finditer(bare):
        digits = match.group()
        # Over 20 characters it cannot fit; comparing lengths first keeps int() away from huge
        # texts.
        if len(digits) > 20 or not int_min <= int(digits) <= int_max:
            raise BadValue(
                "payload",
                unsaid,
                f"holds the integer {shown(digits.decode())}, beyond 64 bits; send it as a string",
            )
