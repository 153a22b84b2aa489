"""The offline W&B run is read back from its file."""

import json
import struct
import time

import pytest
import wandb
from PIL import Image
from wandb.proto import wandb_internal_pb2

from pinnfuse.tracking import QuietWandbLogger, logged_in
from pinnfuse.training import cli
from pinnfuse.training.run import Run


def records(content, block=32_768):
    """A .wandb file: seven bytes of header, then LevelDB log records (checksum, length, type) in blocks."""
    assert content[:4] == b":W&B"
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


def finished(path, seconds=60):
    """The records of a run that was finished; W&B's own process may still be writing them."""
    for _ in range(10 * seconds):
        found = [wandb_internal_pb2.Record.FromString(data) for data in records(path.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{path} has no end")


def read(folder):
    """History rows, summary and configuration of the one offline run in a folder."""
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    rows, summary, config = [], {}, {}
    for record in finished(path):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            rows.append({i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.history.item})
        elif kind == "summary":
            summary |= {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.summary.update}
        elif kind in ("config", "run"):
            update = record.config.update if kind == "config" else record.run.config.update
            config |= {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in update}
    return rows, summary, config


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def test_values_images_and_config_are_in_the_file(tmp_path, offline, capfd):
    logger = QuietWandbLogger(tmp_path, "project", {"pde": "heat", "network": {"width": 3}})
    _ = logger.experiment
    logger.log_metrics({"loss/total": 0.5, "val/rel_l2/u": 0.25}, step=50)
    logger.log_metrics({"loss/total": 0.125}, step=100)
    Image.new("RGB", (4, 4)).save(tmp_path / "u.png")
    logger.finish({"u": tmp_path / "u.png"}, {"steps": 100, "rel_l2": {"u": 0.25}})
    assert wandb.run is None
    rows, summary, config = read(tmp_path)
    assert [row["trainer/global_step"] for row in rows[:2]] == [50, 100]
    assert rows[0]["loss/total"] == 0.5 and rows[0]["val/rel_l2/u"] == 0.25 and rows[1]["loss/total"] == 0.125
    assert summary["steps"] == 100
    assert config["pde"] == "heat" and config["network"] == {"width": 3}
    assert list(tmp_path.glob("wandb/offline-run-*/files/media/images/figures/u_*.png"))
    assert capfd.readouterr() == ("", "")  # nothing on the terminal


def test_logged_in_is_decided_without_asking(monkeypatch, tmp_path, offline):
    assert not logged_in()
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert logged_in()
    monkeypatch.delenv("WANDB_API_KEY")
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password " + "y" * 40 + "\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert logged_in()


def test_a_run_is_tracked(tmp_path, offline):
    options = [
        "--pde",
        "heat",
        "--backend",
        "torch",
        "--accelerator",
        "cpu",
        "--max-steps",
        "4",
        "--record.log_every",
        "2",
    ]
    options += [
        "--network.width",
        "8",
        "--training.interior",
        "32",
        "--record.speedup_steps",
        "1",
        "--training.hard",
        "no",
    ]
    run = Run(cli.parse([*options, "--record.animations", "no", "--out", str(tmp_path)]))
    run.fit()
    run.finish()
    rows, summary, config = read(tmp_path)
    tracked = {}
    for row in rows:
        step = row.get("trainer/global_step")
        tracked |= {(key, step): value for key, value in row.items() if "/" in key and not key.startswith("figures")}
    for key, (steps, values) in run.history.series().items():
        for step, value in zip(steps, values, strict=True):
            if "/" in key:
                assert tracked[key, step] == pytest.approx(value, rel=1e-12), (key, step)
    names = {key for key, _ in tracked}
    assert {"loss/total", "loss/heat", "loss/initial", "loss/walls", "val/rel_l2/u"} <= names
    perf = {"step_ms", "points_per_s", "peak_memory_mb", "speedup_vs_autograd", "memory_vs_autograd"}
    assert {f"perf/{name}" for name in perf} <= names
    assert {key for row in rows for key in row} >= {"figures/loss._type", "figures/u._type"}
    assert config["network"]["width"] == 8 and config["training"]["interior"] == 32
    assert summary["steps"] == 4


def test_every_figure_is_kept_once(tmp_path, offline):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "u.png")
    logger = QuietWandbLogger(tmp_path, "project", {})
    logger.log_metrics({"loss/total": 0.5}, step=1)
    logger.finish({"u": tmp_path / "u.png"}, {"steps": 1})
    rows, summary, _ = read(tmp_path)
    assert sum("figures/u._type" in row for row in rows) == 1
    assert summary["steps"] == 1
    assert len(list(tmp_path.glob("wandb/offline-run-*/files/media/images/figures/*"))) == 1
