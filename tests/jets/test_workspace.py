"""Memory that is used again, and the symbolic adjoint of the residuals."""

import os

import pytest
import torch

from pinnfuse.jets import workspace
from pinnfuse.jets.plan import plan
from pinnfuse.jets.values import DenseJet
from pinnfuse.jets.workspace import BLOCK_BYTES, Arena, Workspace, borrowed
from tests.test_residual import PDES

LIKE = torch.zeros(1, dtype=torch.float64)


def test_memory_is_lent_again_only_after_it_was_given_back():
    memory = Workspace()
    memory.restart(3)
    a, b = memory.jet(LIKE, 2, 3, 4), memory.jet(LIKE, 2, 3, 4)
    assert a.data.data_ptr() != b.data.data_ptr() and a.data.dtype == torch.float64
    memory.give_back(a.channels[1])  # a view stands for the whole
    assert memory.jet(LIKE, 2, 3, 4) is a
    assert memory.jet(LIKE.float(), 2, 3, 4).data.dtype == torch.float32
    memory.restart(3)
    assert {id(memory.jet(LIKE, 2, 3, 4)) for _ in range(2)} == {id(a), id(b)}


def test_memory_that_another_jet_uses_is_not_lent_again():
    memory = Workspace()
    a = memory.jet(LIKE, 2, 3, 4)
    memory.give_back(a.data, unless=[DenseJet(a.data[..., :2])])
    memory.give_back(torch.zeros(2, 3, 4))  # was not lent
    assert memory.jet(LIKE, 2, 3, 4) is not a


def test_jets_of_an_arena_do_not_overlap_until_it_is_cleared():
    arena = Arena()
    jets = [arena.tensor((2, n, 5), dtype) for n in (1, 3, 70_000, 40_000) for dtype in (torch.float32, torch.float64)]
    for number, jet in enumerate(jets):
        jet.fill_(number)
    assert all((jet == number).all() for number, jet in enumerate(jets))
    assert all(jet.data_ptr() % 64 == 0 and jet.is_contiguous() for jet in jets)
    size = arena.nbytes
    arena.clear()
    assert arena.tensor((1,), torch.float32).data_ptr() == jets[0].data_ptr()
    assert arena.tensor((BLOCK_BYTES // 4 + 1,), torch.float32).numel() > BLOCK_BYTES // 4  # in memory of its own
    assert arena.nbytes == size


def test_another_number_of_points_lies_in_the_same_memory():
    with borrowed() as memory:
        memory.restart(3)
        first = memory.jet(LIKE, 2, 3, 4).data.data_ptr()
        memory.restart(2)
        assert memory.jet(LIKE, 2, 2, 4).data.data_ptr() == first


def test_two_borrowers_have_memory_of_their_own():
    with borrowed() as one, borrowed() as other:
        assert one.jet(LIKE, 1, 2, 3).data.data_ptr() != other.jet(LIKE, 1, 2, 3).data.data_ptr()
    with torch.inference_mode(), borrowed() as memory:
        memory.jet(LIKE, 1, 2, 3)
    with borrowed() as memory:  # writes to an inference tensor would be refused here
        memory.jet(LIKE, 1, 2, 3).data.zero_()


def test_a_borrower_that_comes_too_late_for_the_last_spare_arena(monkeypatch):
    class Taken(list):
        """Another thread takes the last one between a look and the pop."""

        def __len__(self):
            return 1

    monkeypatch.setattr(workspace, "_spare", Taken())
    with borrowed() as memory:
        memory.jet(LIKE, 1, 2, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_memory_of_its_own():
    with borrowed() as memory:
        jet = memory.jet(LIKE, 1, 2, 3).data.fill_(1)
        child = os.fork()
        if child == 0:
            jet.numpy().fill(2)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert (jet == 1).all()


@pytest.mark.parametrize("name", PDES)
def test_the_symbolic_adjoint_is_that_of_autograd(name):
    plan_ = plan(PDES[name])
    arguments = [torch.rand(7, dtype=torch.float64) for _ in plan_.arguments]
    targets = [
        *range(len(plan_.outputs)),
        *(plan_.arguments.index(plan_.pde.parameter_symbols[n]) for n in plan_.trained),
    ]
    leaves = [arguments[i].requires_grad_() for i in targets]
    upstream = [torch.rand(7, dtype=torch.float64) for _ in plan_.residuals]
    value = sum((q * r).sum() for q, r in zip(upstream, plan_.residual_function(*arguments), strict=True))
    expected = torch.autograd.grad(value, leaves)
    with torch.no_grad():
        found = plan_.adjoint_function(*arguments, *upstream)
    for got, truth in zip(found, expected, strict=True):
        torch.testing.assert_close(got.expand_as(truth), truth, rtol=1e-12, atol=1e-13)
