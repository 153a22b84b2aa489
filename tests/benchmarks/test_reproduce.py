"""`benchmarks/reproduce.py`: every command of its plan is accepted; stages run in order and company as they should."""

import dataclasses
import importlib.util
import json
import shlex
import sys
import time

import pytest

from pinnfuse.cli.main import _parser
from pinnfuse.training import cli


@pytest.fixture(scope="module")
def reproduce(root):
    spec = importlib.util.spec_from_file_location("reproduce", root / "benchmarks" / "reproduce.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reproduce"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_every_command_is_accepted(reproduce, root, tmp_path):
    stages = reproduce.stages(root / "benchmarks" / "reproduce.yaml", {"out": str(tmp_path), "files": str(tmp_path)})
    assert len({stage.name for stage in stages}) == len(stages) > 30
    for stage in stages:
        program, *arguments = shlex.split(stage.run.partition("python -m ")[2] or stage.run)
        if program == "pinnfuse":
            _parser().parse_args(arguments)
        elif arguments[0] == "train.py":
            options = [f"{root}/{word}" if word.startswith("configs/") else word for word in arguments[1:]]
            if "--options.file" in options:  # which is read
                place = options.index("--options.file")
                del options[place : place + 2]
            config = cli.parse(options)
            assert config.out == str(tmp_path / "runs" / stage.name)
        elif arguments[0].startswith("benchmarks/"):
            assert (root / arguments[0]).is_file()
        else:
            assert program == "pytest"


def plan(reproduce, out, *given, cards=("0",), seconds=60.0, jobs=6):
    """Carry out stages of (name, Python text, kind, other fields); what `stages.json` says of them."""
    todo = []
    for name, text, kind, more in given:
        fields = {"seconds": 20.0} | more
        todo.append(reproduce.Stage(name, shlex.join(["python", "-c", text]), kind, **fields))
    reproduce.carry_out(reproduce.Plan(todo, cards, time.monotonic() + seconds, jobs), out)
    return {stage["name"]: stage for stage in json.loads((out / "stages.json").read_text())}


MARK = (
    "import time, sys; print('begins', time.monotonic(), flush=True); time.sleep({}); print('ends', time.monotonic())"
)


def interval(out, name):
    return [float(line.split()[1]) for line in (out / "logs" / f"{name}.log").read_text().splitlines()]


def test_timings_run_alone_and_after_everything_else(reproduce, tmp_path):
    found = plan(
        reproduce,
        tmp_path,
        ("clock", MARK.format(0.5), "timing", {"seconds": 5.0}),
        ("a", MARK.format(3), "check", {}),
        ("b", MARK.format(3), "training", {}),
        ("again", MARK.format(0.5), "timing", {"seconds": 5.0}),
    )
    assert [stage["state"] for stage in found.values()] == ["passed"] * 4
    (a, b), clock, again = (
        (interval(tmp_path, n) for n in "ab"),
        interval(tmp_path, "clock"),
        interval(tmp_path, "again"),
    )
    assert max(a[0], b[0]) < min(a[1], b[1]) and found["a"]["beside"] == ["b"] and found["b"]["beside"] == ["a"]
    assert max(a[1], b[1]) < clock[0] and clock[1] < again[0] and found["clock"]["beside"] == []


def test_a_training_with_its_own_card_does_not_hold_timings_up(reproduce, tmp_path):
    found = plan(
        reproduce,
        tmp_path,
        ("long", MARK.format(6), "training", {"own": True}),
        ("clock", MARK.format(0.5), "timing", {}),
        ("both", MARK.format(0.5), "timing", {"cards": 2}),
        cards=("4", "7"),
    )
    assert interval(tmp_path, "clock")[1] < interval(tmp_path, "long")[1] < interval(tmp_path, "both")[0]
    assert found["long"]["on"] == ["7"] and found["clock"]["on"] == ["4"] and found["both"]["on"] == ["4", "7"]


def test_what_is_late_is_ended_and_time_for_timings_is_kept(reproduce, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "GRACE", 1.0)
    found = plan(
        reproduce,
        tmp_path,
        ("endless", "import time; time.sleep(1000)", "check", {"seconds": 12.0}),
        ("stubborn", "import signal, time; signal.signal(15, 1); time.sleep(1000)", "check", {"seconds": 2.0}),
        ("wrong", "raise SystemExit(3)", "check", {}),
        ("clock", MARK.format(0.1), "timing", {"seconds": 5.0}),
        seconds=14.0,
    )
    states = {name: stage["state"] for name, stage in found.items()}
    assert states == {"endless": "cut off", "stubborn": "cut off", "wrong": "failed", "clock": "passed"}
    assert found["endless"]["took"] < 11.5 and found["wrong"]["status"] == 3 and found["stubborn"]["status"] == -9


def test_no_time_is_kept_for_what_cannot_run(reproduce, root):
    todo = reproduce.stages(root / "benchmarks" / "reproduce.yaml", {"out": "out", "files": "files"})
    for cards, kept in ((("0",), 490.0), (("0", "1"), 810.0)):
        plan = reproduce.Plan([dataclasses.replace(stage) for stage in todo], cards, 1700.0, 6)
        checks = [stage for stage in plan.todo if stage.kind == "check"]
        assert {plan.deadline(stage) for stage in checks} == {1700.0 - kept - reproduce.GRACE}
        torus = next(stage for stage in plan.todo if stage.name == "torus")
        assert plan.deadline(torus) >= torus.seconds


def test_what_cannot_run_says_why(reproduce, tmp_path):
    found = plan(
        reproduce,
        tmp_path,
        ("two", MARK.format(0), "timing", {"cards": 2}),
        ("long", MARK.format(0), "check", {"seconds": 1000.0}),
        ("late", MARK.format(0), "check", {"after": "early"}),
        ("early", MARK.format(1), "check", {}),
    )
    assert found["two"]["state"] == "needs 2 cards" and found["long"]["state"] == "no time left"
    assert interval(tmp_path, "early")[1] < interval(tmp_path, "late")[0]


def test_a_timing_is_compiled_before_by_the_same_command(reproduce, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("clock: {kind: timing, seconds: 5, ready: 20, run: 'python -V {out} {patience}'}")
    check, clock = reproduce.stages(path, {"out": "results", "files": ""})
    assert (check.name, check.kind, check.seconds, check.run) == (
        "clock_ready",
        "check",
        20,
        "python -V results/ready 12",
    )
    assert (clock.name, clock.kind, clock.seconds, clock.run) == ("clock", "timing", 5, "python -V results 3")


def test_a_kind_that_is_none(reproduce):
    with pytest.raises(ValueError, match="check, training or timing; got 'test'"):
        reproduce.Stage("a", "python -V", "test", 1.0)


def test_trained_runs_become_files_of_results(reproduce, root, tmp_path):
    run = tmp_path / "runs" / "heat"
    options = ["--pde", "heat", "--network.width", "4", "--training.interior", "50", "--accelerator", "cpu"]
    options += [
        "--logger",
        "csv",
        "--record.figures",
        "false",
        "--record.speedup_steps",
        "0",
        "--record.log_every",
        "2",
    ]
    options += ["--record.validate_every", "2", "--max_steps", "8", "--threads", "1", "--out", str(run)]
    stage = reproduce.Stage("heat", shlex.join(["python", "train.py", *options]), "training", 200.0)
    reproduce.carry_out(reproduce.Plan([stage], ["0"], time.monotonic() + 300, 1), tmp_path)
    assert stage.state == "passed", (tmp_path / "logs" / "heat.log").read_text()
    stage.beside = ["a", "b", "a"]
    reproduce.collect(tmp_path, "card", [stage])
    found = json.loads((tmp_path / "card" / "training" / "recipes" / "heat.json").read_text())
    assert found["card"] == "shared with up to 2 other processes"
    summary = json.loads((run / "summary.json").read_text())
    assert found["curve"][-1][1] == 8 and found["curve"][-1][3]["u"] == pytest.approx(summary["rel_l2"]["u"])
    assert [row[1] for row in found["curve"]] == [2, 4, 6, 8]
