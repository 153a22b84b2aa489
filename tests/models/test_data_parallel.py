"""One, two and four processes: the same loss and the same parameters, however a set of points is split."""

import multiprocessing
import os
import socket
import traceback

import pytest
import torch

from pinnfuse import parallel
from pinnfuse.bench.data_parallel import CASES, Case, disagreement, setting, steps_of
from pinnfuse.callbacks import LossBalancing
from pinnfuse.models.stepping import _weighed

CPU = torch.device("cpu")


class Module:
    """What `LossBalancing` asks."""

    def __init__(self, net, loss):
        self.net, self.loss, self.parameters = net, loss, net.parameters

    def loss_terms(self, batch):
        return self.loss.separate(self.net, batch)

    def term_kernels(self, batch):
        return self.loss.kernels(self.net, batch, list(self.parameters()))


def measures():
    """What the schemes of balancing see of points that are split unevenly."""
    net, loss, batch = setting(Case(even=False), 96, 8, CPU)
    module, batch = Module(net, loss), _weighed(batch)
    found = {scheme: LossBalancing(scheme)._measure(module, batch) for scheme in ("gradient_norm", "ntk", "relobralo")}
    return {scheme: {name: value.item() for name, value in measure.items()} for scheme, measure in found.items()}


FEW_ROWS = "gauss_newton with fewer rows than columns"


def battery():
    few_rows = steps_of(Case("gauss_newton", 2, even=False), 96, 16, CPU)
    return {case.name: steps_of(case, 96, 8, CPU) for case in CASES} | {"measures": measures(), FEW_ROWS: few_rows}


def enter(rank, size, port, queue):
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
    try:
        queue.put((rank, battery()))
    except Exception:
        queue.put((rank, traceback.format_exc()))
    torch.distributed.destroy_process_group()


def ranks(size):
    """What each of `size` processes got."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pinnfuse.bench.data_parallel"])  # imports once for all
    queue = context.SimpleQueue()
    processes = [context.Process(target=enter, args=(rank, size, port, queue)) for rank in range(size)]
    for process in processes:
        process.start()
    found = dict(queue.get() for _ in processes)
    for process in processes:
        process.join(60)
    errors = [text for text in found.values() if isinstance(text, str)]
    assert not errors, errors[0]
    return [found[rank] for rank in range(size)]


def test_means_do_nothing_in_one_process():
    values = torch.rand(3)
    parallel.mean_([values])
    assert parallel.total(values) is values and parallel.agreed(values[0]) == [values[0].double().item()]
    assert parallel.shares([3, 5], CPU).tolist() == [1, 1] and parallel.gathered("x") == ["x"]


@pytest.mark.parametrize("size", [2, 4])
def test_steps_do_not_depend_on_the_number_of_processes(size):
    one, many = battery(), ranks(size)
    for case in CASES:
        assert sum(results[case.name]["points"] for results in many) == one[case.name]["points"]
        sizes = {results[case.name]["points"] for results in many}
        assert (len(sizes) == 1) == case.even
        for results in many[1:]:  # every rank has the same bits
            assert (results[case.name]["parameters"] == many[0][case.name]["parameters"]).all()
        found = disagreement(one[case.name], many[0][case.name])
        assert max(found.values()) <= case.tolerance, (case.name, found)
    found = disagreement(one[FEW_ROWS], many[0][FEW_ROWS])
    assert max(found.values()) <= 1e-12, found
    for scheme, values in one["measures"].items():
        assert values.keys() == {"real", "imaginary", "initial"}
        assert many[0]["measures"][scheme] == pytest.approx(values, rel=1e-12), scheme
        assert many[1]["measures"] == many[0]["measures"]
