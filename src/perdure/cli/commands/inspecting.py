"""`perdure doctor`, `fsck`, `health`, `workflows`, `channels`, `workers`: how a store is doing, and what it knows."""

from typing import Annotated, Any

import msgspec
import typer

from perdure.cli import exits
from perdure.cli.calling import Scene, command
from perdure.cli.paging import show
from perdure.cli.showing import Column, short


def add(program: typer.Typer) -> None:
    command(program, "health")(health)
    command(program, "doctor")(doctor)
    command(program, "fsck", destroys=True)(fsck)
    command(program, "workflows")(workflows)
    command(program, "channels")(channels)
    command(program, "workers")(workers)


async def health(scene: Scene) -> int:
    """Whether somebody should look, and why; exit 6 if so."""
    found = await scene.verbs.health()
    if scene.out.json:
        scene.out.document(found)
    else:
        facts = msgspec.structs.asdict(found)
        scene.out.facts(
            {
                name: one
                for name, one in facts.items()
                if name not in ("consumers", "unserved", "reasons")
            }
        )
        for reason in found.reasons:
            scene.out.say(f"! {reason}")
    return exits.OK if found.status == "ok" else exits.FOUND_SOMETHING


# --- doctor ---

_settings = (
    Column("setting", lambda one: one.name, whole=True),
    Column("value", lambda one: one.value),
    Column("wanted", lambda one: one.wanted),
    Column("ok", lambda one: one.ok),
    Column("why", lambda one: one.why),
)
_promises = (
    Column("fault", lambda one: one.fault),
    Column("kept", lambda one: one.kept),
    Column("what becomes of acknowledged ops", lambda one: one.words),
)
_workers = (
    Column("worker", lambda one: one.worker_id, whole=True),
    Column("started", lambda one: one.started_at),
    Column("lease until", lambda one: one.lease_until),
    Column("workflows", lambda one: [f"{name} v{version}" for name, version in one.workflows]),
)


async def doctor(
    scene: Scene,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 6 if there are warnings")] = False,
) -> int:
    """What the store is, which promises it keeps as it is set up, who works on it, and what to see to."""
    found = await scene.here("doctor")()
    if scene.out.json:
        scene.out.document(found)
    else:
        _diagnosis(scene, found)
    return exits.FOUND_SOMETHING if strict and found.warnings else exits.OK


def _diagnosis(scene: Scene, found: Any) -> None:
    out = scene.out
    facts = {
        "store": f"{found.product} {found.version}",
        "url": found.url,
        "namespace": found.namespace,
        "schema version": found.schema.stored,  # a store on Postgres has a `schema` of its own: a name
        "bytes": found.bytes,
        **found.facts,
    }
    out.facts(facts)
    for title, columns, rows in (
        ("settings that promises rest on", _settings, found.settings),
        ("promises in force", _promises, found.promises),
        ("workers", _workers, found.workers),
        ("rows", _counts, sorted(found.counts.items())),
    ):
        if rows:
            out.say(f"\n{title}")
            out.table(columns, rows)
    out.say("")
    for warning in found.warnings:
        out.say(f"! {warning}")
    if not found.warnings:
        out.say(_no_warnings([one.name for one in found.settings if not one.ok]))


def _no_warnings(beside: list[str]) -> str:
    if not beside:
        return "all is as it should be"
    return f"nothing to see to as it is used now; why {', '.join(beside)} may come to matter is said above"


_counts = (Column("kind", lambda one: one[0]), Column("rows", lambda one: one[1]))


# --- fsck ---

_findings = (
    Column("invariant", lambda one: one.invariant),
    Column("severity", lambda one: one.severity, painted=True),
    Column("run", lambda one: one.run_id, whole=True),
    Column("at", lambda one: one.path if one.path is not None else one.position, whole=True),
    Column("what", lambda one: one.what),
    Column("advice", lambda one: one.advice),
)


async def fsck(
    scene: Scene,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set right what can be set right")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 6 for warnings too, as of a worker that died")
    ] = False,
) -> int:
    """Check that all in the store holds together, while others work; exit 6 if it does not. Without --repair it writes
    nothing.
    """
    check = scene.here("fsck")
    if repair:
        scene.confirm(f"set right what is wrong in {scene.place.shown}")
    seen: dict[str, int] = {}
    with scene.out.progress("rows checked", None) as done:

        def progress(what: str, count: int) -> None:
            seen[what] = count
            done(sum(seen.values()))

        options = {} if scene.is_remote else {"progress": progress}
        report = await check(repair=repair, **options)
    if scene.out.json:
        scene.out.document({"ok": report.ok, **msgspec.structs.asdict(report)})
    else:
        _report(scene, report)
    sound = report.ok and not (strict and report.findings)
    return exits.OK if sound else exits.FOUND_SOMETHING


def _report(scene: Scene, report: Any) -> None:
    out = scene.out
    checked = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in report.checked.items()
    )
    out.say(f"checked {checked or 'nothing: the store is empty'}")
    for words in report.unjudged:
        out.say(f"not judged: {words}")
    if report.repaired:
        out.say("\nset right")
        out.table(_findings, report.repaired)
    if report.findings:
        out.say("\nfound")
        out.table(_findings, report.findings)
        if report.truncated:
            out.say("and more")
    if report.ok:
        out.say("all holds together")


# --- what it knows ---

_workflows = (
    Column("workflow", lambda one: one.name, whole=True),
    Column("version", lambda one: one.version),
    Column("signals", lambda one: [signal.name for signal in one.signals]),
    Column("pool", lambda one: one.pool or None),
    Column("play", lambda one: one.play),
    Column("workers", lambda one: one.workers),
)


async def workflows(scene: Scene) -> None:
    """Every version of every workflow that some app has declared: what it takes, gives and listens to."""
    show(scene, _workflows, await scene.here("catalogue")())


_channels = (
    Column("kind", lambda one: one.kind),
    Column("name", lambda one: one.name, whole=True),
    Column("schema", lambda one: None if one.schema is None else short(one.schema)),
)


async def channels(scene: Scene) -> None:
    """Topics and queues that some app has declared, and what fits them."""
    show(scene, _channels, await scene.here("channels")())


async def workers(scene: Scene) -> None:
    """The workers that live, and what they execute."""
    show(scene, _workers, await scene.here("workers")())
