"""Samples in shards: the same whatever the shards are, whole after a kill, checked when read."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from pinnfuse import tasks
from pinnfuse.datasets import Samples, folder_of, generated
from pinnfuse.datasets.shards import read_shard
from pinnfuse.tasks import MapTask


@pytest.fixture
def task() -> MapTask:
    """Darcy in blocks of 4; `solved` counts them."""
    found = tasks.get("darcy", points=8)
    solved: list[int] = []

    def solve(k):
        solved.append(len(k))
        return found.solve(k)

    counted = type(found)(**{**vars(found), "block": 4, "solve": solve})
    object.__setattr__(counted, "solved", solved)
    return counted


def same(a: Samples, b: Samples) -> bool:
    rows = torch.arange(len(a))
    return len(a) == len(b) and all(
        torch.equal(x, y) for x, y in zip(a.rows(rows).values(), b.rows(rows).values(), strict=True)
    )


def test_samples_do_not_depend_on_shards_nor_on_their_number(task, tmp_path):
    one = generated(task, "train", 12, folder=tmp_path / "a", shard=12)
    three = generated(task, "train", 12, folder=tmp_path / "b", shard=4)
    few = generated(task, "train", 6, folder=tmp_path / "c", shard=8)
    assert len(one.parts) == 1 and len(three.parts) == 3
    assert same(one, three) and same(few, three.narrowed(0, 6))
    other = generated(task, "train", 4, 1, folder=tmp_path / "d", shard=4)
    assert not same(other, one.narrowed(0, 4))
    held = generated(task, "held_out", 4, folder=tmp_path / "a", shard=4)
    assert not same(held, one.narrowed(0, 4))


def test_what_is_there_is_not_computed_again(task, tmp_path):
    first = generated(task, "train", 8, folder=tmp_path, shard=4)
    assert task.solved == [4, 4]
    again = generated(task, "train", 8, folder=tmp_path, shard=4)
    assert task.solved == [4, 4] and same(first, again)
    more = generated(task, "train", 10, folder=tmp_path, shard=4)
    assert task.solved == [4, 4, 4] and same(first, more.narrowed(0, 8))
    generated(task, "train", 12, folder=tmp_path, shard=4)  # the last shard held two samples
    assert task.solved == [4, 4, 4, 4]


@pytest.mark.parametrize("damage", ["flipped", "cut", "without note", "foreign note", "other first"])
def test_a_damaged_shard_is_computed_again_and_others_are_kept(task, tmp_path, damage):
    first = generated(task, "train", 12, folder=tmp_path, shard=4)
    whole = first.rows(torch.arange(12))
    path, note = tmp_path / "train-00001.pt", tmp_path / "train-00001.json"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    if damage in ("flipped", "cut"):
        path.unlink()  # the samples above are mapped from it
        path.write_bytes(content[:-100] if damage == "cut" else content)
    if damage == "without note":
        note.unlink()
    if damage == "foreign note":
        note.write_text("{")
    if damage == "other first":
        note.write_text(json.dumps(json.loads(note.read_text()) | {"first": 8}))
    again = generated(task, "train", 12, folder=tmp_path, shard=4)
    assert task.solved == [4, 4, 4, 4]
    assert all(torch.equal(a, b) for a, b in zip(whole.values(), again.rows(torch.arange(12)).values(), strict=True))
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob(".*.part"))


def test_a_killed_generation_continues(tmp_path):
    """SIGKILL in the middle of a shard; a half-written file lies there, too."""
    program = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from pinnfuse import tasks
        from pinnfuse.datasets import generated

        found = tasks.get("darcy", points=8)

        def solve(k):
            if len(list(Path({str(tmp_path)!r}).glob("train-*.json"))) == 2:
                (Path({str(tmp_path)!r}) / ".train-00002.pt.1.part").write_bytes(b"half")
                (Path({str(tmp_path)!r}) / "reached").touch()
                time.sleep(60)
            return found.solve(k)

        slow = type(found)(**{{**vars(found), "block": 4, "solve": solve}})
        generated(slow, "train", 16, folder={str(tmp_path)!r}, shard=4)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    for _ in range(600):
        if (tmp_path / "reached").exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert sorted(p.name for p in tmp_path.glob("train-*.pt")) == ["train-00000.pt", "train-00001.pt"]
    found = tasks.get("darcy", points=8)
    done: list[int] = []
    blocks = type(found)(**{**vars(found), "block": 4})
    continued = generated(blocks, "train", 16, folder=tmp_path, shard=4, report=lambda n, count: done.append(n))
    assert done == [4, 8, 12, 16]
    assert same(continued, generated(blocks, "train", 16, folder=tmp_path / "anew", shard=4))
    before = tmp_path / "train-00000.json"
    assert before.stat().st_mtime < (tmp_path / "train-00002.json").stat().st_mtime


def test_the_cache_is_named_after_all_that_matters(monkeypatch, tmp_path):
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path))
    cases = [tasks.get("darcy", points=8), tasks.get("darcy", points=9), tasks.get("darcy", points=8, high=13.0)]
    cases.append(tasks.get("darcy", points=8, centring="cell"))
    folders = {folder_of(task, 0) for task in cases} | {folder_of(cases[0], 1)}
    assert len(folders) == 5 and all(tmp_path in folder.parents for folder in folders)
    windows = [tasks.get("burgers", ahead=ahead) for ahead in (2, 3)]
    assert len({folder_of(task, 0) for task in windows}) == 1  # the same samples, cut in another way


def test_a_folder_that_cannot_be_written_is_no_obstacle(task, tmp_path):
    (tmp_path / "file").write_text("")
    found = generated(task, "train", 4, folder=tmp_path / "file" / "below", shard=4)
    assert len(found) == 4 and read_shard(tmp_path / "file" / "below" / "train-00000.pt", 0, 4) is None


def test_shards_of_part_of_a_block_are_refused(task, tmp_path):
    with pytest.raises(ValueError, match="`shard` must be a multiple of 4, the task's block; got 6"):
        generated(task, "train", 4, folder=tmp_path, shard=6)
    with pytest.raises(ValueError, match="multiple of 4; got 2"):
        task.generate(2, 4, 0)


@pytest.mark.parametrize("pinned", [False, True])
def test_rows_come_from_the_right_parts(pinned):
    if pinned and not torch.cuda.is_available():
        pytest.skip("page-locked memory needs a card")
    parts = [{"a": torch.arange(0, 3)[:, None]}, {"a": torch.arange(3, 4)[:, None]}, {"a": torch.arange(4, 9)[:, None]}]
    samples = Samples(parts)
    order = torch.tensor([8, 0, 3, 2, 4, 4])
    assert len(samples) == 9 and samples.rows(order, pinned)["a"][:, 0].tolist() == order.tolist()
    assert samples.narrowed(2, 4).rows(torch.arange(4))["a"][:, 0].tolist() == [2, 3, 4, 5]
    assert samples.joined(torch.device("cpu"), torch.float64).rows(order)["a"][:, 0].tolist() == order.tolist()
