"""What a card has to show, in one go: checks, trainings, then timings with nothing beside them.

    python benchmarks/reproduce.py OUT [--seconds 1700] [--files FOLDER] [--only a,b] [--skip c] [--show true]

Stages are those of `benchmarks/reproduce.yaml`. Checks and trainings run side by side, timings alone on their cards,
and what timings may take is kept free at the end: what is not over by then is ended by SIGTERM. After each stage
`OUT/stages.json` has its status, seconds, card and neighbours, `OUT/logs/` what it said. Results lie where each command
puts them, `OUT/<card>/` mostly; trained runs become `OUT/<card>/training/recipes/*.json`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml
from jsonargparse import auto_cli

ROOT = Path(__file__).resolve().parent.parent
GRACE = 15.0
"""Seconds between SIGTERM and SIGKILL."""


@dataclass
class Stage:
    """One command; fields as in `reproduce.yaml`, `state` and the rest as it went."""

    name: str
    run: str
    kind: str
    seconds: float
    cards: int = 1
    own: bool = False
    file: str = ""
    after: str = ""
    state: str = "waiting"
    status: int | None = None
    took: float = 0.0
    on: tuple[str, ...] = ()
    beside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.kind not in ("check", "training", "timing"):
            raise ValueError(f"stage {self.name}: `kind` must be check, training or timing; got {self.kind!r}.")

    @property
    def alone(self) -> bool:
        return self.kind == "timing"

    @property
    def over(self) -> bool:
        return self.state not in ("waiting", "running")


def stages(path: Path, values: dict[str, str]) -> list[Stage]:
    """Of the file, all cases of `each` written out; `values` are those of {out} and {files}.

    A timing with `ready` has a check of the same command before it, so that nothing is compiled while it is timed.
    """
    found = []
    for key, given in yaml.safe_load(path.read_text()).items():
        run, name, cases = given.pop("run"), given.pop("name", key), given.pop("each", [{}])
        ready = given.pop("ready", 0.0)
        if isinstance(cases, dict):  # every combination
            cases = [dict(zip(cases, values, strict=True)) for values in itertools.product(*cases.values())]
        for case in cases:
            full = name.format(**case)
            if ready:
                apart = values | {"out": f"{values['out']}/ready"}
                found.append(Stage(f"{full}_ready", _filled(run, ready, apart, case, full), "check", ready))
            found.append(Stage(full, _filled(run, given["seconds"], values, case, full), **given))
    return found


def _filled(run: str, seconds: float, values: dict[str, str], case: dict[str, object], name: str) -> str:
    return " ".join(run.format(**values, **case, name=name, patience=f"{0.6 * seconds:g}").split())


class Job:
    """A stage that runs, in a process group of its own."""

    def __init__(self, stage: Stage, out: Path, cards: Sequence[str], beside: Sequence[str]):
        self.stage, self.start, self.asked = stage, time.monotonic(), 0.0
        stage.state, stage.on, stage.beside = "running", tuple(cards), list(beside)
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        environment |= {"CUDA_VISIBLE_DEVICES": ",".join(cards), "WANDB_MODE": "offline"}
        environment.setdefault("OMP_NUM_THREADS", "2")
        (out / "logs").mkdir(exist_ok=True)
        with (out / "logs" / f"{stage.name}.log").open("w") as log:
            self.process = subprocess.Popen(
                words(stage.run),
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def look(self, deadline: float) -> bool:
        """End it where it is late; whether it is over."""
        now, stage = time.monotonic(), self.stage
        stage.status = self.process.poll()
        stage.took = round(now - self.start, 1)
        if stage.status is not None:
            self._send(signal.SIGKILL)  # what it left running
            stage.state = "cut off" if self.asked else "passed" if stage.status == 0 else "failed"
            return True
        if not self.asked and now > min(deadline, self.start + stage.seconds):
            self.asked = now
            self._send(signal.SIGTERM)
        elif self.asked and now > self.asked + GRACE:
            self._send(signal.SIGKILL)
        return False

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def words(run: str) -> list[str]:
    """The command, by this interpreter."""
    found = shlex.split(run)
    if found[0] == "python":
        return [sys.executable, *found[1:]]
    if found[0] == "pinnfuse":
        return [sys.executable, "-m", *found]
    return [sys.executable if word == "python" else word for word in found]


class Plan:
    """Who runs when and where.

    Args:
        cards: those that may be used, as CUDA_VISIBLE_DEVICES names them.
        end: time by which all is over, by the monotonic clock.
        jobs: most stages at a time.
    """

    def __init__(self, todo: Sequence[Stage], cards: Sequence[str], end: float, jobs: int):
        self.todo, self.cards, self.end, self.jobs = list(todo), list(cards), end, jobs
        for stage in self.todo:
            if len(self.cards) < stage.cards:  # no time is kept for them
                stage.state = f"needs {stage.cards} cards"

    def cards_of(self, stage: Stage) -> list[str]:
        """Trainings that want a card of their own get the last; timings on all begin with the first."""
        return self.cards[-1:] if stage.own else self.cards[: stage.cards]

    def deadline(self, stage: Stage) -> float:
        """Of a check or training: when timings that wait for its card must begin. Those get all that is left."""
        if stage.alone:
            return self.end
        card = self.cards_of(stage)[0]
        waiting = [s for s in self.todo if s.alone and s.state == "waiting" and card in self.cards_of(s)]
        return self.end - sum(s.seconds for s in waiting) - GRACE

    def next(self, running: Sequence[Stage], now: float) -> Stage | None:
        """The stage that may begin now; those that cannot any more are marked."""
        if len(running) >= self.jobs:
            return None
        for stage in sorted(self.todo, key=lambda s: s.alone):
            if stage.state == "waiting" and self._may(stage, running, now):
                return stage
        return None

    def _may(self, stage: Stage, running: Sequence[Stage], now: float) -> bool:
        mine = set(self.cards_of(stage))
        here = [s for s in running if mine & set(self.cards_of(s))]
        if now + 0.3 * stage.seconds > self.deadline(stage):
            stage.state = "no time left"
            return False
        if any(s.name == stage.after and not s.over for s in self.todo):
            return False
        if not stage.alone:
            return not any(s.alone for s in here)
        return not here and not any(
            s.state == "waiting" and not s.alone and mine & set(self.cards_of(s)) for s in self.todo
        )


def carry_out(plan: Plan, out: Path) -> None:
    """Run all; `stages.json` says how far it is."""
    jobs: list[Job] = []
    while True:
        changed = [job for job in jobs if job.look(plan.deadline(job.stage))]
        jobs = [job for job in jobs if job not in changed]
        for job in changed:
            print(f"{job.stage.name}: {job.stage.state} after {job.stage.took:.0f} s", flush=True)
        while stage := plan.next([job.stage for job in jobs], time.monotonic()):
            beside = [job.stage.name for job in jobs]
            for job in jobs:
                job.stage.beside.append(stage.name)
            print(f"{stage.name}: begins, beside {len(beside)} others", flush=True)
            jobs.append(Job(stage, out, plan.cards_of(stage), beside))
            changed.append(jobs[-1])
        if changed:
            (out / "stages.json").write_text(json.dumps([asdict(s) for s in plan.todo], indent=1) + "\n")
        if not jobs and all(stage.state != "waiting" for stage in plan.todo):
            return
        time.sleep(0.3)


def collect(out: Path, card: str, todo: Sequence[Stage]) -> None:
    """Trained runs that ended as files of results."""
    neighbours = {stage.name: len(set(stage.beside)) for stage in todo}
    target = out / card / "training" / "recipes"
    target.mkdir(parents=True, exist_ok=True)
    for run in sorted(path.parent for path in out.glob("runs/*/summary.json")):
        done = subprocess.run(
            [sys.executable, ROOT / "benchmarks" / "recipe_result.py", target, run], capture_output=True, text=True
        )
        path = target / f"{run.name}.json"
        if done.returncode or not path.is_file():
            print(f"{run.name}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        beside = neighbours.get(run.name, 0)
        shared = f"shared with up to {beside} other processes" if beside else "alone"
        found = json.loads(path.read_text())
        path.write_text(path.read_text().replace("{\n", f'{{\n  "card": {json.dumps(shared)},\n', 1))
        print(f"{run.name}: {found['rel_l2']}, {found['steps']} steps, {found['seconds']:.1f} s", flush=True)


def chosen(todo: Sequence[Stage], only: str, skip: str) -> Iterator[Stage]:
    """By names or their beginnings."""
    for stage in todo:
        names = [name for name in only.split(",") if name]
        left_out = any(stage.name.startswith(name) for name in skip.split(",") if name)
        if (not names or any(stage.name.startswith(name) for name in names)) and not left_out:
            yield stage


def main(
    out: str,
    seconds: float = 1700.0,
    files: str = "../shared/reference",
    only: str = "",
    skip: str = "",
    jobs: int = 6,
    cards: int | None = None,
    plan: str = str(ROOT / "benchmarks" / "reproduce.yaml"),
    show: bool = False,
) -> None:
    """Run the stages.

    Args:
        out: folder of results.
        seconds: time for everything.
        files: folder of published reference files; stages that need one that is not there are skipped.
        only: stages whose names begin so, comma-separated; all.
        skip: not those.
        jobs: most stages at a time.
        cards: how many to use; all that there are.
        plan: the stages.
        show: the commands, and run nothing.
    """
    import torch

    from pinnfuse.bench import machine

    start = time.monotonic()
    folder = Path(out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    todo = [*chosen(stages(Path(plan), {"out": str(folder), "files": str(Path(files).resolve())}), only, skip)]
    for stage in todo:
        if stage.file and not (Path(files) / stage.file).is_file():
            stage.state = f"no file {stage.file}"
        if shutil.which(words(stage.run)[0]) is None:
            stage.state = f"no {words(stage.run)[0]}"
    if show:
        for stage in todo:
            print(f"{stage.kind:8} {stage.seconds:5.0f} s  {stage.name:32} {stage.run}")
        return
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    visible = named.split(",") if named else [*map(str, range(max(1, torch.cuda.device_count())))]
    carry_out(Plan(todo, visible[:cards], start + seconds, jobs), folder)
    card = machine.name(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    collect(folder, card, todo)
    for stage in todo:
        print(f"{stage.name:32} {stage.state:14} {stage.took:6.0f} s", flush=True)


if __name__ == "__main__":
    auto_cli(main)
