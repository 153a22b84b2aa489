"""Small fields take what was measured faster; measured once, kept on disk."""

import pytest
import torch

import pinnfuse
from pinnfuse import PDE, FusedGridResidualLoss, Grid
from pinnfuse.grid import crossover, custom, dispatch, linear
from pinnfuse.grid.dispatch import Choice
from pinnfuse.kernels import measured


class Clock:
    """A clock that only goes when it is told to: the machine's load is none of its business."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(crossover, "time", found)
    return found


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path))
    monkeypatch.setattr(crossover, "ROUNDS", 2)
    monkeypatch.setattr(crossover, "CALLS", 1)
    monkeypatch.setattr(dispatch, "_broken", set())


class Counted:
    def __init__(self, name, seconds, clock):
        self.name, self.seconds, self.clock, self.calls = name, seconds, clock, 0

    def __call__(self, u):
        self.calls += 1
        self.clock.now += self.seconds
        return u * 1.0


@pytest.mark.parametrize("slow", ["torch", "triton"])
def test_the_faster_one_is_taken_and_found_again(slow, clock):
    kernel, plain = (Counted(name, 2.0 if slow == name else 1.0, clock) for name in ("triton", "torch"))
    choice, u = Choice("triton", False, "op", "a card, op, float32"), torch.randn(30)
    choice.run(kernel, plain, u)
    fast, other = (plain, kernel) if slow == "triton" else (kernel, plain)
    calls = fast.calls, other.calls
    choice.run(kernel, plain, torch.randn(20, 1))  # the same power of two
    assert (fast.calls, other.calls) == (calls[0] + 1, calls[1])
    again = measured.Store("crossovers.json", str, str)  # as another process would
    assert again.read("a card, op, float32, 2^5 points") == fast.name
    choice.run(kernel, plain, torch.randn(20, requires_grad=True))  # measured with its backward, by itself
    assert other.calls > calls[1]
    assert again.read("a card, op, float32, 2^5 points, gradient") == fast.name


def test_large_fields_are_not_measured(monkeypatch, clock):
    monkeypatch.setattr(crossover, "LARGE", 64)
    kernel, plain = Counted("triton", 2.0, clock), Counted("torch", 1.0, clock)
    Choice("triton", False, "op", "a card").run(kernel, plain, torch.randn(64))
    assert (kernel.calls, plain.calls) == (1, 0)


def test_the_callers_graph_stays_as_it_is():
    """Measuring takes backwards of its own; gradients of the caller's tensors come from one call."""
    leaf = torch.randn(10, requires_grad=True)
    out = Choice("triton", False, "op", "a card").run(lambda u: 3 * u, lambda u: 3 * u, 2 * leaf)
    assert leaf.grad is None
    out.sum().backward()
    assert torch.equal(leaf.grad, torch.full((10,), 6.0))


def test_a_kernel_that_fails_while_measured():
    import triton

    class Broken(triton.TritonError):
        pass

    def fail(u):
        raise Broken("no code")

    with pytest.warns(UserWarning, match="no code"):
        assert Choice("triton", False, "op", "a card").run(fail, lambda u: u, torch.ones(3)).sum() == 3


@pytest.mark.parametrize("damage", ["{", "[]", '{"a card, 2^2 points": 3}', '{"a card, 2^2 points": "cuda"}'])
def test_a_damaged_file_is_ignored(damage, tmp_path):
    (tmp_path / "crossovers.json").write_text(damage)
    assert crossover.known("a card", [torch.ones(3)]) is None
    crossover._store.write("a card, 2^2 points", "torch")
    assert crossover.known("a card", [torch.ones(3)]) == "torch"


def test_stencils_of_one_name_are_measured_by_size(monkeypatch):
    asked = []
    monkeypatch.setattr(linear, "choose", lambda *a, **k: asked.append(k["variant"]) or dispatch.choose(*a, **k))
    grid, u = Grid("x", 0.1, boundary="periodic"), torch.randn(9)
    for entries in ({0: 1.0, 1: -1.0}, {0: 2.0, 3: 1.0}, dict.fromkeys(range(-3, 4), 1.0)):
        custom(entries, grid)(u)
    assert asked[0] == asked[1] != asked[2]


def test_residual_losses_follow_the_same_rule(interpreter, monkeypatch):
    loss = FusedGridResidualLoss(PDE("u", "x", equations={"e": "u_xx - u"}), Grid("x", 0.1, boundary="periodic"))
    other = FusedGridResidualLoss(PDE("u", "x", equations={"e": "u_xx + u"}), loss.scheme.grid)
    u = torch.randn(2, 1, 12)
    card = Choice("triton", False, "FusedGridResidualLoss", "a card")
    monkeypatch.setattr(dispatch, "choose", lambda *_, **__: card)
    monkeypatch.setattr(crossover, "_seconds", lambda functions, tensors: [1.0, 2.0])
    assert loss.explain(u).backend == "triton"
    loss(u)
    assert loss.explain(u).backend == "torch" and "measured" in loss.explain(u).reason
    assert other.explain(u).backend == "triton"  # another equation


def test_what_is_kept_names_all_it_depends_on(monkeypatch):
    """Host time changes with torch and with this library, device time with card and compiler."""
    monkeypatch.setattr(measured, "card", lambda device: "a card, triton 3")
    monkeypatch.setattr(crossover, "card", lambda device: "a card, triton 3")
    found = crossover.prefix("laplacian", torch.float32, torch.device("cuda"), "order 4")
    expected = (
        f"a card, triton 3, torch {torch.__version__}, pinnfuse {pinnfuse.__version__}, laplacian, order 4, float32"
    )
    assert found == expected
    assert crossover.prefix("laplacian", torch.float32, torch.device("cpu")) == ""


def test_a_capture_takes_kernels(monkeypatch, clock):
    """The host's time, which is what makes plain torch faster, is not in a CUDA graph; nothing can be timed there."""
    kernel, plain = Counted("triton", 2.0, clock), Counted("torch", 1.0, clock)
    choice, u = Choice("triton", False, "op", "a card"), torch.randn(30)
    monkeypatch.setattr(crossover, "_capturing", lambda tensor: True)
    choice.run(kernel, plain, u)
    assert (kernel.calls, plain.calls) == (1, 0) and not crossover._store._entries()
    monkeypatch.setattr(crossover, "_capturing", lambda tensor: False)
    choice.run(kernel, plain, u)
    assert crossover.known("a card", [u]) == "torch"
    monkeypatch.setattr(crossover, "_capturing", lambda tensor: True)
    assert crossover.known("a card", [u]) == "triton"


@pytest.mark.gpu
@pytest.mark.parametrize("n", [32, 256, 2048])
def test_on_a_card_small_fields_are_measured_once(n):
    from pinnfuse.grid import laplacian

    u = torch.randn(n, n, device="cuda", requires_grad=True)
    choice = dispatch.choose("auto", "laplacian", u)
    assert choice.measured and not dispatch.choose("triton", "laplacian", u).measured
    laplacian(u, Grid("x y", 0.1, boundary="periodic"))
    assert bool(crossover._store._entries()) is (n * n < crossover.LARGE)
