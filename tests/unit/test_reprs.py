"""What people see in logs, debuggers and error messages: what they wrote, and no secrets."""

import pytest

from perdure import App, Context, Queue, Signal, Topic, ended, step, timer, workflow

arrived = Topic("stock.arrived", int)


@workflow
async def restock(ctx: Context) -> None:
    return None


@workflow(version=3)
async def newer(ctx: Context) -> None:
    return None


@step
def count() -> int:
    return 1


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (arrived, "Topic('stock.arrived', int)"),
        (Queue("jobs", str), "Queue('jobs', str)"),
        (arrived.about(), "Topic('stock.arrived')"),
        (
            arrived.about("sku/7", where="payload > 5", since="now"),
            "Topic('stock.arrived').about('sku/7', where='payload > 5', since='now')",
        ),
        (arrived.about(deliver="latest"), "Topic('stock.arrived').about(deliver='latest')"),
        (timer("1h"), "timer('3600s')"),
        (ended("r"), "ended('r')"),
        (
            Signal("go", int) | Queue("jobs") | timer("250ms"),
            "Signal('go') | Queue('jobs') | timer('0.25s')",
        ),
        (restock, "Workflow('restock')"),
        (newer, "Workflow('newer', version=3)"),
        (count, "Step('count')"),
        (App("memory://"), "App('memory://')"),
        (App("sqlite:///a.db", namespace="shop"), "App('sqlite:///a.db', namespace='shop')"),
        (App("postgresql://me:p@ss@host/db"), "App('postgresql://…@host/db')"),
    ],
)
def test_a_repr_says_what_it_is(thing: object, words: str) -> None:
    assert repr(thing) == words
