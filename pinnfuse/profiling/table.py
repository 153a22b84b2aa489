"""A profile for people: ranges, operations, CUDA calls and kernels in one table."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pinnfuse.profiling.run import Profile


def show(profile: Profile, console: Console) -> None:
    console.print(
        f"{profile.name} on {profile.device}: first call {profile.first_call / 1e3:,.1f} ms, then "
        f"{profile.steady / 1e3:,.3f} ms a step; {profile.operations} torch operations, "
        f"{profile.launches:g} kernels a step, {profile.device_time:,.1f} us on the card",
        highlight=False,
    )
    table = Table("range (one may lie in another)", "us a step on the host", box=SIMPLE_HEAD)
    for name, time in profile.ranges.items():
        table.add_row(escape(name), f"{time:,.1f}")
    console.print(table)
    if profile.kernels:
        table = Table("kernel", "a step", "us a step", "range", "operation", "CUDA call", box=SIMPLE_HEAD)
        for k in profile.kernels:
            each = (f"{k.count / profile.steps:g}", f"{k.microseconds / profile.steps:,.2f}")
            table.add_row(escape(k.name[:60]), *each, escape(k.range), escape(k.operation), escape(k.call))
        console.print(table)
    console.print(f"wrote {', '.join(str(path) for path in profile.files)}", soft_wrap=True, highlight=False)
