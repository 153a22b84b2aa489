"""What a run says where there is no terminal."""

import io
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
from rich.console import Console

from pinnfuse.callbacks import RunProgress
from pinnfuse.models.recorded import RecordedModule


def module():
    found = create_autospec(RecordedModule, instance=True)
    found.last_loss, found.rel_l2, found.headline = 1.5e-3, {"u": 0.02, "velocity": 0.03}, ("velocity",)
    found.schedule = SimpleNamespace(phase=SimpleNamespace(optimizer="adam"))
    return found


@pytest.mark.parametrize(("terminal", "seconds", "lines"), [(False, 0.0, 2), (False, 60.0, 0), (True, 0.0, 0)])
def test_a_file_gets_a_line_after_a_validation_now_and_then(terminal, seconds, lines):
    text = io.StringIO()
    bar = RunProgress("cavity", 3300, Console(file=text, force_terminal=terminal, width=60), lines_every=seconds)
    for step in (500, 1000):
        bar.on_validation_end(SimpleNamespace(global_step=step), module())
    written = text.getvalue().splitlines()
    assert len(written) == lines
    if lines:
        assert written[0].startswith("cavity: step 500 of 3,300, adam, loss 1.50e-03, rel L2 velocity 3.0e-02")


def test_slow_steps_get_lines_without_a_validation(monkeypatch):
    text, clock = io.StringIO(), SimpleNamespace(now=0.0)
    monkeypatch.setattr("pinnfuse.callbacks.progress.time.monotonic", lambda: clock.now)
    bar = RunProgress("wake", 420, Console(file=text, force_terminal=False, width=60), lines_every=10.0)
    for step in range(1, 11):
        clock.now += 8.0
        bar.on_train_batch_end(SimpleNamespace(global_step=step), module(), None, None, step)
    assert [line.split(",")[0] for line in text.getvalue().splitlines()] == [
        "wake: step 4 of 420",
        "wake: step 8 of 420",
    ]
