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
    return f"{did_you_mean(name, names)}Known: {', '.join(map(repr, names)) or 'none'}."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The closest known name as a question and a space; "" if none is close. For what has too many names to list."""
    folded = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    return f"Did you mean {folded[close[0]]!r}? " if close else ""
