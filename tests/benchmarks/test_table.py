"""The table of docs/training.md is what its files say."""

import importlib.util


def test_the_table_of_the_docs_is_that_of_the_files(root):
    spec = importlib.util.spec_from_file_location("table", root / "benchmarks" / "table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    folders = sorted((root / "benchmarks" / "results").glob("*/training"))
    rows = [row for folder in folders for row in table.rows(folder)]
    text = (root / "docs" / "training.md").read_text(encoding="utf-8")
    assert len(rows) > 10 and all(row in text for row in rows)
