"""Inverse problems: what is measured, and that the unknown is found."""

import dataclasses

import pytest
import torch

from pinnfuse import problems
from pinnfuse.optimizers import Phase
from pinnfuse.training import fit

GAUSS = [Phase("adam", 60, 5e-3), Phase("gauss_newton", 40)]


def test_noise_is_what_was_asked_for():
    exact = problems.get("burgers", "burgers_inverse", noise=0.0, values=1000)
    noisy = problems.get("burgers", "burgers_inverse", noise=0.1, values=1000)
    u, measured = (p.conditions[2].observed["observed_u"] for p in (exact, noisy))
    points = exact.conditions[2].region.points
    assert torch.allclose(u, torch.from_numpy(exact.reference.solution(points.numpy())[:, 0]))
    assert ((measured - u).std() / (0.1 * u.std())).item() == pytest.approx(1, abs=0.1)
    assert exact.pde.parameters["nu"].trainable and noisy.true_parameters["nu"] == pytest.approx(0.0031830988618)


@pytest.mark.parametrize("option", ["values", "noise", "start"])
def test_options_out_of_range(option):
    with pytest.raises(ValueError, match=f"burgers_inverse: option `{option}` is out of range; got -1"):
        problems.get("burgers", "burgers_inverse", **{option: -1})
    if option != "start":
        with pytest.raises(ValueError, match=f"heat_source: option `{option}` is out of range; got -1"):
            problems.get("heat", "heat_source", **{option: -1})


def test_a_large_viscosity_is_found():
    problem = problems.get("burgers", "burgers_inverse", nu=0.1, values=300, noise=0.01, start=0.3)
    spec = dataclasses.replace(problem.training, interior=300, phases=GAUSS)
    module = fit(problem, training=spec, progress=False, threads=1)
    assert module.loss.interior.parameter_values()["nu"].item() == pytest.approx(0.1, rel=0.01)


def test_a_source_is_found():
    problem = problems.get("heat", "heat_source", values=300, noise=0.0)
    spec = dataclasses.replace(problem.training, interior=300, phases=GAUSS)
    module = fit(problem, training=spec, progress=False, threads=1)
    assert module.rel_l2["f"] < 0.05 and module.rel_l2["u"] < 0.005
