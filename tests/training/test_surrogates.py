"""Runs of surrogates: each command with tiny settings, what it leaves, resuming, the user's own data."""

import csv
import json

import pytest
import torch

from pinnfuse.training import cli
from pinnfuse.training.listing import listing
from pinnfuse.training.main import main
from pinnfuse.training.marching import make_run
from pinnfuse.training.surrogates import SurrogateRun

COMMANDS = {
    "darcy": ("fno", ("--options.points", "9", "--network.modes", "3")),
    "navier_stokes": ("fno", ("--options.points", "8", "--options.levels", "4", "--options.ahead", "2")),
    "burgers": ("unet", ("--options.points", "16", "--options.levels", "4", "--options.ahead", "2")),
    "gray_scott": ("unet", ("--options.points", "16", "--options.levels", "4", "--options.ahead", "2")),
}
TINY = ("--network.width", "4", "--network.depth", "2", "--training.samples", "16", "--training.held_out", "4")
KEYS = [
    "pde",
    "model",
    "backend",
    "precision",
    "device",
    "seed",
    "steps",
    "seconds",
    "loss",
    "rel_l2",
    "rollout_rel_l2",
]
KEYS += ["physics", "data_physics", "samples", "held_out", "labelled", "shape", "parameters", "step", "physics_ms"]
KEYS += ["step_ms", "data_step_ms", "physics_cost", "eager_step_ms", "fine_tuning", "versions"]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path_factory.getbasetemp() / "surrogate_runs"))


def command(pde: str, folder, *more: str) -> list[str]:
    model, options = COMMANDS[pde]
    tiny = [*options, *TINY, "--training.batch", "4", "--accelerator", "cpu", "--record.log_every", "4"]
    return ["--pde", pde, "--model", model, *tiny, "--logger", "csv", "--max-steps", "12", "--out", str(folder), *more]


@pytest.fixture
def start(tmp_path):
    def make(name: str = "run", *more: str, pde: str = "burgers") -> SurrogateRun:
        quiet = ("--record.figures", "false", "--record.speedup_steps", "0")
        run = make_run(cli.parse(command(pde, tmp_path / name, *quiet, *more)))
        assert isinstance(run, SurrogateRun)
        return run

    return make


def go(run: SurrogateRun) -> SurrogateRun:
    run.fit()
    run.finish()
    return run


def rows(run: SurrogateRun) -> dict[int, dict[str, float]]:
    """What must not depend on interruptions: everything but times, and when it was compared with solutions."""
    with (run.folder / "metrics.csv").open() as file:
        lines = list(csv.DictReader(file))
    return {int(x["step"]): {k: float(v) for k, v in x.items() if v and k.startswith(("loss/", "lr"))} for x in lines}


@pytest.mark.parametrize("pde", list(COMMANDS))
def test_every_command_leaves_a_complete_folder(pde, tmp_path, capsys):
    arguments = command(pde, tmp_path / "run", "--record.speedup_steps", "1", "--training.fine_tune_steps", "3")
    arguments += ["--record.validate_every", "6", "--record.figures", str(pde != "gray_scott").lower()]
    assert main(arguments) == 0
    assert "relative L2" in capsys.readouterr().out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert list(summary) == KEYS
    assert summary["pde"] == pde and summary["model"] == COMMANDS[pde][0] and summary["steps"] == 12
    assert (summary["samples"], summary["held_out"], summary["labelled"]) == (16, 4, 16)
    assert summary["step_ms"] > 0 and summary["physics_ms"] > 0 and summary["data_step_ms"] > 0
    assert summary["physics_cost"] == pytest.approx(summary["step_ms"] / summary["data_step_ms"])
    assert summary["data_physics"] < 0.55 and summary["fine_tuning"]["steps"] == 3
    fields = ["u", "v"] if pde == "gray_scott" else ["w"] if pde == "navier_stokes" else ["u"]
    assert list(summary["rel_l2"]) == fields and all(e > 0 for e in summary["rel_l2"].values())
    if pde != "gray_scott":
        names = {p.name for p in (tmp_path / "run" / "figures").iterdir()}
        assert {"loss.png", "rel_l2.png", *(f"{name}.png" for name in fields)} <= names
        assert pde == "darcy" or {"rollout.png", "spectra.png"} <= names
    if pde != "darcy":
        lines = (tmp_path / "run" / "rollout.csv").read_text().splitlines()
        assert lines[0] == ",".join(["time", *fields]) and len(lines) == 5
        assert float(lines[-1].split(",")[1]) == pytest.approx(summary["rollout_rel_l2"][fields[0]])
    kept = {p.name for p in (tmp_path / "run" / "checkpoints").iterdir()}
    assert kept == {"last.ckpt", "best.ckpt"} and (tmp_path / "run" / "config.yaml").is_file()


@pytest.mark.parametrize("stop", [5, 8])
def test_resume_continues_the_same_trajectory(start, stop):
    whole = go(start("whole"))
    go(start("part", "--max-steps", str(stop)))
    folder = str(whole.folder.parent / "part")
    again = go(make_run(cli.parse(["--resume", folder, "--max-steps", "12"])))
    expected = rows(whole)
    found = rows(again)
    assert {s: found[s] for s in (4, 8, 12)} == {s: expected[s] for s in (4, 8, 12)}
    ours, theirs = (torch.cat([p.flatten() for p in r.module.parameters()]) for r in (again, whole))
    assert torch.equal(ours, theirs)


def test_a_run_is_repeatable_from_its_configuration(start, tmp_path):
    first = go(start("first"))
    run = make_run(cli.parse(["--config", str(first.folder / "config.yaml"), "--out", str(tmp_path / "second")]))
    second = go(run)
    assert rows(second) == rows(first)


def test_physics_only_and_few_solutions(start):
    physics = go(start("physics", "--training.loss", "physics"))
    assert {"loss/total", "loss/burgers"} <= set(rows(physics)[12]) and "loss/data" not in rows(physics)[12]
    assert rows(physics)[12]["loss/total"] == pytest.approx(rows(physics)[12]["loss/burgers"], rel=1e-5)
    few = go(start("few", "--training.labelled", "0.25"))
    assert json.loads((few.folder / "summary.json").read_text())["labelled"] == 4
    row = rows(few)[12]
    assert row["loss/total"] == pytest.approx(row["loss/data"] + 0.1 * row["loss/burgers"], rel=1e-5)


def test_ones_own_file(start, tmp_path, capsys):
    made = start("made")
    made.data.prepare()
    fields = made.data.train.rows(torch.arange(16))["fields"]
    torch.save({"fields": fields}, tmp_path / "mine.pt")
    run = go(start("own", "--data", str(tmp_path / "mine.pt")))
    summary = json.loads((run.folder / "summary.json").read_text())
    assert (summary["samples"], summary["held_out"]) == (12, 4)
    (tmp_path / "mine.pt").write_bytes(b"junk")
    assert main(command("burgers", tmp_path / "bad", "--data", str(tmp_path / "mine.pt"))) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "mine.pt is damaged" in error and "Write it anew" in error
    assert not (tmp_path / "bad" / "metrics.csv").exists()


def test_names_choose_between_networks_and_surrogates():
    assert cli.parse(["--pde", "burgers"]).model == "mlp"
    assert cli.parse(["--pde", "burgers", "--model", "unet"]).training.samples == 256
    assert cli.parse(["--pde", "darcy"]).model == "fno"
    assert cli.parse(["--pde", "burgers", "--model", "fno"]).network["modes"] == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pde", "darcy", "--model", "fnoo"), "unknown model 'fnoo'. Did you mean 'fno'"),
        (("--pde", "darcy", "--model", "mlp"), "'darcy' has a task for surrogates"),
        (("--pde", "heat", "--model", "fno"), "no surrogate task for the PDE 'heat'"),
        (("--pde", "burgers", "--model", "unet", "--problem", "burgers"), "--problem: the task of a surrogate"),
        (("--pde", "darcy", "--options.point", "9"), "no option 'point'"),
        (("--pde", "darcy", "--training.smaples", "9"), "smaples"),
        (("--pde", "burgers", "--data", "x.pt"), "there is no option --data"),
    ],
)
def test_mistakes_on_the_command_line(arguments, message):
    with pytest.raises(ValueError, match=message):
        cli.parse(arguments)


def test_a_checkpoint_of_another_network_is_refused(start):
    first = go(start("first", "--max-steps", "4"))
    with pytest.raises(ValueError, match="another network or task"):
        make_run(cli.parse(["--resume", str(first.folder), "--network.width", "8"]))


def test_the_list_shows_tasks():
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as capture:
        console.print(listing())
    text = capture.get()
    assert "darcy" in text and "gray_scott" in text and "U-Net" in text and "centring" in text


@pytest.mark.parametrize("model", ["fno", "unet"])
def test_help_is_plain_text_and_shows_every_option(model):
    text = cli.make_parser("burgers", model=model).format_help()
    assert "$" not in text and "\\" not in text and "Source" not in text
    for option in ("--data", "--options.ahead", "--network.width", "--training.physics_weight"):
        assert option in text
    assert "Share of the training samples" in text


@pytest.mark.gpu
def test_a_run_on_a_card_measures_eager_physics(tmp_path):
    arguments = command("navier_stokes", tmp_path / "run", "--accelerator", "gpu", "--record.speedup_steps", "3")
    assert main([*arguments, "--backend", "triton"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["backend"] == "triton" and summary["eager_step_ms"] > 0
