"""The library's own exception, and the wording that error messages share."""

import difflib
from collections.abc import Iterable


class BackendUnavailable(RuntimeError):
    """An explicitly requested backend cannot run here; the message says why. Nothing falls back silently."""


class ProcessDied(RuntimeError):
    """One of several processes ended before its work was done, and the others were stopped."""


def nearest(name: str, known: Iterable[str]) -> str:
    """What an error about an unknown name ends with: the closest known name, if any is close, and all of them.

    >>> nearest("burger", ["heat", "burgers"])
    "Did you mean 'burgers'? Known: 'burgers', 'heat'."
    """
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(map(repr, names)) or 'none'}."
