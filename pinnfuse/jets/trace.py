"""Recognise a network: trace it with `torch.fx` and translate the graph to a `Program`.

The graph is split in two. What does not depend on the points (weights, normalised or generated weights, scales) is
run as ordinary torch code under autograd at every call and gives the operands. What depends on the points must be one
of the operations that have a jet rule; the first node that has none ends recognition, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from pinnfuse.jets.reads import Reads, Unreadable
from pinnfuse.jets.recognised import Recognised
from pinnfuse.jets.tracing import NotRecognised, fingerprint
from pinnfuse.jets.translate import Translator

__all__ = ["NotRecognised", "Recognised", "recognise"]


def recognise(net: nn.Module, in_width: int) -> Recognised:
    """The program of `net`, cached until the module's structure changes.

    Raises:
        NotRecognised: with the reason.
    """
    key = (fingerprint(net), in_width)
    cached = _cache.get(net)
    if cached is None or cached.key != key or cached.stale(net):
        cached = _Cached(key, *_recognised(net, in_width))
        _cache[net] = cached
    if isinstance(cached.result, NotRecognised):
        raise cached.result
    return cached.result


@dataclass(frozen=True)
class _Cached:
    """What was found for a network, until its fingerprint or what its forward reads changes."""

    key: Any
    result: Recognised | NotRecognised
    reads: Reads | None = None
    state: tuple[Any, ...] = ()

    def stale(self, net: nn.Module) -> bool:
        try:
            return self.reads is not None and self.reads.state(net) != self.state
        except Unreadable:
            return True


def _recognised(net: nn.Module, in_width: int) -> tuple[Any, ...]:
    try:
        translator = Translator(net, in_width)
        found = translator.translate()
        return found, translator.reads, translator.reads.state(net)
    except Unreadable as reason:
        return (NotRecognised(str(reason)),)
    except NotRecognised as reason:
        return (reason,)


_cache: WeakKeyDictionary[nn.Module, _Cached] = WeakKeyDictionary()
