"""`/metrics`: what Prometheus asks for, and what is said where nothing is counted."""

import sys
from typing import Any

import pytest
from asking import TOKENS, asked, scene, shop, tokens
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from perdure import ObservingUnavailable
from perdure.observing import OpenTelemetry, Prometheus

READ = {"authorization": f"Bearer {TOKENS['read']}"}


async def test_it_tells_what_was_counted_to_who_may_read() -> None:
    app = shop(observe=[Prometheus()])
    async with asked(app, client="203.0.113.9", tokens=tokens()) as found:
        await scene(app)
        answer = await found.http.get("/metrics", headers=READ)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {one.name: one for one in text_string_to_metric_families(answer.text)}
        started = {
            one.labels["workflow"]: one.value for one in families["perdure_runs_started"].samples
        }
        assert started == {"decide": 2, "fail": 1, "ask": 1, "narrow": 2}
        (lag,) = families["perdure_consumer_lag"].samples
        assert lag.labels == {"consumer": "workflow_runner"}
        assert (await found.http.get("/metrics")).status_code == 401
        stranger = {"authorization": f"Bearer {TOKENS['signal']}"}
        assert (await found.http.get("/metrics", headers=stranger)).status_code == 403


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
        ("application/openmetrics-text; version=x.y", "text/plain"),
        ("text/html, */*", "text/plain"),
        ("", "text/plain"),
    ],
)
async def test_it_is_told_in_the_form_that_is_accepted(accept: str, kind: str) -> None:
    async with asked(shop(observe=[Prometheus()])) as found:
        answer = await found.http.get("/metrics", headers={"accept": accept})
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        assert answer.text.endswith("# EOF\n") == kind.startswith("application")


async def test_a_registry_of_ones_own_is_told_whole() -> None:
    registry = CollectorRegistry()
    Counter("orders", "of the shop", registry=registry).inc(3)
    async with asked(shop(observe=[Prometheus(registry)])) as found:
        text = (await found.http.get("/metrics")).text
        assert "orders_total 3.0" in text and "perdure_store_up 1.0" in text


@pytest.mark.parametrize("observe", [[], [OpenTelemetry(metrics=False)]], ids=["nobody", "otel"])
async def test_where_nothing_is_counted_the_answer_says_what_to_do(observe: list[Any]) -> None:
    async with asked(shop(observe=observe)) as found:
        answer = await found.http.get("/metrics")
        assert answer.status_code == 501
        problem = answer.json()
        assert problem["error"] == "ObservingUnavailable"
        assert "App(observe=[Prometheus()])" in problem["detail"]
        assert "perdure[prometheus]" in problem["detail"]


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("prometheus_client", Prometheus, "perdure[prometheus]"),
        ("opentelemetry", OpenTelemetry, "perdure[otel]"),
    ],
)
async def test_a_package_that_is_missing_is_named(
    monkeypatch: Any, module: str, make: Any, extra: str
) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ObservingUnavailable) as caught:
        make()
    assert extra in str(caught.value)
    async with asked(shop()) as found:  # and the server is none the worse
        assert (await found.http.get("/metrics")).status_code == 501
        assert (await found.http.get("/health")).status_code == 200
