"""`perdure token`: who may ask a server, and for what."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perdure.cli.calling import Scene, command, group


def add(program: typer.Typer) -> None:
    token = group(program, "token", "Tokens of the HTTP API", cls=TyperGroup)
    command(token, "new", opens=False, places=False)(new)


async def new(
    scene: Scene,
    name: Annotated[str, typer.Option("--name", help="Whose it is")],
    scope: Annotated[
        list[str], typer.Option("--scope", help="read, signal, operate or admin; several times")
    ],
    in_group: Annotated[
        list[str] | None, typer.Option("--group", help="For whom it decides approvals")
    ] = None,
) -> None:
    """Make a token: it is shown once; the server keeps only the line for PERDURE_TOKENS. Needs `perdure[server]`."""
    from perdure.http import new_token  # says which extra is missing

    text = new_token()
    from perdure.http.security import TOKENS_VARIABLE, Token

    scopes: list[Any] = scope
    made = Token.of(text, name=name, scopes=scopes, groups=in_group or ())
    if scene.out.json:
        scene.out.document({"token": text, "line": str(made), "variable": TOKENS_VARIABLE})
        return
    scene.out.say(text)
    scene.out.note(
        f"\nThis is the only time that it is shown. Whoever asks has it as PERDURE_TOKEN; the server has, among others "
        f"and separated by blanks:\n\n{TOKENS_VARIABLE}='{made}'"
    )
