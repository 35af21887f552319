"""`perdure runs`: see runs, steer them, carry them elsewhere."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from perdure.cli import exits, values
from perdure.cli.calling import Scene, command, group
from perdure.cli.paging import After, All, Limit, show, show_pages
from perdure.cli.showing import Column, json_line, short
from perdure.views import RunContents

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; it is kept with the run")]
Status = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        parser=values.status,
        metavar="STATUS",
        help="Of this status; may be said several times",
    ),
]
Workflow = Annotated[str | None, typer.Option("--workflow", "-w", help="Of this workflow")]

RUNS = (
    Column("run", lambda one: one.id, whole=True),
    Column("workflow", lambda one: one.workflow),
    Column("status", lambda one: one.status, painted=True),
    Column("created", lambda one: one.created_at),
    Column("ended", lambda one: one.finished_at),
    Column("entity", lambda one: one.entity),
    Column("reason", lambda one: one.reason),
)
STEPS = (
    Column("path", lambda one: one.path, whole=True),
    Column("kind", lambda one: one.kind),
    Column("status", lambda one: one.status, painted=True),
    Column("attempt", lambda one: one.attempt),
    Column("value", lambda one: _outcome(one)),
    Column("winner", lambda one: one.winner),
    Column("started", lambda one: one.started_at),
    Column("recorded", lambda one: one.recorded_at),
)
WAITS = (
    Column("run", lambda one: one.run_id, whole=True),
    Column("path", lambda one: one.path or None, whole=True),
    Column("kind", lambda one: one.kind),
    Column("for", lambda one: one.target),
    Column("since", lambda one: one.since),
    Column("until", lambda one: one.until),
    Column("why", lambda one: one.reason or one.where or one.entity),
)


def _outcome(step: Any) -> str | None:
    if step.error is not None:
        return f"{step.error.get('type')}: {step.error.get('message')}"
    return None if step.value is None else short(step.value)


def add(program: typer.Typer) -> typer.Typer:
    runs = group(program, "runs", "Runs: see them, steer them, carry them elsewhere")
    command(runs, "list")(list_runs)
    command(runs, "show")(show_run)
    command(runs, "history")(history)
    command(runs, "result")(result)
    for name, function in (
        ("cancel", cancel),
        ("pause", pause),
        ("resume", resume),
        ("retry", retry),
    ):
        command(runs, name)(function)
    command(runs, "terminate", destroys=True)(terminate)
    command(runs, "fork")(fork)
    command(runs, "export")(export)
    command(runs, "import")(import_run)
    command(program, "waiting")(waiting)
    return runs


# --- seeing ---


async def list_runs(
    scene: Scene,
    workflow: Workflow = None,
    status: Status = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="NAME[=VALUE]", help="With this tag")
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", metavar="TYPE/ID", help="About this")
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="RUN", help="Children of this run")
    ] = None,
    created_from: Annotated[
        Any,
        typer.Option("--created-from", parser=values.past, metavar="TIME", help="At or after this"),
    ] = None,
    created_before: Annotated[
        Any,
        typer.Option("--created-before", parser=values.past, metavar="TIME", help="Before this"),
    ] = None,
    limit: Limit = None,
    after: After = None,
    all: All = False,
) -> None:
    """Runs, newest first."""

    async def fetch(**page: Any) -> Any:
        return await scene.verbs.runs(
            workflow=workflow,
            status=status or None,
            tag=values.tag_filter(tag),
            entity=entity,
            parent=parent,
            created_from=created_from,
            created_before=created_before,
            **page,
        )

    await show_pages(scene, RUNS, fetch, limit, after, all)


async def show_run(scene: Scene, run_id: RunId) -> None:
    """One run: what is known of it, its input and result or failure, what it waits for, what is kept for it, what it
    has published."""
    run = scene.verbs.run(run_id)
    info, contents, streams = await run.info(), await run.contents(), await run.streams()
    waits, buffered = await run.waiting(), await run.buffered()
    if scene.out.json:
        parts = {"run": info, "contents": contents, "waiting": waits, "buffered": buffered}
        scene.out.document({**parts, "streams": streams})
        return
    scene.out.facts({**msgspec.structs.asdict(info), **_held(contents)})
    if contents.failure is not None:
        scene.out.say(f"\nfailed with\n{_failure(contents.failure)}")
    if waits:
        scene.out.say("\nwaits for")
        scene.out.table(WAITS[1:], waits)
    if buffered:
        scene.out.say("\nsignals that are kept for it")
        scene.out.table(BUFFERED, buffered)
    if streams:
        scene.out.say("\npublishes")
        scene.out.table(STREAMS, streams)


def _held(contents: RunContents) -> dict[str, str]:
    """What a run has, as JSON; without what it has not."""
    parts = {one: getattr(contents, one) for one in ("input", "published", "output")}
    return {name: json_line(value) for name, value in parts.items() if value not in (None, {}, [])}


def _failure(failure: dict[str, Any]) -> str:
    """The traceback, which ends with the error; of one that has none, the error."""
    text = failure.get("traceback") or f"{failure['type']}: {failure['message']}"
    path = failure.get("path")
    return text.rstrip() + (f"\nat {path}" if path else "")


BUFFERED = (
    Column("signal", lambda one: one.name),
    Column("id", lambda one: one.signal_id, whole=True),
    Column("received", lambda one: one.received_at),
    Column("payload", lambda one: short(one.payload)),
)


STREAMS = (
    Column("stream", lambda one: one.name, whole=True),
    Column("from", lambda one: one.first),
    Column("to", lambda one: one.last),
)


async def history(
    scene: Scene, run_id: RunId, limit: Limit = None, after: After = None, all: All = False
) -> None:
    """What a run has done, in the order it was recorded; what is still open comes last."""
    await show_pages(scene, STEPS, scene.verbs.run(run_id).history, limit, after, all)


async def result(
    scene: Scene,
    run_id: RunId,
    timeout: Annotated[  # noqa: ASYNC109 (the API's word)
        str | None,
        typer.Option("--timeout", parser=values.span, metavar="SPAN", help="Wait no longer"),
    ] = None,
) -> int:
    """Wait for the end of a run and give its result; exit 1 if it failed or was cancelled."""
    return await tell_result(scene, scene.verbs.run(run_id), timeout)


async def tell_result(scene: Scene, run: Any, timeout: str | None) -> int:  # noqa: ASYNC109 (the API's word)
    scene.facts["run_id"] = run.id
    found = await run.result(timeout)
    scene.out.tell({"id": run.id, "result": found}, json_line(found))
    return exits.OK


async def waiting(
    scene: Scene,
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN", help="What this run waits for")
    ] = None,
    signal: Annotated[
        str | None, typer.Option("--signal", help="Who waits for this signal")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Who waits for this topic")] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            parser=values.span,
            metavar="SPAN",
            help="With --signal: for longer than this",
        ),
    ] = None,
    limit: Limit = None,
    after: After = None,
    all: All = False,
) -> None:
    """What a run waits for; or who waits for a signal or a topic, longest first."""
    if sum(one is not None for one in (run_id, signal, topic)) != 1:
        raise typer.BadParameter("name one of: a run, --signal, --topic")
    if run_id is not None:
        show(scene, WAITS, await scene.verbs.waiting(run_id))
        return

    async def fetch(**page: Any) -> Any:
        if signal is not None:
            return await scene.verbs.find_waiting(signal, older_than=older_than, **page)
        return await scene.verbs.watchers(topic, **page)

    await show_pages(scene, WAITS, fetch, limit, after, all)


# --- steering ---


def _steered(scene: Scene, run_id: str, status: str) -> None:
    scene.out.tell({"id": run_id, "status": status}, f"{run_id} is {status}")


async def cancel(scene: Scene, run_id: RunId, reason: Reason = None) -> None:
    """Ask a run, and its children, to stop; its code may clean up."""
    _steered(scene, run_id, await scene.verbs.run(run_id).cancel(reason))


async def terminate(scene: Scene, run_id: RunId, reason: Reason = None) -> None:
    """End a run, and its children, at once; no code runs."""
    scene.confirm(f"end run {run_id} at once, with no cleaning up")
    _steered(scene, run_id, await scene.verbs.run(run_id).terminate(reason))


async def pause(scene: Scene, run_id: RunId, reason: Reason = None) -> None:
    """Hold a run: nothing advances until it is resumed; signals are kept."""
    _steered(scene, run_id, await scene.verbs.run(run_id).pause(reason))


async def resume(scene: Scene, run_id: RunId) -> None:
    """Let a paused run go on."""
    _steered(scene, run_id, await scene.verbs.run(run_id).resume())


async def retry(
    scene: Scene,
    run_id: RunId,
    path: Annotated[str | None, typer.Option("--path", help="From this step on")] = None,
    payload: Annotated[
        values.Json | None,
        typer.Option(
            "--payload",
            parser=values.json_value,
            metavar="JSON",
            help="Answer the wait at --path anew, with this",
        ),
    ] = None,
) -> None:
    """Reopen a failed run at the step it failed at, or from a path on."""
    given = {} if payload is None else {"payload": payload.value}
    _steered(scene, run_id, await scene.verbs.run(run_id).retry(path, **given))


# --- carrying ---


async def fork(
    scene: Scene,
    run_id: RunId,
    from_path: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH", help="The first step that is done anew; else all"),
    ] = None,
    input: Annotated[
        list[values.Json] | None,
        typer.Option(
            "--input", "-i", parser=values.json_value, metavar="JSON", help="Other arguments"
        ),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Of the new run")] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="Of the code that it goes on with")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            parser=values.tag,
            metavar="NAME=VALUE",
            help="To find it by; several times",
        ),
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", metavar="TYPE/ID", help="What it is about")
    ] = None,
) -> None:
    """Make another run that goes on from a place of this one's history."""
    given = {} if not input else {"input": tuple(one.value for one in input)}
    made = await scene.verbs.run(run_id).fork(
        from_path, id=id, version=version, tags=values.tags(tag), entity=entity, **given
    )
    scene.out.tell({"id": made.id, "created": made.created}, made.id)


async def export(
    scene: Scene,
    run_id: RunId,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A new file; else the standard output")
    ] = None,
) -> None:
    """The run as a document of the format `perdure.run/1`, whole: nothing of it is hidden."""
    document = await scene.verbs.run(run_id).export()
    if out is None:
        scene.out.document(document)
        return
    with out.open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    scene.out.tell({"id": run_id, "written": str(out)}, f"wrote {out}")


async def import_run(
    scene: Scene,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What `export` wrote; - for the standard input")
    ],
    id: Annotated[str | None, typer.Option("--id", help="Another id than its own")] = None,
) -> None:
    """Make the run that an exported document tells of."""
    document = values.json_value("-" if file == "-" else f"@{file}").value
    if not isinstance(document, dict):
        raise typer.BadParameter("the document is not a JSON object", param_hint="FILE")
    made = await scene.verbs.import_run(document, id=id)
    known = "" if made.created else " (it was there already)"
    scene.out.tell({"id": made.id, "created": made.created}, f"{made.id}{known}")
