"""The tables of README.md and docs/performance.md are what jets.json says."""

import importlib.util
import json

import pytest

STARRED = {
    (f"poisson_100, {width}, float32", column)
    for width in (64, 256)
    for column in ("torch.compile", "best peer / ours captured (as called)", "goal")
}
"""From another run, whose file is not here."""


@pytest.fixture(scope="module")
def script(root):
    spec = importlib.util.spec_from_file_location("jets_table", root / "benchmarks" / "jets_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def report(root):
    return json.loads((root / "benchmarks" / "results" / "NVIDIA_H200" / "jets.json").read_text(encoding="utf-8"))


def cells(lines: list[str]) -> dict[tuple[str, str, int], str]:
    """By case, column and number of the line: a case may have several numbers of points."""
    heading, _, *rows = [line.strip("| ").split(" | ") for line in lines]
    return {(row[0], c, k): cell for k, row in enumerate(rows) for c, cell in zip(heading, row, strict=True)}


def printed(text: str, heading: str) -> list[str]:
    """The table of a document that begins with this line."""
    lines = text.splitlines()
    start = lines.index(heading)
    end = next(k for k in range(start, len(lines)) if not lines[k].startswith("|"))
    return lines[start:end]


@pytest.mark.parametrize(("document", "readme", "count"), [("docs/performance.md", False, 20), ("README.md", True, 12)])
def test_the_tables_of_the_documents_are_those_of_the_file(root, script, report, document, readme, count):
    made = script.table(report, readme)
    written = printed((root / document).read_text(encoding="utf-8"), made[0])
    assert len(made) == len(written) == count + 2
    found, expected = cells(written), cells(made)
    assert found.keys() == expected.keys()
    starred = {key for key, cell in found.items() if "\\*" in cell}
    assert {key[:2] for key in starred} == (set() if readme else STARRED)
    assert {k: v for k, v in found.items() if k not in starred} == {
        k: v for k, v in expected.items() if k not in starred
    }


def case(**times: float) -> dict:
    """Rows of navier_stokes at 64, with times by engine."""
    same = {"name": "navier_stokes", "width": 64, "depth": 6, "points": 65536, "precision": "float32", "error": 1e-6}
    return {
        "rows": [
            same | {"engine": e.replace("_", "-"), "ms": {"median": t}, "memory_mb": 1.0} for e, t in times.items()
        ]
    }


def test_what_was_not_measured_says_so(script):
    report = case(pinnfuse=1.0, torch_compile=4.0)
    report["rows"] += [
        case(jax=0)["rows"][0] | {"failed": "Error: no"},
        case(autograd=0)["rows"][0] | {"skipped": "out of memory"},
    ]
    for row in report["rows"][2:]:
        del row["ms"]
    (line,) = cells_of_rows(script.table(report))
    assert line["ours, captured"] == "-, 1 MB" and line["torch.compile"] == "4, 1 MB"
    assert line["JAX"] == "failed" and line["nested autograd"] == "out of memory"
    assert line["best peer / ours captured (as called)"] == "- (4.00)"
    assert line["goal"] == "0.7 ms: **missed**; 3x best peer: met"
    report["rows"] = [row for row in report["rows"] if row["engine"] in ("pinnfuse", "jax")]
    (line,) = cells_of_rows(script.table(report, readme=True))
    assert line["best peer"] == "failed" and line["nested autograd"] == "-"
    assert line["goal"].endswith("3x best peer: not measured")


def cells_of_rows(lines: list[str]) -> list[dict[str, str]]:
    heading, _, *rows = [line.strip("| ").split(" | ") for line in lines]
    return [dict(zip(heading, row, strict=True)) for row in rows]
