"""Queries and migrations as files: how they are found, split and named."""

import sqlite3

import pytest

from perdure.store import sql
from perdure.store.sql import RECORDS
from perdure.store.sqlite import opening, statements


def test_queries_have_no_comments_and_no_semicolon() -> None:
    found = sql.load_queries("perdure.store.sqlite")
    assert set(found) == set(statements.queries)
    for name, text in found.items():
        assert text and "--" not in text and not text.endswith(";"), name


def test_every_query_says_why() -> None:
    from importlib.resources import files

    text = files("perdure.store.sqlite").joinpath("queries.sql").read_text()
    for part in sql._name_line.split(text)[2::2]:
        assert part.strip().startswith("-- "), part


def test_migrations_are_in_order() -> None:
    found = sql.load_migrations("perdure.store.sqlite")
    assert [one.number for one in found] == list(range(1, len(found) + 1))


def test_a_trigger_is_one_statement() -> None:
    split = opening.statements_of(opening.migrations[0].text)
    assert sum("create trigger" in one for one in split) == 2
    assert all(one.rstrip().endswith(";") for one in split)
    with pytest.raises(ValueError, match="middle of a statement"):
        opening.statements_of("create table x (y integer)")


def test_every_field_of_a_record_has_a_column() -> None:
    connection = sqlite3.connect(":memory:")
    for statement in opening.statements_of("".join(one.text for one in opening.migrations)):
        connection.execute(statement)
    tables = {
        "letter": "dead_letters",
        "item": "queue_items",
        "outbox": "outbox",
        "parked": "parked",
        "deferred": "deferred",
    }
    for name, record in RECORDS.items():
        table = tables.get(name, f"{name}s")
        columns = {row[1] for row in connection.execute(f"pragma table_info({table})")}
        assert columns - set(record.__struct_fields__) <= {"codec"}, table
        assert set(record.__struct_fields__) <= columns, table
    connection.close()
