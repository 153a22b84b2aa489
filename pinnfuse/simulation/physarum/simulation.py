"""Physarum: agents that follow and feed a field, which diffuses and decays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import BackendUnavailable
from pinnfuse.simulation.physarum import checks, stages
from pinnfuse.simulation.physarum.backends import resolve
from pinnfuse.simulation.physarum.colony import Colony
from pinnfuse.simulation.physarum.fixed import CELL, TURN
from pinnfuse.simulation.physarum.images import read_image
from pinnfuse.simulation.physarum.parameters import Parameters, changed, tables
from pinnfuse.simulation.physarum.replay import Replay
from pinnfuse.simulation.physarum.spawn import spawn as place


class Physarum:
    """A colony on a grid of cells; four stages a step, each in torch or Triton.

        sim = Physarum((400, 400), agents=5000, speed=1.0, decay=0.1, seed=0)
        sim.run(1000)
        sim.field  # [species, 400, 400]

    The same seed gives the same run, bit for bit, on every backend and device (with `deposits="float"`, on the order of
    atomic additions it depends). `step` and `run` never wait for the device, and their memory does not grow.

    Args:
        shape: cells (height, width), at most 16,384 a side.
        agents: how many, shared evenly among the species.
        species: how many; each has its own field.
        attraction: [species, species]: how much row's agents are drawn to column's field, negative to be driven off. By
            default the identity.
        boundary: "torus", or "walls": a wall reflects the field, and an agent before it turns to a random heading.
        sensing: the field at a sensor: "nearest" cell or "bilinear".
        deposits: "count": agents are counted in whole numbers, so the order of additions does not matter; "two-stage":
            the same numbers, first summed within blocks of agents, for colonies crowded in few cells; "float":
            floating-point atomic additions.
        spawn: "uniform", "point", "ring", "disc" or "image", with `spawn_radius`, `spawn_jitter` [cells] and
            `spawn_weights` [H, W]; see `spawn.spawn`.
        positions, headings: instead of `spawn`: float [A, 2] with columns x, y in cells, and float [A] in radians.
        field: start of the field, [H, W] or [species, H, W]; zero by default.
        food: [H, W], `food` times this is added to every field at every step.
        obstacles: [H, W], nonzero where agents cannot go and the field is zero.
        seed: of all random numbers, in [0, 2^63).
        dtype: of the field: float32, float16 or bfloat16 (arithmetic stays in float32), or float64 (torch only).
            float16 saturates at 65,504.
        device: where it lives.
        backend: "auto", "torch" or "triton", or {stage: one of them} with the stages "sense", "steer", "deposit",
            "diffuse".
        parameters: see `Parameters`; single ones by name as further keywords. `set` changes them during a run.

    Raises:
        ValueError: anything that does not fit, before any memory is taken for the run.
        BackendUnavailable: an explicit "triton" that cannot run here.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        agents: int = 5000,
        *,
        species: int = 1,
        attraction: Tensor | None = None,
        boundary: str = "torus",
        sensing: str = "nearest",
        deposits: str = "count",
        spawn: str = "uniform",
        spawn_radius: float | None = None,
        spawn_jitter: float = 0.0,
        spawn_weights: Tensor | None = None,
        positions: Tensor | None = None,
        headings: Tensor | None = None,
        field: Tensor | None = None,
        food: Tensor | None = None,
        obstacles: Tensor | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        backend: str | Mapping[str, str] = "auto",
        parameters: Parameters | None = None,
        **single: Any,
    ):
        shape = checks.shape(shape)
        agents = checks.whole_number("agents", agents, 1, 2**31 - 1)
        species = checks.whole_number("species", species, 1, 64)
        seed = checks.whole_number("seed", seed, 0, 2**63 - 1)
        checks.names(boundary=boundary, sensing=sensing, deposits=deposits)
        checks.field_dtype(dtype)
        self.device = checks.device(device)
        checks.memory(agents, species, shape, dtype, self.device)
        self.attraction = checks.attraction(attraction, species)
        self.parameters = changed(parameters or Parameters(), single)
        integers, reals = tables(self.parameters, self.attraction, shape)
        self.stages = resolve(backend, self.device, dtype)
        start = checks.field(field, species, shape, dtype)
        food = checks.map_of("food", food, shape)
        obstacles = checks.map_of("obstacles", obstacles, shape)
        blocked = None if obstacles is None else (obstacles != 0).to(self.device, torch.uint8)
        given = checks.agents(positions, headings, agents, shape, blocked)
        self.settings: dict[str, Any] = {"shape": shape, "agents": agents, "species": species, "seed": seed}
        self.settings |= {"boundary": boundary, "sensing": sensing, "deposits": deposits, "dtype": str(dtype)[6:]}

        clock = torch.tensor([0, seed], dtype=torch.int64, device=self.device)
        identity = torch.arange(agents, dtype=torch.int32, device=self.device)
        if given is None:
            options: Any = {"radius": spawn_radius, "jitter": spawn_jitter, "weights": spawn_weights}
            given = place(spawn, identity, shape, clock, obstacles=blocked, torus=boundary == "torus", **options)
        x, y, heading = (v.to(self.device).contiguous() for v in given)
        size = (species, *shape)
        count = torch.float32 if deposits == "float" else torch.int32
        buffers = [torch.zeros(size, dtype=kind, device=self.device) for kind in (dtype, dtype, count, count)]
        buffers[0].copy_(start)
        if blocked is not None:
            buffers[0].masked_fill_(blocked != 0, 0)
        accumulate = torch.float64 if dtype == torch.float64 else torch.float32
        self.colony = Colony(
            x=x,
            y=y,
            heading=heading,
            identity=identity,
            kind=(identity.long() * species // agents).int(),
            fields=(buffers[0], buffers[1]),
            trails=(buffers[2], buffers[3]),
            integers=integers.to(self.device),
            reals=reals.to(self.device, accumulate),
            clock=clock,
            food=None if food is None else food.to(self.device, torch.float32).contiguous(),
            obstacles=blocked,
            shape=shape,
            torus=boundary == "torus",
            bilinear=sensing == "bilinear",
            deposits=deposits,
        )
        self.steps_done = 0
        self._named = False
        self._replay = Replay(self)

    @classmethod
    def from_image(
        cls, path: str | Path, strength: float = 1.0, shape: tuple[int, int] | None = None, **options: Any
    ) -> Physarum:
        """A colony whose field starts as `strength` times the brightness (0..1) of an image, which also sets the shape.

        With spawn="image" agents start where it is bright.
        """
        if not isinstance(strength, Real) or not 0 <= strength <= checks.LARGEST:
            raise ValueError(f"Physarum: `strength` must be finite and >= 0; got {strength!r}. Use 1.0.")
        brightness = read_image(path, shape)
        if options.get("spawn") == "image":
            options.setdefault("spawn_weights", brightness)
        return cls((brightness.shape[0], brightness.shape[1]), field=strength * brightness, **options)

    # -- what it holds

    @property
    def field(self) -> Tensor:
        """[species, H, W], the field now; a view that the next step overwrites."""
        return self.colony.fields[self.colony.now]

    @property
    def positions(self) -> Tensor:
        """float64 [A, 2], columns x and y in cells, of the agents in the order of their numbers; exact."""
        order = self.colony.identity.argsort()
        return torch.stack((self.colony.x[order], self.colony.y[order]), dim=1).double() / CELL

    @property
    def headings(self) -> Tensor:
        """float64 [A], radians in [0, 2 pi), in the order of the agents' numbers."""
        return self.colony.heading[self.colony.identity.argsort()].double() * (2 * math.pi / TURN)

    def set(self, **values: Any) -> None:
        """Change parameters (those of `Parameters`, and `attraction`) from the next step on; compiles nothing.

        Raises:
            ValueError: a name or value that does not fit; nothing is changed then.
        """
        matrix = values.pop("attraction", None)
        attraction = self.attraction if matrix is None else checks.attraction(matrix, self.colony.species)
        parameters = changed(self.parameters, values)
        integers, reals = tables(parameters, attraction, self.colony.shape)
        self.parameters, self.attraction = parameters, attraction
        self.colony.integers.copy_(integers, non_blocking=True)
        self.colony.reals.copy_(reals, non_blocking=True)

    # -- what it does

    def step(self) -> None:
        """One step; nothing waits for the device."""
        c = self.colony
        sensing, steering, depositing, diffusing = self.stages.values()
        fused = sensing == steering == "triton"
        with self._range("sense + steer + deposit" if fused and depositing == "triton" else "agents"):
            if fused:
                _triton().agents(c, deposits=depositing == "triton")
            else:
                with self._range("sense"):
                    sensed = (_triton() if sensing == "triton" else stages).sense(c)
                with self._range("steer"):
                    (_triton() if steering == "triton" else stages).steer_and_move(c, sensed)
            if not (fused and depositing == "triton"):
                with self._range("deposit"):
                    (_triton() if depositing == "triton" else stages).deposit(c)
        with self._range("diffuse"):
            (_triton() if diffusing == "triton" else stages).diffuse_and_decay(c)
        c.advance()
        self.steps_done += 1

    def run(self, steps: int, sort_every: int = 0) -> Physarum:
        """`steps` steps; on a card from a CUDA graph of several steps. Returns itself.

        Args:
            steps: >= 0.
            sort_every: order the agents by place in memory after so many steps, which shortens the way to the field in
                colonies that are large against the card's cache; 0 never. Changes no result but `deposits="float"`.
        """
        steps, sort_every = checks.steps(steps, sort_every)
        while steps > 0:
            batch = min(steps, sort_every - self.steps_done % sort_every) if sort_every else steps
            self._replay.run(batch)
            steps -= batch
            if sort_every and self.steps_done % sort_every == 0:
                self.sort()
        return self

    def sort(self) -> None:
        """Order the agents in memory by tiles of 16 x 16 cells, empty slots last."""
        c = self.colony
        tiles = -(-c.shape[1] // 16)
        tile = (c.y >> 20) * tiles + (c.x >> 20)
        if c.slots:
            tile = tile.masked_fill(c.identity < 0, 2**31 - 1)  # empty ones last
        order = tile.argsort()
        for values in (c.x, c.y, c.heading, c.identity, c.kind):
            values.copy_(values[order])

    @contextmanager
    def named_ranges(self) -> Iterator[None]:
        """Steps inside appear in profiles as `physarum/<stage>`."""
        self._named = True
        try:
            yield
        finally:
            self._named = False

    def _range(self, name: str) -> Any:
        return torch.profiler.record_function(f"physarum/{name}") if self._named else nullcontext()

    # -- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on; resuming gives the same bits."""
        c = self.colony
        names = ("x", "y", "heading", "identity", "kind", "food", "obstacles", "clock")
        tensors = {name: getattr(c, name) for name in names if getattr(c, name) is not None}
        state = {name: tensor.detach().clone() for name, tensor in tensors.items()} | {"field": self.field.clone()}
        settings = self.settings | {"steps": self.steps_done}
        return state | {"settings": settings, "parameters": asdict(self.parameters), "attraction": self.attraction}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of the same settings; the seed is the state's.

        Raises:
            ValueError: other settings, tensors of other shapes, agents outside of the field, or maps that one has and
                the other has not; nothing is changed then.
        """
        checks.same_settings(self.settings, state["settings"])
        c = self.colony
        checks.state(state, c)
        self.set(attraction=state["attraction"], **state["parameters"])
        names = ("x", "y", "heading", "identity", "kind", "clock", "food", "obstacles")
        for name in names:
            if getattr(c, name) is not None:
                getattr(c, name).copy_(state[name])
        self.field.copy_(state["field"])
        c.trails[c.now].zero_()
        self.settings["seed"], self.steps_done = int(state["clock"][1]), int(state["clock"][0])

    def save(self, path: str | Path) -> None:
        """Write the state, or leave the old file: there is never half of one."""
        from pinnfuse.files import whole_file

        with whole_file(path) as temporary, temporary.open("wb") as file:
            torch.save(self.state_dict(), file)

    @classmethod
    def load(
        cls, path: str | Path, device: torch.device | str = "cpu", backend: str | Mapping[str, str] = "auto"
    ) -> Physarum:
        """The simulation that `save` wrote.

        Raises:
            ValueError: no such file, or not one that `save` wrote.
        """
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            settings = {name: value for name, value in state["settings"].items() if name != "steps"}
            settings["dtype"] = getattr(torch, settings["dtype"])
            maps = {name: state.get(name) for name in ("food", "obstacles")}
            places = torch.stack([state["x"], state["y"]], dim=1).double() / CELL
            options: dict[str, Any] = settings | maps | {"attraction": state["attraction"], "positions": places}
            options["parameters"] = Parameters(**state["parameters"])
            sim = cls(device=device, backend=backend, **options)
            sim.load_state_dict(state)
        except FileNotFoundError as error:
            raise ValueError(f"Physarum.load: no file at {path}. Check the path.") from error
        except BackendUnavailable:
            raise
        except Exception as error:  # torch.load raises many kinds, and a damaged state leads to many more
            raise ValueError(f"Physarum.load: {path} is not a state that Physarum.save wrote: {error}") from error
        return sim


def _triton() -> Any:
    from pinnfuse.kernels import physarum

    return physarum
