"""Patterns are matched as Python does, in bounded time, or not at all."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.patterns import Work, can_tell, pattern_steps_max, search

characters = "abcxyz-_.+019 \n!é²"
texts = st.text(characters, max_size=12)

# Those that people write, and those that take Python ages.
PATTERNS = [
    r"^[a-z]+$",
    r"^[a-z]+(-[a-z0-9]+)*$",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
    r"(a|b)*c",
    r"^(a+)+$",
    r"(a*)*b?$",
    r"^(?=a)[ab]*\Z",
    r"\b\w+\b\s?x*",
    r"\B[^a-c\d]+\W*",
    r"x*?y+?",
    r"a{2,4}b{0,2}$",
    r"^$|^a+b?$",
    r"(?:a|ab)(?:c|bc)*(?P<last>x)?$",
    r"a.b?.*c\Z",
    r"\Aa*\S+$",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=200)
@given(text=texts)
def test_the_answer_is_that_of_python(pattern: str, text: str) -> None:
    assert search(pattern, text, Work()) is (re.search(pattern, text) is not None)


atoms = st.sampled_from(
    ["a", "b", "[ab]", "[^a]", ".", r"\d", r"\w", r"\s", "^", "$", r"\b", "(?!a)"]
)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{1,2}", "{2}", "{0,1}"])).map(
            lambda one: f"(?:{one[0]}){one[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(patterns, st.text("ab1 \n", max_size=6))
def test_the_answer_is_that_of_python_for_any_pattern(pattern: str, text: str) -> None:
    assert search(pattern, text, Work()) in (re.search(pattern, text) is not None, None)


def test_an_ordinary_pattern_can_be_told() -> None:
    assert all(map(can_tell, PATTERNS))


@pytest.mark.parametrize(
    "pattern",
    [
        "((((",
        r"(a+)\1*b+",
        r"(?i)a*b*",
        r"(?i:a)*b*",
        r"(?<=a)b*c*",
        r"(?>a*)b*",
        r"a*+b*",
        r"((a{1,99}){1,99}){1,99}",
        "a" * 1001,
    ],
)
def test_what_is_not_walked_is_not_tried(pattern: str) -> None:
    assert not can_tell(pattern)
    assert search(pattern, "aaab", Work()) is None


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^a*a*a*a*a*$", "(.*)*b"])
def test_what_takes_python_for_ever_takes_us_a_moment(pattern: str) -> None:
    assert search(pattern, "a" * 2000 + "!", Work()) is False


@pytest.mark.parametrize("pattern", ["(){4000000000}a*b*", "((){1000}){1000}a*b*", "(|){3}a*b*"])
def test_nothing_is_not_repeated(pattern: str) -> None:
    """The pytest timeout is the judge."""
    assert search(pattern, "ab", Work()) is True


def test_a_large_class_of_characters_costs_what_it_is() -> None:
    large = "[^" + "".join(map(chr, range(0x4E00, 0x4E00 + 900))) + "]*x*y"
    assert search(large, "z" * 100, Work()) is False
    assert search(large, "z" * 100_000, Work()) is None


def test_the_work_is_bounded_over_all_texts() -> None:
    work = Work()
    answers = [search("^(a|b)*$", "a" * 1000, work) for _ in range(1000)]
    assert answers[0] is True and answers[-1] is None
    assert search("^a*$", "a" * 1_000_000, Work()) is None
    assert search("^a*$", "a" * 100, Work(pattern_steps_max)) is True
