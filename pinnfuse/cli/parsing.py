"""What commands share: a parser whose help says what an option is and not how it is parsed; lists and sizes as text."""

from __future__ import annotations

from argparse import SUPPRESS, Action
from typing import Any

from jsonargparse import ArgumentParser, DefaultHelpFormatter


class PlainHelp(DefaultHelpFormatter):
    """The text of an option, and its default where that is a value."""

    def _get_help_string(self, action: Action) -> str:
        text, default = action.help or "", action.default
        shown = default is not None and default is not False and default != SUPPRESS
        return f"{text} (default: {default})" if shown else text


class PlainParser(ArgumentParser):
    """Keeps its own form of help where it is a subcommand, which otherwise takes its parent's."""

    formatter_class: Any = property(lambda self: PlainHelp, lambda self, value: None)


def names(text: str) -> list[str]:
    """Of "a, b": ["a", "b"]."""
    return [name.strip() for name in text.split(",") if name.strip()]


def height_and_width(text: str) -> tuple[int, int]:
    """Of the option `--shape`, "300x400": (300, 400)."""
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(side.isdecimal() for side in sides):
        raise ValueError(f"--shape: expected HEIGHTxWIDTH, e.g. 400x400; got {text!r}.")
    return int(sides[0]), int(sides[1])
