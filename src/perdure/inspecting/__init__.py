"""Looking after a store: what it is and promises (`doctor`), whether all in it holds together (`fsck`), what it knows.

`verbs` has what an App can do; `doctor` and `invariants` judge and do nothing else; `checking` reads a live store in
pages and `mending` sets right what ops can set right. Nothing here knows which store it is.
"""

from perdure.inspecting.catalogue import ChannelInfo, SignalInfo, WorkerInfo, WorkflowInfo
from perdure.inspecting.doctor import Diagnosis, Promise, SchemaVersion
from perdure.inspecting.findings import Finding, Progress, Report
from perdure.inspecting.verbs import Inspecting
from perdure.store.base import Setting

__all__ = [
    "ChannelInfo",
    "Diagnosis",
    "Finding",
    "Inspecting",
    "Progress",
    "Promise",
    "Report",
    "SchemaVersion",
    "Setting",
    "SignalInfo",
    "WorkerInfo",
    "WorkflowInfo",
]
