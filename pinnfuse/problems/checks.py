"""Checks of options that several problems share."""

import math


def positive(where: str, **values: float) -> None:
    """Raise ValueError unless every value is positive and finite."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{where}: option `{name}` must be positive; got {value!r}.")
