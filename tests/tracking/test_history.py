import csv

from pinnfuse.tracking import History


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_rows_columns_and_appending(tmp_path):
    path = tmp_path / "metrics.csv"
    history = History(path)
    history.log_metrics({"a": 1.0}, 10)
    history.save()
    assert path.read_text() == "step,a\n10,1.0\n"
    history.log_metrics({"a": 0.1 + 0.2}, 20)
    history.log_metrics({"b": 3.0}, 20)  # the same row
    history.save()
    assert read(path) == [{"step": "10", "a": "1.0", "b": ""}, {"step": "20", "a": repr(0.1 + 0.2), "b": "3.0"}]
    inode = path.stat().st_ino
    history.log_metrics({"b": 4.0}, 30)
    history.finalize("success")
    assert path.stat().st_ino == inode and len(read(path)) == 3  # appended, not rewritten
    assert history.series() == {"a": ([10, 20], [1.0, 0.1 + 0.2]), "b": ([20, 30], [3.0, 4.0])}


def test_a_row_that_was_written_can_still_grow(tmp_path):
    history = History(tmp_path / "m.csv")
    history.log_metrics({"a": 1.0, "b": 1.0}, 1)
    history.save()
    history.log_metrics({"b": 2.0}, 1)
    history.save()
    assert read(tmp_path / "m.csv") == [{"step": "1", "a": "1.0", "b": "2.0"}]


def test_resume_keeps_the_rows_before_the_checkpoint(tmp_path):
    path = tmp_path / "m.csv"
    first = History(path)
    for step in (1, 5, 10, 15):
        first.log_metrics({"a": float(step)}, step)
    first.save()
    second = History(path)
    second.resume(10)
    second.log_metrics({"a": 12.0}, 12)
    second.save()
    assert [row["step"] for row in read(path)] == ["1", "5", "10", "12"]


def test_without_a_path_nothing_is_written():
    history = History()
    history.log_metrics({"a": 1.0}, 1)
    history.save()
    assert history.series() == {"a": ([1], [1.0])}
