"""There is never half of a file, whatever ends the writing."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from pinnfuse.files import check_writable, whole_file
from pinnfuse.simulation import Physarum

KILLED = """
import os, signal, sys
from pinnfuse.files import whole_file
with whole_file(sys.argv[1]) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_an_error_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "state.pt"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and names(tmp_path) == ["state.pt"]


def test_a_killed_process_leaves_the_old_file_and_the_next_one_cleans_up(tmp_path) -> None:
    path = tmp_path / "[a] state.pt"  # brackets mean something to glob
    path.write_text("old")
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert path.read_text() == "old" and len(names(tmp_path)) == 2
    with whole_file(path) as first, whole_file(path) as second:  # neither takes the other's for a dead one's
        assert first.exists() and second.exists() and len(names(tmp_path)) == 3
        second.write_text("new")
    assert names(tmp_path) == [path.name]


def test_a_full_disk_is_one_line(tmp_path) -> None:
    path = tmp_path / "state.pt"
    path.write_text("old")
    with pytest.raises(ValueError, match="No space left.*Make room"), whole_file(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old" and names(tmp_path) == ["state.pt"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits on files")
def test_a_checkpoint_on_a_full_disk(tmp_path) -> None:
    import resource
    import signal

    path = tmp_path / "state.pt"
    path.write_text("old")
    sim = Physarum((64, 64), 500, backend="torch")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        with pytest.raises(ValueError, match="cannot write .*Make room"):
            sim.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == "old" and names(tmp_path) == ["state.pt"]


def test_what_is_no_file_is_refused_before(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for path, reason in (("folder", "is a folder"), ("file/state.pt", "folder that you may write to")):
        with pytest.raises(ValueError, match=reason):
            check_writable(tmp_path / path)
        with pytest.raises(ValueError, match=reason), whole_file(tmp_path / path):
            pytest.fail("the block ran")
    check_writable(tmp_path / "new" / "state.pt")
    assert names(tmp_path / "new") == []


def test_a_link_stays_a_link(tmp_path) -> None:
    (tmp_path / "real.pt").write_text("old")
    (tmp_path / "link.pt").symlink_to(tmp_path / "real.pt")
    with whole_file(tmp_path / "link.pt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link.pt").is_symlink() and (tmp_path / "real.pt").read_text() == "new"
