"""What an offline W&B run has written, read back from its own file."""

import json
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class OfflineRun:
    """The one offline run below a folder."""

    files: Path
    """folder of its media; the paths in the rows are relative to it"""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """what was logged; nested keys are joined by a dot"""
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, dict[str, int]] = field(default_factory=dict)
    """{name: {file: bytes}}"""


def read(folder: Path) -> OfflineRun:
    """The run in `folder/wandb`, once it was finished."""
    (home,) = folder.glob("wandb/offline-run-*")
    run = OfflineRun(home / "files")
    for record in _finished(home):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            run.rows.append(_items(record.history.item))
        elif kind == "summary":
            run.summary |= _items(record.summary.update)
        elif kind in ("config", "run"):
            run.config |= _items(record.config.update if kind == "config" else record.run.config.update)
        elif kind == "artifact":
            run.artifacts[record.artifact.name] = {e.path: e.size for e in record.artifact.manifest.contents}
    return run


def _items(items):
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _finished(home, seconds=300):
    """All records; W&B's own process may still be writing them after `finish` has returned, "exit" comes last."""
    from wandb.proto import wandb_internal_pb2  # here, so that W&B is needed by those alone who read its files

    for _ in range(10 * seconds):
        content = b"".join(path.read_bytes() for path in home.glob("run-*.wandb"))
        found = [wandb_internal_pb2.Record.FromString(data) for data in _records(content)]
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.1)
    raise TimeoutError(f"the W&B run in {home} has no end after {seconds} s")


def _records(content, block=32_768):
    """A .wandb file: seven bytes of header, then LevelDB log records (checksum, length, type) in blocks."""
    position, parts = 7, b""
    while position + 7 <= len(content):
        if block - position % block < 7:  # no room for another header: padding
            position += block - position % block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        if position + 7 + length > len(content):  # still being written
            return
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            yield parts
            parts = b""
