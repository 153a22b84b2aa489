"""The figure of docs/training.md is drawn from the results, and the table's numbers are theirs."""

import json
import runpy

CARD = "NVIDIA_H200"
CELLS = {  # recipe: field, goals with the seconds that the page gives
    "burgers_accurate_to_1e-3_seed0": ("u", {1e-3: 2.4}),
    "burgers_accurate": ("u", {1e-7: 28.7}),
    "allen_cahn_accurate": ("u", {1e-3: 13.1, 1e-4: 15.5, 5e-6: 24.5}),
    "allen_cahn_accurate_seed1": ("u", {1e-3: 8.8, 1e-4: 12.4}),
    "allen_cahn_accurate_seed2": ("u", {1e-3: 9.7, 1e-4: 11.8}),
    "kdv_accurate": ("u", {1e-4: 25.5}),
    "cavity_100": ("velocity", {2e-3: 15.2}),
    "cavity_100_seed1": ("velocity", {2e-3: 13.1}),
    "cavity_100_seed2": ("velocity", {1e-2: 10.2, 2e-3: 13.8}),
    "cavity_1000": ("velocity", {2e-2: 114}),
    "wave_accurate": ("u", {1e-5: 8.8}),
    "poisson_5d": ("u", {1e-6: 13.6}),
    "poisson_5d_seed1": ("u", {1e-6: 57.0}),
    "poisson_10d": ("u", {1e-6: 13.4}),
    "poisson_10d_seed1": ("u", {1e-6: 17.6}),
}


def test_it_is_drawn(root, tmp_path):
    script = runpy.run_path(str(root / "benchmarks" / "training_figure.py"))
    script["main"](str(root / "benchmarks" / "results" / CARD / "training"), str(tmp_path / "training.png"))
    assert (tmp_path / "training.png").read_bytes()[:4] == b"\x89PNG"


def test_seconds_to_the_goals(root):
    folder = root / "benchmarks" / "results" / CARD / "training" / "recipes"
    page = (root / "docs" / "training.md").read_text(encoding="utf-8")
    for name, (field, goals) in CELLS.items():
        curve = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["curve"]
        for goal, told in goals.items():
            first = next(seconds for seconds, _, _, errors in curve if errors[field] <= goal)
            assert abs(first - told) <= (0.5 if told > 100 else 0.06), (name, goal, first)
            assert f"{told:g}" in page, (name, goal)
