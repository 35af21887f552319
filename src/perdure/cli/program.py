"""The program: its groups of commands, and the options that may stand before them."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perdure.cli import calling
from perdure.cli.commands import (
    approvals,
    events,
    inspecting,
    pools,
    queues,
    readers,
    runs,
    schedules,
    serving,
    signals,
    starting,
    stores,
    tokens,
    watching,
)


class _InOrder(TyperGroup):
    """Commands in the order that somebody comes to need them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


program = typer.Typer(
    name="perdure",
    cls=_InOrder,
    help="Durable workflows from the shell, on a store or on a server. These options may also stand behind a command.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(version("perdure"))
        raise typer.Exit


@program.callback()
def _root(
    ctx: typer.Context,
    url: calling.Url = None,
    app: calling.AppName = None,
    namespace: calling.Namespace = None,
    token: calling.TokenText = None,
    json: calling.AsJson = False,
    debug: calling.Debug = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is")
    ] = False,
) -> None:
    ctx.obj = calling.root(url, app, namespace, token, json, debug)


starting.add(program)
serving.add(program)
_runs = runs.add(program)
watching.add(_runs)
signals.add(program)
approvals.add(program)
events.add(program)
readers.add(program)
schedules.add(program)
pools.add(program)
queues.add(program)
stores.add(program)
inspecting.add(program)
tokens.add(program)
