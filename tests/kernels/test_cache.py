"""Generated sources: whole, as they should be, and somewhere."""

from pathlib import Path

import pytest

from pinnfuse.kernels.jets import cache


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(cache, "_modules", {})


@pytest.mark.parametrize("damage", [b"VALUE = 2\n", b"", b"\xff\xfe\x00"])
def test_a_damaged_source_is_written_again(damage, monkeypatch, tmp_path):
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path))
    path = Path(cache.load("VALUE = 1\n", "test").__file__)
    assert path.parent == tmp_path
    path.write_bytes(damage)
    cache._modules.clear()
    assert cache.load("VALUE = 1\n", "test").VALUE == 1 and path.read_text() == "VALUE = 1\n"


def test_a_folder_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path / "file" / "folder"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    assert Path(cache.load("VALUE = 3\n", "test").__file__).parent.parent == tmp_path / "other"


def test_a_path_that_starts_at_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PINNFUSE_CACHE", "~/sources")
    assert Path(cache.load("VALUE = 4\n", "test").__file__).parent == tmp_path / "sources"
