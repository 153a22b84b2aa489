"""Signs of life: who falls silent is missed, who ends in good order is not."""

import logging
import os
import threading
from datetime import timedelta

import pytest
from torch.distributed import HashStore, TCPStore

from pinnfuse.callbacks import PeerWatch
from pinnfuse.callbacks.watch import _LAUNCHER, Heartbeat, say_lost


class Lost:
    """What was said, and a wait for it."""

    def __init__(self):
        self.messages, self.said = [], threading.Event()

    def __call__(self, message):
        self.messages.append(message)
        self.said.set()


def beats(stores, patience=0.5):
    found = [Lost() for _ in stores]
    pulses = [Heartbeat(s, r, len(stores), found[r], 0.05, patience) for r, s in enumerate(stores)]
    for pulse in pulses:
        pulse.start()
    return pulses, found


@pytest.mark.parametrize("silent", [0, 2])
def test_a_silent_process_is_named_to_all(silent):
    pulses, found = beats([HashStore()] * 3)
    assert not found[1].said.wait(0.8)
    pulses[silent]._stop_now.set()  # without a word
    for rank in {0, 1, 2} - {silent}:
        assert found[rank].said.wait(10)
        assert found[rank].messages == [f"process {silent} of 3 (ranks from 0) is gone or has not answered for 0 s"]
    for pulse in pulses:
        pulse.stop()


def test_who_is_done_is_not_missed():
    pulses, found = beats([HashStore()] * 2, patience=0.2)
    pulses[0].stop()
    assert not found[1].said.wait(0.8)
    pulses[1].stop()
    assert not found[0].messages


def test_the_process_with_the_store_is_missed():
    wait = timedelta(seconds=2)
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=wait)
    client = TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False, timeout=wait)
    pulses, found = beats([server, client], patience=5)
    pulses[0]._stop_now.set()
    pulses[0].join()
    pulses.clear()
    del server
    assert found[1].said.wait(10)
    assert "process 0 of 2" in found[1].messages[0]


def test_the_message_says_how_to_go_on_and_the_process_ends(monkeypatch, capfd):
    status = []
    monkeypatch.setattr(os, "_exit", status.append)
    PeerWatch("go on with: python train.py --resume runs/x")._lost("process 1 of 2 is gone")
    assert status == [1]
    assert capfd.readouterr().err == (
        "error: the run lost a process: process 1 of 2 is gone. Go on with: python train.py --resume runs/x\n"
    )
    say_lost("it", "")
    assert capfd.readouterr().err == "error: the run lost a process: it.\n"


def test_what_the_launcher_says_is_passed_on(capfd):
    class Trainer:
        world_size, is_global_zero = 2, True

    logger = logging.getLogger(_LAUNCHER)
    before = logger.handlers, logger.propagate, logger.level
    try:
        PeerWatch("resume").setup(Trainer(), None, "fit")
        logger.info("[rank: 1] Child process with PID 7 terminated with code -9. Forcefully terminating all others")
        logger.info("something else")
    finally:
        logger.handlers, logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
    assert capfd.readouterr().err == (
        "error: the run lost a process: [rank: 1] Child process with PID 7 terminated with code -9. Resume\n"
    )
