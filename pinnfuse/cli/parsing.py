"""A command's parser whose help says what an option is and its default, and not how it is parsed."""

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
