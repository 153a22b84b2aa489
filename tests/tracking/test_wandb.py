"""The offline W&B run is read back from its file."""

import pytest
from PIL import Image

from pinnfuse.tracking import QuietWandbLogger, logged_in, start_run
from pinnfuse.training import cli
from pinnfuse.training.run import Run
from tests.tracking.offline import read

wandb = pytest.importorskip("wandb")


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
    run = read(tmp_path)
    assert [row["trainer/global_step"] for row in run.rows[:2]] == [50, 100]
    assert run.rows[0]["loss/total"] == 0.5 and run.rows[0]["val/rel_l2/u"] == 0.25
    assert run.rows[1]["loss/total"] == 0.125
    assert run.summary["steps"] == 100
    assert run.config["pde"] == "heat" and run.config["network"] == {"width": 3}
    (figure,) = [row["figures/u.path"] for row in run.rows if "figures/u.path" in row]
    with Image.open(run.files / figure) as image:
        assert image.size == (4, 4)
    assert capfd.readouterr() == ("", "")  # nothing on the terminal


def test_a_run_outside_of_training(tmp_path, offline, capfd):
    run = start_run("project", tmp_path, {"steps": 3}, name="a name")
    run.log({"speed": 0.5}, step=7)
    run.finish()
    found = read(tmp_path)
    assert [(row["_step"], row["speed"]) for row in found.rows] == [(7, 0.5)]
    assert found.config["steps"] == 3
    assert capfd.readouterr() == ("", "")


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
    found = read(tmp_path)
    tracked = {}
    for row in found.rows:
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
    assert {key for row in found.rows for key in row} >= {"figures/loss._type", "figures/u._type"}
    assert found.config["network"]["width"] == 8 and found.config["training"]["interior"] == 32
    assert found.summary["steps"] == 4


def test_every_figure_is_kept_once(tmp_path, offline):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "u.png")
    logger = QuietWandbLogger(tmp_path, "project", {})
    logger.log_metrics({"loss/total": 0.5}, step=1)
    logger.finish({"u": tmp_path / "u.png"}, {"steps": 1})
    run = read(tmp_path)
    (figure,) = [row["figures/u.path"] for row in run.rows if "figures/u.path" in row]
    assert run.summary["steps"] == 1
    assert list((run.files / "media/images/figures").iterdir()) == [run.files / figure]
