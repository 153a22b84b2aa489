from dataclasses import replace

import numpy as np
import pytest
import torch

from pinnfuse import training
from pinnfuse.models import MLP
from pinnfuse.reference import Unknown
from pinnfuse.training import threads


def test_it_trains_in_silence(heat, tmp_path, capfd, recwarn):
    module = training.fit(heat, out=tmp_path / "out", accelerator="cpu", validate_every=20, log_every=10)
    assert capfd.readouterr() == ("", "") and not recwarn.list
    assert module.rel_l2["u"] < 0.1 and not module.training
    points, reference, _ = heat.evaluation_points()
    error = np.linalg.norm(module.predict_numpy(points) - reference) / np.linalg.norm(reference)
    assert module.rel_l2["u"] == pytest.approx(error, rel=1e-9)
    assert (tmp_path / "out" / "metrics.csv").is_file() and (tmp_path / "out" / "figures" / "u.png").is_file()


@pytest.mark.filterwarnings("error")
def test_where_no_solution_is_known(heat, tmp_path):
    unknown = replace(heat, reference=Unknown(heat.pde.fields, heat.reference.grid()))
    module = training.fit(unknown, out=tmp_path, accelerator="cpu", progress=False)
    assert np.isnan(module.rel_l2["u"]) and np.isfinite(module.last_loss)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"loss.png", "u.png"}
    with pytest.raises(ValueError, match="Where no solution is known, take Unknown"):
        replace(heat, reference=None)


def test_seed_and_generator_of_the_caller(heat):
    def weights(seed):
        module = training.fit(heat, seed=seed, accelerator="cpu", progress=False)
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = weights(0)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, weights(0)) and not torch.equal(first, weights(1))


def test_a_network_of_ones_own(heat):
    net = MLP(2, 1, width=8, depth=1)
    assert training.fit(heat, net, accelerator="cpu", progress=False).net is net


@pytest.fixture
def step(monkeypatch):
    """step({threads: ms}) replaces the clock of the trial."""
    monkeypatch.setattr(threads.torch, "set_num_threads", lambda n: chosen.append(n))
    chosen = []

    def make(times):
        monkeypatch.setattr(threads, "milliseconds", lambda step, device: times[chosen[-1]])
        return chosen

    return make


@pytest.mark.parametrize(
    ("times", "most", "best"),
    [
        ({1: 10.0, 2: 100.0}, 2, 1),  # a busy machine
        ({1: 10.0, 2: 9.5}, 2, 1),  # not worth a core
        ({1: 10.0, 2: 6.0}, 2, 2),
        ({1: 10.0, 2: 6.0, 4: 3.0, 6: 2.0}, 6, 6),
        ({1: 10.0, 2: 6.0, 4: 7.0, 8: 1.0}, 8, 2),
        ({1: 10.0}, 1, 1),
    ],
)
def test_threads_are_doubled_while_it_pays(step, times, most, best):
    chosen = step(times)
    assert threads.by_trial(lambda: None, most) == best == chosen[-1]


def test_threads_that_were_asked_for(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.wanted(None) == torch.get_num_threads() and threads.wanted(5) == 5
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads.wanted(None) is None
    with pytest.raises(ValueError, match="`threads` must be at least 1"):
        threads.wanted(0)


def test_torch_keeps_its_threads():
    before = torch.get_num_threads()
    with threads.restored():
        torch.set_num_threads(before + 1)
    assert torch.get_num_threads() == before
