import threading
import time

import numpy as np
import pytest

from pinnfuse.reference.cache import cached, directory


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path))
    return tmp_path


class Solver:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"u": np.arange(1000.0) + self.calls}


def test_computed_once_for_each_set_of_parameters(own_cache):
    solver = Solver()
    first = cached("heat", 1, {"nu": 0.1}, solver)
    assert np.array_equal(cached("heat", 1, {"nu": 0.1}, solver)["u"], first["u"]) and solver.calls == 1
    cached("heat", 1, {"nu": 0.2}, solver)
    cached("heat", 2, {"nu": 0.1}, solver)
    cached("wave", 1, {"nu": 0.1}, solver)
    assert solver.calls == 4
    assert len(list(own_cache.iterdir())) == 4 and not list(own_cache.glob("*.part"))


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped", "empty", "text", "foreign", "other numbers", "bare", "pickle"]
)
def test_a_damaged_file_is_computed_again(own_cache, damage):
    solver = Solver()
    cached("heat", 1, {}, solver)
    (path,) = own_cache.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("not an archive")
    elif damage == "foreign":
        np.savez(path, u=np.zeros(3))
    elif damage == "other numbers":
        with np.load(path) as file:
            kept = dict(file)
        np.savez(path, **kept | {"u": kept["u"][:3]})
    elif damage == "bare":  # one array, which np.load returns instead of an archive
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        np.savez(path, seal=np.array({"a": 1}, dtype=object), u=np.zeros(3))
    assert cached("heat", 1, {}, solver)["u"][0] == 2 and solver.calls == 2
    assert cached("heat", 1, {}, solver)["u"][0] == 2 and solver.calls == 2  # and repaired


def test_an_unwritable_directory_only_costs_the_cache(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where the directory should be")
    monkeypatch.setenv("PINNFUSE_CACHE", str(blocked))
    solver = Solver()
    assert cached("heat", 1, {}, solver)["u"][0] == 1
    assert cached("heat", 1, {}, solver)["u"][0] == 2


def test_directory_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("PINNFUSE_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert directory() == tmp_path / "pinnfuse"
    monkeypatch.setattr("sys.platform", "darwin")
    assert directory().parts[-3:] == ("Library", "Caches", "pinnfuse")
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert directory() == tmp_path / "local" / "pinnfuse"


def test_processes_that_want_the_same_compute_it_once(own_cache):
    order, inside = [], threading.Event()

    def slow():
        order.append("computed")
        inside.set()
        time.sleep(0.3)
        return {"u": np.arange(3.0)}

    first = threading.Thread(target=cached, args=("once", 1, {"n": 3}, slow))  # file locks belong to open files
    first.start()
    assert inside.wait(10)
    second = cached("once", 1, {"n": 3}, slow)
    first.join()
    assert order == ["computed"] and second["u"].tolist() == [0, 1, 2]
