"""The page of the HTTP API has a line for each route of the table, in its words, and no other."""

import re
from collections import Counter
from pathlib import Path

from perdure.http.routes import PREFIX, ROUTES, Route

PAGE = Path(__file__).parents[2] / "docs" / "http-api.md"
no_scope = "\N{EN DASH}"
_line = re.compile(r"^\| `(?:GET|POST|PUT|PATCH|DELETE) .*\|$", re.MULTILINE)


def line_of(route: Route) -> str:
    path = route.path.removeprefix(PREFIX)
    return f"| `{route.method} {path}` | {route.scope or no_scope} | {route.says} |"


def test_it_has_every_route_and_no_other() -> None:
    _, _, tables = PAGE.read_text(encoding="utf-8").partition("## All requests")
    assert Counter(_line.findall(tables)) == Counter(map(line_of, ROUTES))


def test_those_beside_the_prefix_have_a_table_of_their_own() -> None:
    _, _, beside = PAGE.read_text(encoding="utf-8").partition("### Beside `/api/v1`")
    outside = [one for one in ROUTES if not one.path.startswith(f"{PREFIX}/")]
    assert Counter(_line.findall(beside)) == Counter(map(line_of, outside))
