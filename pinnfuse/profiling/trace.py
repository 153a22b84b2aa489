"""What a Chrome trace says: launches, which operation each kernel belongs to, stacks with their own time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Event = Mapping[str, Any]
OPERATIONS = ("user_annotation", "cpu_op")
LAUNCHES = ("cuda_runtime", "cuda_driver")


@dataclass(frozen=True)
class Kernel:
    """One kernel's executions: the range or operation that launched it, how often, microseconds in all."""

    name: str
    range: str
    operation: str
    call: str
    count: int
    microseconds: float


def complete(events: Iterable[Event]) -> list[Event]:
    """Events with a start and a duration, by start; those that begin together from the longest on."""
    return sorted((e for e in events if e.get("ph") == "X"), key=lambda e: (e["ts"], -e["dur"]))


def kernels(events: Iterable[Event]) -> list[Kernel]:
    """Every kernel with the named range, the innermost operation and the CUDA call that launched it.

    Kernels replayed from a graph share the launch of the graph. One whose launch is not in the trace counts to no
    operation, "-".
    """
    events = complete(events)
    stacks = _enclosing([e for e in events if e.get("cat") in (*OPERATIONS, *LAUNCHES)])
    launches: dict[Any, tuple[str, str, str]] = {}
    for e, parents in stacks:
        if e["cat"] in LAUNCHES and "correlation" in e.get("args", {}):
            ranges = [p["name"] for p in parents if p["cat"] == "user_annotation"]
            launches[e["args"]["correlation"]] = (
                ranges[-1] if ranges else "-",
                parents[-1]["name"] if parents else "-",
                e["name"],
            )
    counts: Counter[tuple[str, str, str, str]] = Counter()
    times: dict[tuple[str, str, str, str], float] = defaultdict(float)
    for e in events:
        if e.get("cat") == "kernel":
            range_, operation, call = launches.get(e.get("args", {}).get("correlation"), ("-", "-", "-"))
            key = (str(e["name"]), range_, operation, call)
            counts[key] += 1
            times[key] += e["dur"]
    rows = [Kernel(*key, count=n, microseconds=times[key]) for key, n in counts.items()]
    return sorted(rows, key=lambda row: -row.microseconds)


def ranges(events: Iterable[Event], prefix: str = "") -> dict[str, tuple[int, float]]:
    """{named range: (count, microseconds on the host)}."""
    found: dict[str, tuple[int, float]] = {}
    for e in complete(events):
        if e.get("cat") == "user_annotation" and e["name"].startswith(prefix):
            count, time = found.get(e["name"], (0, 0.0))
            found[e["name"]] = (count + 1, time + e["dur"])
    return found


def folded(events: Iterable[Event]) -> list[str]:
    """Stacks in the format of flame graphs, `outer;inner microseconds`: own time of host operations, and kernels below
    the operation that launched them, on a stack of their own."""
    events = complete(events)
    own: dict[str, float] = defaultdict(float)
    chosen = [e for e in events if e.get("cat") in (*OPERATIONS, *LAUNCHES)]
    launched: dict[Any, str] = {}
    for e, parents in _enclosing(chosen):
        path = ";".join(_clean(p["name"]) for p in (*parents, e))
        own["host;" + path] += e["dur"]
        if parents:
            own["host;" + ";".join(_clean(p["name"]) for p in parents)] -= e["dur"]
        if "correlation" in e.get("args", {}):
            launched[e["args"]["correlation"]] = ";".join(_clean(p["name"]) for p in parents)
    for e in events:
        if e.get("cat") == "kernel":
            above = launched.get(e.get("args", {}).get("correlation"), "")
            own[";".join(filter(None, ("device", above, _clean(e["name"]))))] += e["dur"]
    return [f"{path} {round(time)}" for path, time in sorted(own.items()) if round(time) > 0]


def own_times(events: Iterable[Event]) -> list[tuple[Event, float]]:
    """Host operations and ranges with their time less that of what they called, microseconds."""
    chosen = [e for e in complete(events) if e.get("cat") in OPERATIONS]
    own = {id(e): float(e["dur"]) for e in chosen}
    for e, parents in _enclosing(chosen):
        if parents:
            own[id(parents[-1])] -= e["dur"]
    return [(e, own[id(e)]) for e in chosen]


def _enclosing(events: list[Event]) -> list[tuple[Event, tuple[Event, ...]]]:
    """Each event with those of its thread that contain it, outermost first."""
    open_: dict[Any, list[Event]] = defaultdict(list)
    found = []
    for e in events:
        stack = open_[e.get("pid"), e.get("tid")]
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= e["ts"]:
            stack.pop()
        found.append((e, tuple(stack)))
        stack.append(e)
    return found


def _clean(name: str) -> str:
    return name.replace(";", ",").replace(" ", "_")
