"""What `train.py --list` shows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from rich.console import Group
from rich.table import Table

from pinnfuse import models, optimizers, problems, tasks


def listing() -> Group:
    """Tables of PDEs with their problems, networks, tasks of surrogates with their networks, and optimisers."""
    table = Table(title="PDEs and problems", title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("--pde", "--problem", f"what it is {_options(['--options.*'])}"):
        table.add_column(column)
    for pde, names in problems.available().items():
        for k, name in enumerate(names):
            title = problems.get(pde, name).title
            table.add_row(f"[cyan]{pde}" if k == 0 else "", name, f"{title} {_options(problems.options(pde, name))}")
    return Group(
        table,
        "",
        _named("networks", "--model", {n: _first_line(models.get(n)) for n in models.available()}),
        "",
        _tasks(),
        "",
        _named("networks of surrogates", "--model", {n: _first_line(m) for n, m in models.OPERATORS.items()}),
        "",
        _named("optimisers", "--training.phases", optimizers.available()),
    )


def _tasks() -> Table:
    table = Table(title="surrogates", title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("--pde", "--model", f"what it learns {_options(['--options.*'])}"):
        table.add_column(column)
    for name in tasks.available():
        task = tasks.get(name)
        table.add_row(f"[cyan]{name}", task.model.name, f"{task.title} {_options(tasks.options(name))}")
    return table


def _options(names: Iterable[str]) -> str:
    """In the column of the text: a column of their own would leave neither enough room on 80 characters."""
    return f"[dim]({', '.join(names)})[/]"


def _named(title: str, option: str, entries: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(option)
    table.add_column("what it is")
    for name, text in entries.items():
        table.add_row(f"[cyan]{name}", text)
    return table


def _first_line(thing: object) -> str:
    return re.split(r"[.,]", inspect.getdoc(thing) or "", maxsplit=1)[0]
