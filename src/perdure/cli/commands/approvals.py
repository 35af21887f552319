"""`perdure approvals`: what people are asked, and their answers."""

import getpass
import inspect
from typing import Annotated, Any

import typer

from perdure.cli import values
from perdure.cli.calling import Scene, command, group
from perdure.cli.paging import After, All, Limit, show_pages
from perdure.cli.showing import Column
from perdure.model import limits
from perdure.model.approvals import parse_approval_id
from perdure.model.outcomes import Duplicate

ApprovalId = Annotated[str, typer.Argument(metavar="APPROVAL", help="Its id, as `list` gives it")]

_columns = (
    Column("approval", lambda one: one.id, whole=True),
    Column("name", lambda one: one.name),
    Column("title", lambda one: one.title or None),
    Column("workflow", lambda one: one.workflow),
    Column("choices", lambda one: list(one.choices or ())),
    Column("who", lambda one: list(one.who or ()) or None),
    Column("asked", lambda one: one.opened_at),
    Column("expires", lambda one: one.expires_at),
)


def add(program: typer.Typer) -> None:
    approvals = group(program, "approvals", "Approvals: what people are asked, and their answers")
    command(approvals, "list")(list_approvals)
    command(approvals, "decide")(decide)
    command(approvals, "link")(link)


async def list_approvals(
    scene: Scene,
    who: Annotated[
        list[str] | None,
        typer.Option("--who", help="That one of these may answer: anna, group:finance"),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", "-w", help="Of runs of this workflow")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of this name")] = None,
    run_id: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Of this run")] = None,
    limit: Limit = None,
    after: After = None,
    all: All = False,
) -> None:
    """Approvals that are open, longest waiting first."""

    async def fetch(**page: Any) -> Any:
        return await scene.verbs.approvals(
            who=who or None, workflow=workflow, name=name, run_id=run_id, **page
        )

    await show_pages(scene, _columns, fetch, limit, after, all)


async def decide(
    scene: Scene,
    approval_id: ApprovalId,
    choice: Annotated[
        str | None, typer.Argument(metavar="CHOICE", help="One of its choices, if it has any")
    ] = None,
    payload: Annotated[
        values.Json | None,
        typer.Option(
            "--payload", parser=values.json_value, metavar="JSON", help="What its form asks for"
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="Who decides; else who is logged in here")
    ] = None,
    in_group: Annotated[list[str] | None, typer.Option("--group", help="That they are in")] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Why; it is kept")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key again decides nothing twice")
    ] = None,
) -> None:
    """Answer an approval: of all who answer, one decides."""
    decided = await scene.verbs.decide(
        approval_id,
        choice,
        payload=None if payload is None else payload.value,
        by=by or _who(scene),
        groups=in_group or (),
        comment=comment,
        key=key,
    )
    told = decided.of if isinstance(decided, Duplicate) else decided
    before = "decided before" if isinstance(decided, Duplicate) else "decided"
    scene.out.tell(decided, f"{before}: run {told.run_id} goes on from {told.path}")


def _who(scene: Scene) -> str | None:
    """Over HTTP it is whom the token names."""
    if scene.is_remote:
        return None
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        raise typer.BadParameter(
            "it cannot be told who you are: say so", param_hint="--by"
        ) from None


async def link(
    scene: Scene,
    approval_id: ApprovalId,
    by: Annotated[str, typer.Option("--by", help="As whom it answers")],
    choice: Annotated[
        str | None, typer.Option("--choice", help="The only one that it can give")
    ] = None,
    expires: Annotated[
        Any,
        typer.Option("--expires", parser=values.moment, metavar="WHEN", help="A time, or a span"),
    ] = "7d",
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="A page that takes the token")
    ] = None,
) -> None:
    """Make a link with which whoever has it answers this approval once. Needs PERDURE_SECRET, or the app's."""
    if choice is not None:
        await _check_choice(scene, approval_id, choice)
    made = scene.verbs.approval_link(approval_id, by=by, choice=choice, expires=expires, url=to)
    made = await made if inspect.isawaitable(made) else made
    scene.out.tell({"link": made}, made)


async def _check_choice(scene: Scene, approval_id: str, choice: str) -> None:
    """A link is checked when it is used, by whom it was sent to: here whoever sends it may still correct it."""
    run_id = parse_approval_id(approval_id)[1]
    asked: Any = await scene.verbs.approvals(run_id=run_id, limit=limits.page_rows_max)
    (found,) = [one for one in asked if one.id == approval_id] or [None]
    if found is not None and found.choices and choice not in found.choices:
        raise typer.BadParameter(
            f"{choice!r} is none of its choices: {', '.join(found.choices)}", param_hint="--choice"
        )
