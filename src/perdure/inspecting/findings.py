"""What `fsck` finds: values, and how each is set right."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

Severity = Literal["error", "warning"]
# How a finding is set right; "": by no op.
Means = Literal["", "mend", "recover", "fire", "prune"]

# By what a finding is known when it is looked at again: invariant, run, path, position.
At = tuple[str, str | None, str | None, int | None]
Progress = Callable[[str, int], None]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that does not hold. `advice` says what an operator could do, or what `repair=True` does."""

    invariant: str
    what: str
    severity: Severity
    repairable: bool
    advice: str
    run_id: str | None = None
    path: str | None = None
    position: int | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `fsck` found. `checked` counts the rows that were looked at; `unjudged` says what could not be judged.

    After a repair `repaired` are the findings that are gone, and `findings` those that are left.
    """

    findings: list[Finding]
    repaired: list[Finding]
    checked: dict[str, int]
    unjudged: list[str]
    truncated: bool = False  # there is more than is told

    @property
    def ok(self) -> bool:
        """Whether every invariant holds; warnings may be there."""
        return not any(one.severity == "error" for one in self.findings)


class Found(msgspec.Struct, frozen=True):
    """A finding, and how it is set right."""

    finding: Finding
    means: Means = ""

    @property
    def at(self) -> At:
        one = self.finding
        return one.invariant, one.run_id, one.path, one.position


_advice: Final[dict[Means, str]] = {
    "mend": "repair=True lets the run replay and open its waits again",
    "recover": "the next worker takes it over; repair=True makes it ready at once",
    "fire": "start a worker; repair=True acts on what is due by now",
    "prune": "repair=True deletes them",
    "": "restore it from a backup; or look at the run, export what is needed, and terminate it",
}


def plain(
    invariant: str,
    what: str,
    *,
    run_id: str | None = None,
    path: str | None = None,
    position: int | None = None,
    severity: Severity = "error",
    means: Means = "",
    advice: str = "",
) -> Found:
    return Found(
        Finding(
            invariant=invariant,
            what=what,
            severity=severity,
            repairable=bool(means),
            advice=advice or _advice[means],
            run_id=run_id,
            path=path,
            position=position,
        ),
        means,
    )
