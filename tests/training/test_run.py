import csv
import gc
import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pinnfuse.errors import BackendUnavailable
from pinnfuse.metrics import RelativeL2
from pinnfuse.models.pinn import Diverged, NonFiniteLoss
from pinnfuse.models.problem_loss import ProblemLoss
from pinnfuse.training import cli, threads
from pinnfuse.training.folder import read_checkpoint, run_folder
from pinnfuse.training.main import main
from pinnfuse.training.marching import make_run
from pinnfuse.training.run import Run

KEYS = ["pde", "problem", "backend", "precision", "device", "seed", "steps", "seconds", "loss", "rel_l2", "parameters"]
KEYS += ["step_ms", "autograd_step_ms", "speedup", "peak_memory_mb", "autograd_peak_memory_mb", "versions"]


def rows(run: Run) -> dict[int, dict[str, float]]:
    with (run.folder / "metrics.csv").open() as file:
        lines = list(csv.DictReader(file))
    return {int(line["step"]): {k: float(v) for k, v in line.items() if v and k != "step"} for line in lines}


def trajectory(run: Run) -> dict[int, dict[str, float]]:
    """What must not depend on interruptions: everything but times."""
    return {s: {k: v for k, v in r.items() if not k.startswith("perf/")} for s, r in rows(run).items()}


def go(run: Run) -> Run:
    run.fit()
    run.finish()
    return run


def best_step(run: Run) -> int:
    return read_checkpoint(str(run.folder / "checkpoints" / "best.ckpt"))["pinnfuse"]["step"]


def parameters(run: Run) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in run.module.parameters()])


def test_it_learns_and_leaves_a_complete_folder(start):
    run = go(start("run", "--record.speedup_steps", "2", "--record.figures", "true", "--record.validate_every", "20"))
    summary = json.loads((run.folder / "summary.json").read_text())
    assert list(summary) == KEYS
    assert summary["steps"] == 50 and summary["backend"] == "torch" and summary["precision"] == "float64"
    assert summary["rel_l2"]["u"] < 0.1 < rows(run)[20]["val/rel_l2/u"]
    assert summary["speedup"] == pytest.approx(summary["autograd_step_ms"] / summary["step_ms"])
    assert summary["peak_memory_mb"] > 0 and summary["autograd_peak_memory_mb"] > 0
    last = rows(run)[50]
    assert last["loss/total"] == summary["loss"]
    assert last["loss/total"] == pytest.approx(last["loss/heat"] + last["loss/initial"] + last["loss/walls"])
    assert last["val/rel_l2/u"] == summary["rel_l2"]["u"]
    assert {"perf/step_ms", "perf/points_per_s"} <= set(rows(run)[45])
    assert {"perf/speedup_vs_autograd", "perf/memory_vs_autograd", "perf/peak_memory_mb"} <= set(rows(run)[1])
    names = {str(p.relative_to(run.folder)) for p in run.folder.rglob("*") if p.is_file()}
    assert {f"figures/{n}" for n in ("loss.png", "rel_l2.png", "u.png", "u_cuts.png", "u.gif")} <= names
    assert {"checkpoints/last.ckpt", "checkpoints/best.ckpt", "config.yaml", "metrics.csv"} <= names
    assert not [n for n in names if n.endswith(".tmp")]


def test_the_loss_it_logs_is_the_loss_of_the_network_it_leaves(start):
    run = go(start())
    u = run.module
    batch = run.data.draw(0)
    x = batch["initial"].points
    initial = (u(x)[:, 0] - torch.sin(math.pi * x[:, 1])).square().mean()
    assert rows(run)[50]["loss/initial"] == pytest.approx(initial.item(), rel=1e-12)


def test_weights_enter_the_total_only(start):
    run = go(start("run", "--training.loss_weights", '{"walls": 7.0, "heat": 2.0}', "--max-steps", "5"))
    last = rows(run)[5]
    total = 2 * last["loss/heat"] + last["loss/initial"] + 7 * last["loss/walls"]
    assert last["loss/total"] == pytest.approx(total)


@pytest.mark.parametrize("stop", [17, 30, 41], ids=["adam", "between", "ssbroyden"])
@pytest.mark.parametrize("resample", [0, 4])
def test_resume_continues_the_same_trajectory_bit_for_bit(start, stop, resample):
    often = ("--training.resample_every", str(resample), "--record.validate_every", "10")
    whole = go(start("whole", *often))
    part = go(start("part", *often, "--max-steps", str(stop)))
    assert part.module.global_step == stop
    torch.manual_seed(123)  # nothing may depend on the state of the process
    resumed = go(Run(cli.parse(["--resume", str(part.folder), "--max-steps", "50"])))
    assert resumed.folder == part.folder
    assert torch.equal(parameters(resumed), parameters(whole))
    # the interrupted run has rows of its own where it stopped; everything else is the same
    assert {s: r for s, r in trajectory(resumed).items() if s in trajectory(whole)} == trajectory(whole)
    assert resumed.module.phase_starts == [(0, "adam"), (30, "ssbroyden")]
    assert resumed.stopwatch.seconds > part.stopwatch.seconds


def test_resume_from_a_checkpoint_inside_a_fit(start):
    """A killed run leaves what it wrote on the way, not what it writes at the end."""
    whole = start("whole", "--record.checkpoint_seconds", "0")
    kept = {}
    save = whole.checkpoints._save

    def spy(trainer, path):
        save(trainer, path)
        kept[trainer.global_step] = path.read_bytes()

    whole.checkpoints._save = spy
    go(whole)
    (whole.folder / "checkpoints" / "last.ckpt").write_bytes(kept[35])
    resumed = go(Run(cli.parse(["--resume", str(whole.folder)])))
    assert torch.equal(parameters(resumed), parameters(whole))


def test_seeds_and_folders_make_the_run(start):
    a, b, c = go(start("a")), go(start("b")), go(start("c", "--seed", "1"))
    assert torch.equal(parameters(a), parameters(b))
    assert not torch.equal(parameters(a), parameters(c))


def test_its_config_reruns_it(start, tmp_path):
    first = go(start("first", "--network.width", "9", "--training.interior", "32", "--seed", "5"))
    config = cli.load(first.folder / "config.yaml")
    assert config.out is None  # elsewhere
    again = go(Run(cli.parse(["--config", str(first.folder / "config.yaml"), "--out", str(tmp_path / "again")])))
    assert torch.equal(parameters(first), parameters(again))


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "a bit"])
def test_damaged_checkpoint(start, damage):
    run = go(start("run", "--max-steps", "3"))
    path = run.folder / "checkpoints" / "last.ckpt"
    whole = path.read_bytes()
    place = whole.index(next(run.module.net.parameters()).detach().numpy().tobytes())  # not among what pads records
    flipped = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    path.write_bytes({"empty": b"", "text": b"not a checkpoint", "cut": whole[:-500], "a bit": flipped}[damage])
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged, or not a checkpoint.*best\.ckpt"):
        Run(cli.parse(["--resume", str(run.folder)]))


def test_checkpoint_of_another_network(start):
    run = go(start("run", "--max-steps", "3"))
    with pytest.raises(ValueError, match="holds another network") as caught:
        Run(cli.parse(["--resume", str(run.folder), "--network.width", "13"]))
    assert "size mismatch" in str(caught.value)


def test_checkpoint_of_something_else(tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="not a checkpoint of a run"):
        read_checkpoint(str(tmp_path / "other.ckpt"))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nothing_goes_on_from_numbers_that_are_not_finite(start, value):
    run = go(start("run", "--max-steps", "3"))
    path = run.folder / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    name = next(n for n in checkpoint["state_dict"] if n.startswith("net."))
    checkpoint["state_dict"][name].view(-1)[0] = value
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=rf"{name} holds NaN or infinities.*best\.ckpt"):
        start("run", "--resume", str(run.folder))


def test_nan_stops_with_step_term_and_checkpoint(start):
    run = start("run", "--record.checkpoint_seconds", "0", "--training.resample_every", "1")
    draw = run.data.draw

    def poisoned(index, *where):
        batch = draw(index, *where)
        if index == 11:  # the 12th step
            batch["walls"].points[3, 1] = math.nan
        return batch

    run.data.draw = poisoned
    with pytest.raises(NonFiniteLoss) as caught:
        run.fit()
    error = caught.value
    assert error.step == 12 and error.terms == ["walls"]
    assert error.checkpoint == str(run.folder / "checkpoints" / "last.ckpt")
    message = str(error)
    assert "step 12" in message and "'walls'" in message and "last.ckpt" in message
    state = read_checkpoint(error.checkpoint)
    assert state["pinnfuse"]["step"] == 10
    assert all(p.isfinite().all() for p in state["state_dict"].values() if torch.is_tensor(p))


def test_a_bad_gradient_of_a_finite_loss_is_not_saved(start):
    run = start("run", "--record.checkpoint_seconds", "0")
    weight = next(run.module.net.parameters())
    weight.register_hook(lambda g: g * math.nan if run.module.global_step == 14 else g)
    with pytest.raises(NonFiniteLoss, match="step 15, in 'gradient'"):
        run.fit()
    assert read_checkpoint(str(run.folder / "checkpoints" / "last.ckpt"))["pinnfuse"]["step"] == 10


def test_divergence_is_named(start):
    run = start("run", "--training.phases", '[{"optimizer": "adam", "steps": 100, "lr": 300.0}]')
    with pytest.raises(Diverged, match=r"training diverged: at step \d+ the loss is .* Lower the learning rate"):
        run.fit()
    assert not run.checkpoints.written or read_checkpoint(run.checkpoints.last)["pinnfuse"]["step"] < 100


def test_divergence_is_measured_by_the_network_as_drawn(start):
    short = ("--training.phases", '[{"optimizer": "adam", "steps": 5, "lr": 1e-6}]')
    plain, fitted = start("plain", *short), start("fitted", *short, "--training.initialise", "true")
    plain.fit()
    fitted.fit()
    assert fitted.module.first_loss == pytest.approx(plain.module.first_loss)
    assert rows(fitted)[5]["loss/total"] < 0.7 * rows(plain)[5]["loss/total"]


@pytest.mark.parametrize("stop", [12, 27])
def test_gauss_newton_resumes_bit_for_bit(start, phases, stop):
    options = ("--training.phases", phases(adam=20, gauss_newton=15), "--training.resample_every", "4")
    whole = go(start("whole", *options))
    part = go(start("part", *options, "--max-steps", str(stop)))
    resumed = go(start("part", *options, "--resume", str(part.folder), "--max-steps", "35"))
    assert torch.equal(parameters(whole), parameters(resumed))
    assert whole.module.rel_l2 == resumed.module.rel_l2 and whole.module.rel_l2["u"] < 0.05


def test_bad_points_are_named_in_the_first_step(start):
    run = start()
    draw = run.data.draw

    def poisoned(*where):
        batch = draw(*where)
        batch["walls"].points[3, 1] = math.nan
        return batch

    run.data.draw = poisoned
    with pytest.raises(ValueError, match="finite|NaN"):
        run.fit()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_fit_after_the_step_and_everything_is_saved(start, number):
    before = signal.getsignal(number)
    whole = go(start("whole"))
    run = start("run")

    def interrupt(*unused):
        if run.module.global_step == 22:
            signal.raise_signal(number)

    run.module.loss.register_forward_pre_hook(interrupt)
    go(run)
    assert run.stop.received == number and run.module.global_step == 23
    assert signal.getsignal(number) == before  # neither ours nor Lightning's
    assert read_checkpoint(str(run.folder / "checkpoints" / "last.ckpt"))["pinnfuse"]["step"] == 23
    assert json.loads((run.folder / "summary.json").read_text())["steps"] == 23
    resumed = go(Run(cli.parse(["--resume", str(run.folder)])))
    assert torch.equal(parameters(resumed), parameters(whole))


def test_time_limit_stops_the_fit(start, phases):
    run = go(start("run", "--training.max_seconds", "0.2", "--training.phases", phases(adam=100_000)))
    assert 5 <= run.module.global_step < 100_000 and run.module.global_step % 5 == 0


def test_a_target_of_the_error_stops_the_fit_at_the_validation_that_reaches_it(start, phases):
    limits = ["--training.phases", phases(adam=100_000), "--training.max_seconds", "60"]
    run = go(start("run", *limits, "--record.validate_every", "10", "--training.target_error", "0.2"))
    errors = [row["val/rel_l2/u"] for row in rows(run).values() if "val/rel_l2/u" in row]
    assert errors[-1] <= 0.2 < min(errors[:-1]) and best_step(run) == run.module.global_step < 100_000
    assert max(rows(run)) == run.module.global_step  # nothing more was trained


def test_an_early_end_of_the_last_phase_ends_the_fit(start):
    stiff = '[{"optimizer": "lbfgs", "steps": 10000, "options": {"tolerance_grad": 100.0}}]'
    run = go(start("run", "--training.phases", stiff))
    assert run.module.global_step < 5  # converged by that tolerance
    done = run.module.global_step
    assert run.ended() == f"lbfgs found no further decrease after {done} of its 10,000 steps"
    assert go(start("other", "--max-steps", "3")).ended() == ""


def test_no_logger_writes_no_metrics(start):
    run = go(start("run", "--logger", "none", "--max-steps", "5"))
    assert not (run.folder / "metrics.csv").exists() and not (run.folder / "wandb").exists()
    assert run.history.series()["loss/total"][0] == [1, 5]


def test_float32(start):
    run = go(start("run", "--precision", "float32", "--max-steps", "35"))
    assert {p.dtype for p in run.module.parameters()} == {torch.float32}
    assert json.loads((run.folder / "summary.json").read_text())["precision"] == "float32"
    assert rows(run)[35]["loss/total"] < rows(run)[1]["loss/total"]


def test_best_checkpoint_is_the_best_validation(start):
    run = go(start("run", "--record.validate_every", "10"))
    errors = {s: r["val/rel_l2/u"] for s, r in rows(run).items() if "val/rel_l2/u" in r}
    assert best_step(run) == min(errors, key=errors.__getitem__)


@pytest.mark.parametrize(("steps", "validations"), [(1, [1]), (7, [7]), (33, [10, 20, 30, 33])])
def test_a_short_run_ends_with_a_comparison_and_a_best_checkpoint(start, steps, validations):
    run = go(start("run", "--record.validate_every", "10", "--max-steps", str(steps)))
    errors = {s: r["val/rel_l2/u"] for s, r in rows(run).items() if "val/rel_l2/u" in r}
    assert list(errors) == validations
    assert best_step(run) == min(errors, key=errors.__getitem__)
    again = go(start("again", "--resume", str(run.folder / "checkpoints" / "best.ckpt"), "--max-steps", "40"))
    assert again.module.global_step == 40 and (again.folder / "checkpoints" / "best.ckpt").is_file()


def test_without_errors_the_best_checkpoint_is_the_last(start, monkeypatch):
    monkeypatch.setattr(RelativeL2, "compute", lambda self: torch.tensor(math.nan))
    assert best_step(go(start("run", "--max-steps", "7"))) == 7


def test_the_baseline_is_measured_on_copies(start):
    plain, measured = go(start("plain")), go(start("measured", "--record.speedup_steps", "2"))
    assert torch.equal(parameters(plain), parameters(measured))


def test_default_folder_names_pde_and_problem(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PINNFUSE_RUN_FOLDER", raising=False)
    folder = Run(cli.parse(["--pde", "toy", "--logger", "none", "--accelerator", "cpu"])).folder
    assert folder.parent == Path("runs") and folder.name.startswith("toy-rod-2")
    monkeypatch.setenv("LOCAL_RANK", "1")  # a process that the first one started
    assert run_folder(cli.parse(["--pde", "toy"])) == folder


@pytest.mark.gpu
def test_the_summary_names_the_card_that_trained(start):
    run = start("run", "--accelerator", "gpu", "--backend", "auto")
    run.fit()
    summary = run.finish()
    assert summary.device == torch.cuda.get_device_name()
    assert summary.backend == "triton"  # a dense stack on a card


def test_a_run_is_not_overwritten(start):
    first = go(start("run", "--max-steps", "3"))
    before = {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"holds a run already.*--resume"):
        start("run", "--max-steps", "5")
    assert before == {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run here")
@pytest.mark.parametrize("options", [(), ("--training.windows", "2")], ids=["one window", "two"])
def test_a_run_that_was_refused_leaves_its_folder_to_the_next(options, tmp_path):
    def command(backend):
        arguments = ["--pde", "toy", "--logger", "none", "--max-steps", "2", "--backend", backend, *options]
        return make_run(cli.parse([*arguments, "--out", str(tmp_path / "run")]))

    refused = command("triton")
    with pytest.raises(BackendUnavailable):
        refused.fit()
    assert not (tmp_path / "run" / "config.yaml").exists()
    del refused  # which holds the lock
    gc.collect()
    command("torch").fit()
    assert (tmp_path / "run" / "config.yaml").exists()


def test_a_folder_belongs_to_one_process(start, tmp_path):
    (tmp_path / "run").mkdir()
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "run" / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match="another process is training in"):
            start("run")
        other.communicate("\n")
    start("run")


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_anew(start):
    whole, part = go(start("whole")), start("part", "--max-steps", "12")
    part.fit()
    for path in (part.folder / "checkpoints").glob("*.ckpt"):
        path.unlink()
    torch.manual_seed(123)
    resumed = go(Run(cli.parse(["--resume", str(part.folder), "--max-steps", "50"])))
    assert torch.equal(parameters(resumed), parameters(whole))
    assert trajectory(resumed) == trajectory(whole)


def test_a_full_disk_leaves_whole_files(start, monkeypatch):
    run = go(start("run", "--max-steps", "3"))
    before = (run.folder / "checkpoints" / "last.ckpt").read_bytes()

    def full(path):
        path.write_bytes(b"half")
        raise RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed")

    monkeypatch.setattr(run.trainer, "save_checkpoint", full)
    with pytest.raises(OSError, match=r"cannot write the checkpoint .*last\.ckpt"):
        run.checkpoints._save(run.trainer, run.checkpoints.last)
    assert (run.folder / "checkpoints" / "last.ckpt").read_bytes() == before
    assert not list(run.folder.rglob("*.tmp"))


@pytest.mark.parametrize("damage", ["cut", "garbage", "binary"])
def test_resume_with_a_damaged_record(start, damage):
    whole = go(start("whole"))
    part = go(start("part", "--max-steps", "20"))
    path = part.folder / "metrics.csv"
    text = path.read_bytes()
    path.write_bytes({"cut": text[:-7], "garbage": b"x,y\n1,2\n", "binary": b"\xff\x00" + text}[damage])
    (part.folder / "summary.json").write_text("{")
    resumed = go(Run(cli.parse(["--resume", str(part.folder), "--max-steps", "50"])))
    assert torch.equal(parameters(resumed), parameters(whole))
    assert max(rows(resumed)) == 50 and 0 not in rows(resumed).get(2, {})


def test_an_early_look_and_then_the_interval(start):
    often = ("--record.validate_every", "20", "--record.validate_first", "7")
    looks = [s for s, row in rows(go(start("whole", *often))).items() if "val/rel_l2/u" in row]
    assert looks == [7, 20, 40, 50]
    part = go(start("part", *often, "--max-steps", "15"))
    resumed = go(Run(cli.parse(["--resume", str(part.folder), "--max-steps", "50"])))
    assert [s for s, row in rows(resumed).items() if "val/rel_l2/u" in row] == [7, 15, 20, 40, 50]


def test_speed_is_compared_in_turns_and_again_at_the_end(start, monkeypatch):
    def fake(step, device):
        loss = next(c.cell_contents for c in step.__closure__ if isinstance(c.cell_contents, ProblemLoss))
        kinds.append(loss.interior.backend)
        return float(len(kinds))

    kinds = []
    monkeypatch.setattr("pinnfuse.callbacks.speedup.milliseconds", fake)
    run = go(start("run", "--record.speedup_steps", "2", "--record.speedup_at_end", "true"))
    assert kinds == ["torch", "autograd"] * 4
    assert run.speedup.ours.step_ms == 4.0 and run.speedup.baseline.step_ms == 5.0  # medians of 1 3 5 7 and 2 4 6 8
    assert {1, 50} == {s for s, row in rows(run).items() if "perf/speedup_vs_autograd" in row}


def test_what_takes_time_before_the_first_step_is_said(start):
    said = []
    run = start("run", "--max-steps", "2")
    run.prepare(said.append)
    assert len(said) == 1 and "reference" in said[0]
    assert run.config.threads == torch.get_num_threads()  # OMP_NUM_THREADS says it
    go(run)
    assert cli.load(run.folder / "config.yaml").threads == torch.get_num_threads()


def test_a_trial_of_threads_is_said_where_nobody_chose_their_number(start, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    said = []
    with threads.restored():
        start("run", "--max-steps", "2").prepare(said.append)
    assert ["reference" in said[0], "threads" in said[1]] == [True, True]


def test_a_resumed_run_says_what_it_changes_and_refuses_what_does_not_fit(start, capsys, tmp_path):
    run = go(start("run", "--max-steps", "31"))
    folder = str(run.folder)
    kept = (run.folder / "config.yaml").read_text()
    assert cli.changed(cli.parse(["--resume", folder, "--max-steps", "40"])) == []
    resumed = ["--resume", folder, "--training.interior", "80", "--options.k", "0.2"]
    assert cli.changed(cli.parse(resumed)) == ["options.k 0.1 -> 0.2", "training.interior 64 -> 80"]
    with pytest.raises(ValueError, match="has seed 0, which its points go on from; got 3"):
        cli.changed(cli.parse(["--resume", folder, "--seed", "3"]))
    phases = '[{"optimizer": "adam", "steps": 30}, {"optimizer": "lbfgs", "steps": 20}]'
    assert main(["--resume", folder, "--training.phases", phases]) == 1
    out, err = capsys.readouterr()
    assert "training.phases.1.optimizer ssbroyden -> lbfgs" in out and "got that of 'ssbroyden'" in err
    assert (run.folder / "config.yaml").read_text() == kept
    with pytest.raises(ValueError, match="has training.windows 1; got 2"):
        cli.changed(cli.parse(["--resume", folder, "--training.windows", "2"]))
    with pytest.raises(ValueError, match="nothing is there"):
        cli.parse(["--resume", str(tmp_path / "nowhere")])


def test_a_checkpoint_of_another_problem(start):
    run = go(start("run", "--max-steps", "3"))
    path = run.folder / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    assert checkpoint["pinnfuse"]["subject"] == "toy, rod"
    checkpoint["pinnfuse"]["subject"] = "heat, heat"
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match="is of 'heat, heat', but these options describe 'toy, rod'"):
        start("run", "--resume", str(run.folder))


def test_an_interruption_after_the_fit_says_how_to_go_on(start, capsys, monkeypatch, tmp_path):
    def interrupted(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "finish", interrupted)
    quiet = ["--logger", "none", "--record.speedup_steps", "0", "--max-steps", "2", "--accelerator", "cpu"]
    assert main(["--pde", "toy", *quiet, "--out", str(tmp_path / "run")]) == 130
    assert f"interrupted; go on with: python train.py --resume {tmp_path / 'run'}" in capsys.readouterr().out


def test_trained_parameters_have_a_history(tmp_path):
    """A viscosity from noisy values: in every row, the last one in the summary, the same after an interruption."""
    phases = '[{"optimizer": "adam", "steps": 20}, {"optimizer": "gauss_newton", "steps": 5}]'
    small = ["--training.phases", phases, "--training.interior", "40", "--network.width", "8", "--network.depth", "2"]
    quiet = ["--logger", "csv", "--accelerator", "cpu", "--record.speedup_steps", "0", "--record.figures", "false"]
    options = ["--pde", "burgers", "--problem", "burgers_inverse", *small, *quiet, "--record.log_every", "5"]
    whole = go(Run(cli.parse([*options, "--out", str(tmp_path / "whole")])))
    go(Run(cli.parse([*options, "--out", str(tmp_path / "part"), "--max-steps", "12"])))
    part = go(Run(cli.parse(["--resume", str(tmp_path / "part"), "--max-steps", "25"])))
    history = {step: row["parameter/nu"] for step, row in rows(whole).items()}
    assert list(history) == [1, 5, 10, 15, 20, 25] and len(set(history.values())) > 3
    assert {step: row["parameter/nu"] for step, row in rows(part).items() if step in history} == history
    assert whole.summary().parameters["nu"]["found"] == pytest.approx(history[25])
