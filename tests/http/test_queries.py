"""What a query says of lists, and of names that hold what separates them elsewhere."""

from typing import Any

import pytest
from asking import Asked

API = "/api/v1"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"tag": "team"}, ["waiting"]),
        ({"tag": "team:x"}, ["waiting"]),
        ({"tag": "team:y"}, []),
        ({"tag": "a:b:c"}, ["of a"]),  # the name ends at the first
        ({"tag_name": "a:b"}, ["of a:b"]),
        ({"tag_name": "a:b", "tag_value": "c"}, ["of a:b"]),
        ({"tag_name": "a", "tag_value": "b:c"}, ["of a"]),
        ({"tag_name": "a", "tag_value": "b"}, []),
    ],
    ids=str,
)
async def test_runs_by_their_tags(
    open_shop: Asked, query: dict[str, Any], found: list[str]
) -> None:
    await open_shop.app.start("decide", "o", id="of a:b", tags={"a:b": "c"})
    await open_shop.app.start("decide", "o", id="of a", tags={"a": "b:c"})
    told = (await open_shop.http.get(f"{API}/runs", params=query)).json()
    assert [one["id"] for one in told["items"]] == found


async def test_approvals_of_nobody_in_particular(open_shop: Asked) -> None:
    for query, count in (
        ({}, 1),
        ({"who": "anna"}, 1),
        ({"who": ["bert", "anna"]}, 1),
        ({"who": ""}, 0),
    ):
        told = (await open_shop.http.get(f"{API}/approvals", params=query)).json()
        assert len(told["items"]) == count, query
    refused = await open_shop.http.get(f"{API}/approvals", params={"who": ["", "anna"]})
    assert refused.status_code == 422
