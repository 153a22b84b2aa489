"""`pinnfuse physarum` from options to files, and its errors in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pinnfuse.cli.main import main
from pinnfuse.simulation import Physarum
from tests.tracking.offline import read

SMALL = ["physarum", "--device", "cpu", "--backend", "torch", "--shape", "20x30", "--agents", "60", "--steps", "12"]


def test_pictures_and_a_state_to_go_on_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gif, state = tmp_path / "new" / "a.gif", tmp_path / "state.pt"
    options = ["--every", "4", "--palette", "ember,tableau", "--cycle", "9", "--speed", "0.5", "--save", str(state)]
    assert main([*SMALL, *options, "--out", f"{gif},{tmp_path / 'a.png'}"]) == 0
    with Image.open(gif) as image:
        assert image.n_frames == 3 and image.size == (30, 20)
    assert "wrote" in capsys.readouterr().out
    assert main([*SMALL, "--resume", str(state), "--out", str(tmp_path / "b.png"), "--save", str(state)]) == 0
    resumed = Physarum.load(state, backend="torch")
    assert resumed.steps_done == 24 and resumed.parameters.speed == 0.5
    straight = Physarum((20, 30), 60, speed=0.5, backend="torch").run(24)
    assert torch.equal(resumed.field, straight.field)


def test_an_image_sets_the_shape(tmp_path: Path) -> None:
    Image.fromarray(np.tile(np.arange(40, dtype=np.uint8) * 6, (25, 1))).save(tmp_path / "i.png")
    command = ["physarum", "--device", "cpu", "--agents", "50", "--steps", "2", "--spawn", "image"]
    assert main([*command, "--image", str(tmp_path / "i.png"), "--out", str(tmp_path / "o.png")]) == 0
    with Image.open(tmp_path / "o.png") as image:
        assert image.size == (40, 25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shape", "20"], "--shape: expected HEIGHTxWIDTH"),
        (["--speed", "-1"], "`speed` must be finite and >= 0"),
        (["--decay", "1.5"], "`decay` must be in [0, 1]"),
        (["--image", "no.png"], "no image at no.png"),
        (["--palette", "slimy"], "Did you mean 'slime'"),
        (["--resume", "no.pt"], "no file at no.pt"),
        (["--spawn", "rings"], "Did you mean 'ring'"),
        (["--steps", "0"], "must be positive"),
        (["--fps", "0"], "`fps` must lie in"),
        (["--devices", "0"], "--devices: expected at least 1"),
        (["--save_every", "5"], "needs a file; add --save"),
        (["--strength", "2"], "--strength: is that of an image"),
        (["--food", "2"], "--food: a new colony has no food map"),
        (["--species", "99"], "`species` must be a whole number in 1..64"),
        (["--agents", "99999999999"], "`agents` must be a whole number"),
        (["--live", "--every", "0"], "must be positive"),
        (["--save", "/dev/null"], "it is a folder or a device"),
    ],
)
def test_a_wrong_value_is_one_line(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *options, "--out", str(tmp_path / "a.gif")]) == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "5"], "--seed: a resumed colony has 0; got 5"),
        (["--shape", "30x30"], "--shape: a resumed colony has (20, 30)"),
        (["--boundary", "walls"], "--boundary: a resumed colony has torus"),
        (["--spawn", "ring"], "--spawn: a resumed colony has its start behind it"),
        (["--image", "a.png"], "--image: a resumed colony has its start behind it"),
        (["--food", "1"], "--food: the resumed colony has no food map"),
    ],
)
def test_a_resumed_colony_ignores_no_option(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Physarum((20, 30), 60, backend="torch").save(tmp_path / "a.pt")
    command = ["physarum", "--device", "cpu", "--steps", "2", "--resume", str(tmp_path / "a.pt")]
    assert main([*command, *options, "--out", str(tmp_path / "a.gif")]) == 1
    assert message in capsys.readouterr().err and [p.name for p in tmp_path.iterdir()] == ["a.pt"]


def test_an_interrupted_run_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Physarum):
        def run(self, steps: int, sort_every: int = 0) -> Physarum:
            if self.steps_done >= 6:
                raise KeyboardInterrupt
            return super().run(steps, sort_every)

    monkeypatch.setattr("pinnfuse.simulation.Physarum", Interrupted)
    files = ["--out", str(tmp_path / "a.gif"), "--save", str(tmp_path / "a.pt"), "--save_every", "3", "--every", "3"]
    assert main([*SMALL, *files]) == 130
    assert "a.pt is the state after 6 steps" in capsys.readouterr().out
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"] and Physarum.load(tmp_path / "a.pt").steps_done == 6


def test_live_frames_reach_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert main([*SMALL, "--every", "6", "--live", "--out", str(tmp_path / "a.gif")]) == 0
    found = read(tmp_path)
    assert found.config["agents"] == 60
    assert [row["_step"] for row in found.rows] == [6, 12]
    for row in found.rows:
        with Image.open(found.files / row["frame.path"]) as image:
            assert image.size == (30, 20)


def test_bench(tmp_path: Path) -> None:
    assert main(["bench", "physarum", "--quick", "--seconds", "0.02", "--device", "cpu", "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/physarum.json")
    report = json.loads(path.read_text())
    (row,) = report["rows"]
    assert row["check"] == "6 steps against torch: same bits" and row["first_call_s"] > 0
    assert row["steps_per_s"] == pytest.approx(1e3 / row["step_ms"]["median"])
    assert row["updates_per_s"] == pytest.approx(500 * row["steps_per_s"])
    assert {"machine", "versions", "commit", "date", "protocol"} <= set(report)
    assert set(report["scaling"]) == {"cells", "agents", "steps"}
    assert all(len(s["regimes"]) == len(s["sizes"]) == len(s["seconds"]) for s in report["scaling"].values())
    assert report["crowded"]["slowdown, two-stage"] > 0


def test_a_wrong_kernel_gives_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from pinnfuse.bench.physarum import cases, runner

    device, case = torch.device("cpu"), cases.QUICK[0]
    sim = case.colony(device).run(2)
    sim.colony.x[0] = (sim.colony.x[0] + 65536) % (64 * 65536)
    with pytest.raises(RuntimeError, match="the bits differ"):
        runner.check(sim, case, device)
    made = [sim, case.colony(device)]
    monkeypatch.setattr(cases.Case, "colony", lambda self, *_: made.pop(0))
    row = runner.measure(case, device, 0.01)
    assert "step_ms" not in row and "bits differ" in row["failed"]


def test_a_run_over_two_processes_writes_the_same_files(tmp_path: Path) -> None:
    options = ["--shape", "60x30", "--every", "6", "--agents", "300", "--sensor_distance", "3"]
    for name, more in (("one", []), ("two", ["--devices", "2", "--window", "3"])):
        files = ["--out", str(tmp_path / f"{name}.png"), "--save", str(tmp_path / f"{name}.pt"), "--save_every", "5"]
        assert main([*SMALL, *options, *more, *files]) == 0
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    one, two = (Physarum.load(tmp_path / f"{name}.pt", backend="torch") for name in ("one", "two"))
    assert torch.equal(one.field, two.field) and torch.equal(one.positions, two.positions)


def test_a_mistake_in_a_process_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bands are checked before processes start; a palette by every process, of which one is heard."""
    for options, message in (
        ([], "bands of 10 rows are thinner than what a step reaches"),
        (["--shape", "60x30", "--palette", "slimy"], "of 2 ended: ValueError: palette: unknown 'slimy'"),
    ):
        assert main([*SMALL, "--devices", "2", *options, "--out", str(tmp_path / "a.gif")]) == 1
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error


def test_bench_over_processes(tmp_path: Path) -> None:
    options = ["--quick", "--seconds", "0.02", "--device", "cpu", "--devices", "2", "--out", str(tmp_path)]
    assert main(["bench", "physarum", *options]) == 0
    (path,) = tmp_path.glob("*/physarum_split.json")
    report = json.loads(path.read_text())
    assert report["check"].endswith("2 processes against one: same bits")
    assert len(report["rows"]) == 6 and report["best"] == max(row["ratio"] for row in report["rows"])
    for row in report["rows"]:
        assert row["ratio"] == pytest.approx(report["one"][row["case"]]["median"] / row["step_ms"]["median"])
    assert {"machine", "versions", "commit", "date"} <= set(report)
