"""Links for approvals: whatever page they lead to, what is made here is read here."""

import pytest

from perdure.links import Link, checked_secrets, made_link, read_link
from perdure.model.limits import BadValue

SECRETS = checked_secrets("a secret of sixteen bytes or more")
LINK = Link("01KE6P4YM0RK2DBEP728G80004", "01KE6P4YM0RK2DBEP728G80004.r1", "anna", "yes", 5)


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/a",
        "https://shop.example/a?x=1#top",
        "https://shop.example/a?token=old",
        "https://shop.example/a?token=old&x=1&token=older&token",
        "https://shop.example/a?%74oken=old&x=1",
        "https://shop.example/a?&&x=1&",
        "/a?x=1;y=2",
        "",
    ],
)
def test_a_link_has_one_token_and_keeps_the_rest(url: str) -> None:
    link = made_link(SECRETS, LINK, url)
    assert read_link(SECRETS, link) == LINK
    assert link.count("token=") == 1
    assert ("x=1" in link) == ("x=1" in url)
    assert link.endswith("#top") == url.endswith("#top")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://[shop/a", "is no address"),
        ("https://shop.example/\ud800", "is no address"),
        ("https://shop.example/" + "x" * 4000, "link_chars_max"),
        (7, "is a int"),
        (b"https://shop.example", "is a bytes"),
    ],
)
def test_a_url_that_makes_no_link_is_refused(url: object, problem: str) -> None:
    with pytest.raises(BadValue, match=rf"^url .*{problem}"):
        made_link(SECRETS, LINK, url)  # type: ignore[arg-type]
