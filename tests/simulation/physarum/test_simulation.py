"""The simulation as a whole: repeatable, resumable, inside its walls; and what it says to wrong input."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from pinnfuse import BackendUnavailable
from pinnfuse.simulation import Physarum
from pinnfuse.simulation.physarum import read_image, to_levels

SMALL = {"shape": (20, 24), "agents": 200, "backend": "torch", "jitter": 10.0}


def same(a: Physarum, b: Physarum) -> bool:
    pairs = ((a.positions, b.positions), (a.headings, b.headings), (a.field, b.field))
    return all(torch.equal(x, y) for x, y in pairs)


def test_a_seed_is_a_run() -> None:
    first, second, other = (Physarum(**SMALL, seed=seed).run(20) for seed in (7, 7, 8))
    assert same(first, second) and not same(first, other)
    assert first.steps_done == 20 == int(first.colony.clock[0])


def test_sorting_changes_the_order_only() -> None:
    plain, sorted_ = Physarum(**SMALL, species=2), Physarum(**SMALL, species=2)
    plain.run(23)
    sorted_.run(23, sort_every=5)
    assert same(plain, sorted_)
    assert not torch.equal(sorted_.colony.identity, plain.colony.identity)


@pytest.mark.parametrize("maps", [False, True])
def test_a_resumed_run_gives_the_same_bits(maps, tmp_path) -> None:
    generator = torch.Generator().manual_seed(0)
    options = {
        "food": torch.rand(20, 24, generator=generator),
        "obstacles": torch.rand(20, 24, generator=generator) < 0.1,
    }
    options = SMALL | (options if maps else {}) | {"species": 2, "attraction": torch.tensor([[1.0, -0.5], [-0.5, 1.0]])}
    straight = Physarum(**options).run(15)
    half = Physarum(**options, seed=0).run(7)
    half.set(decay=0.3)
    half.set(decay=0.1)
    half.save(tmp_path / "state.pt")
    resumed = Physarum.load(tmp_path / "state.pt", backend="torch")
    assert resumed.steps_done == 7
    assert same(resumed.run(8), straight)
    assert [p.name for p in tmp_path.iterdir()] == ["state.pt"]


def test_walls_and_obstacles_hold() -> None:
    obstacles = torch.zeros(20, 24)
    obstacles[5:10, 5:12] = 1
    sim = Physarum(**SMALL, boundary="walls", obstacles=obstacles, speed=1.7)
    for _ in range(40):
        sim.step()
        x, y = sim.positions.unbind(1)
        assert (x >= 0).all() and (x < 24).all() and (y >= 0).all() and (y < 20).all()
        assert not obstacles[y.long(), x.long()].any()
        assert not sim.field[0][obstacles > 0].any()


def test_species_leave_their_own_trail_and_follow_the_matrix() -> None:
    """Each follows the other: the field of the other is sensed, nothing else."""
    field = torch.rand(2, 20, 24)
    crossed = Physarum(**SMALL, species=2, attraction=torch.tensor([[0.0, 1.0], [1.0, 0.0]]), field=field)
    own = Physarum(**SMALL, species=2, field=field.flip(0))
    crossed.step()
    own.step()
    assert torch.equal(crossed.headings, own.headings)
    assert crossed.colony.trails[0].sum(dim=(1, 2)).tolist() == [100, 100]


def test_food_is_added_everywhere() -> None:
    sim = Physarum((12, 12), 1, food=torch.ones(12, 12), deposit=0.0, decay=0.5, backend="torch")
    sim.set(food=2.0)
    sim.run(40)
    assert torch.allclose(sim.field, torch.full((1, 12, 12), 2.0), rtol=1e-6)  # f = 0.5 (f + 2)


def test_parameters_change_during_a_run() -> None:
    sim = Physarum(**SMALL)
    sim.set(speed=0.0, jitter=0.0)
    before = sim.positions
    sim.run(3)
    assert torch.equal(sim.positions, before)
    with pytest.raises(ValueError, match="Did you mean 'speed'"):
        sim.set(sped=1.0)


# -- starts


@pytest.mark.parametrize("mode", ["uniform", "point", "ring", "disc", "image"])
def test_starts(mode) -> None:
    weights = torch.zeros(40, 60)
    weights[10:20, 30:40], weights[30, 5] = 1.0, 100.0
    sim = Physarum((40, 60), 4000, spawn=mode, spawn_radius=12.0, spawn_weights=weights, backend="torch")
    x, y = sim.positions.unbind(1)
    dx, dy = x - 30, y - 20
    distance = (dx**2 + dy**2).sqrt()
    if mode == "uniform":
        counts = torch.histc(x, 6, 0, 60), torch.histc(y, 4, 0, 40)
        assert all(((c - c.mean()).abs() < 4 * c.mean().sqrt()).all() for c in counts)
    elif mode == "point":
        assert (distance == 0).all()
        assert (torch.histc(sim.headings, 4, 0, 2 * math.pi) - 1000).abs().max() < 120
    elif mode == "ring":
        assert (distance - 12).abs().max() < 2e-3
        assert (dx * sim.headings.cos() + dy * sim.headings.sin()).abs().max() < 2e-2  # along the circle
    elif mode == "disc":
        assert distance.max() <= 12.001
        assert abs(float((distance < 12 / math.sqrt(2)).double().mean()) - 0.5) < 0.035  # even in area
        inward = -(dx * sim.headings.cos() + dy * sim.headings.sin())
        assert torch.allclose(inward, distance, atol=1e-2)
    else:
        inside = (x >= 30) & (x < 40) & (y >= 10) & (y < 20)
        spot = (x.long() == 5) & (y.long() == 30)
        assert (inside | spot).all() and abs(float(spot.double().mean()) - 0.5) < 0.035


def test_jitter_spreads_the_start() -> None:
    x, y = Physarum((40, 60), 4000, spawn="point", spawn_jitter=3.0, backend="torch").positions.unbind(1)
    assert 2.9 < (x - 30).abs().max() <= 3 and 2.9 < (y - 20).abs().max() <= 3 and abs(float(x.mean()) - 30) < 0.15


def test_from_image(tmp_path) -> None:
    pixels = (np.arange(30 * 40).reshape(30, 40) % 256).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "start.png")
    sim = Physarum.from_image(tmp_path / "start.png", strength=3.0, agents=10, backend="torch")
    assert sim.field.shape == (1, 30, 40)
    assert float(sim.field.mean()) == pytest.approx(3 * pixels.mean() / 255, rel=1e-6)
    assert read_image(tmp_path / "start.png", (15, 20)).shape == (15, 20)
    bright = Physarum.from_image(tmp_path / "start.png", agents=500, spawn="image", backend="torch")
    x, y = bright.positions.long().unbind(1)
    assert pixels[y, x].min() > 0


@pytest.mark.parametrize(
    "kind", ["L", "16 bits", "32 bits", "float", "palette", "alpha", "palette with alpha", "turned"]
)
def test_every_kind_of_image_has_its_brightness(kind, tmp_path) -> None:
    """A ramp from dark (or transparent) to bright, 8 pixels high and 16 wide."""
    ramp = np.tile(np.linspace(0, 1, 16), (8, 1))
    bytes_ = (ramp * 255).round().astype(np.uint8)
    image, options, path = Image.fromarray(bytes_), {}, tmp_path / "i.png"
    if kind == "16 bits":
        image = Image.fromarray((ramp * 65535).round().astype(np.uint16))
    elif kind == "32 bits":
        image, path = Image.fromarray((ramp * 65535).round().astype(np.int32)), tmp_path / "i.tif"
    elif kind == "float":
        image, path = Image.fromarray(ramp.astype(np.float32)), tmp_path / "i.tif"
    elif kind == "palette":
        image = image.quantize(16)
    elif kind == "alpha":
        image = Image.fromarray(np.dstack([np.full((8, 16, 3), 255, np.uint8), bytes_]))
    elif kind == "palette with alpha":
        image = Image.fromarray(np.arange(16, dtype=np.uint8)[None].repeat(8, 0), "P")
        image.putpalette([255] * 48)
        options = {"transparency": bytes(bytes_[0])}
    elif kind == "turned":
        image = image.transpose(Image.Transpose.ROTATE_90)
        options = {"exif": Image.Exif()}
        options["exif"][0x112] = 6  # turn by 90 degrees to the right to see it
    image.save(path, **options)
    assert torch.allclose(read_image(path), torch.from_numpy(ramp).float(), atol=2e-3)
    assert float(read_image(path, (4, 8)).mean()) == pytest.approx(0.5, abs=1e-3)


def test_levels() -> None:
    levels = to_levels(torch.rand(50, 40), 7)
    assert levels.unique().tolist() == list(range(7))
    assert (levels.flatten().long().bincount() - 2000 / 7).abs().max() <= 1
    mostly_zero = torch.zeros(10, 10)
    mostly_zero[0] = 1.0
    assert torch.equal(to_levels(mostly_zero, 2), (mostly_zero > 0).byte())  # the median is zero
    assert not to_levels(torch.ones(4, 4), 3).any()
    for wrong in (1, 257, 2.5):
        with pytest.raises(ValueError, match="2..256"):
            to_levels(torch.rand(4, 4), wrong)
    with pytest.raises(ValueError, match="`field` must be finite"):
        to_levels(torch.full((4, 4), float("nan")), 3)


# -- half precision


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_drift_of_the_mean_over_1000_steps(dtype, bound) -> None:
    """The mean against its exact recursion in float64, m <- keep (m + deposit). Rounding to nearest has no bias, so the
    drift stays at about one unit in the last place of the type: 6e-8, 5e-4, 4e-3."""
    sim = Physarum((32, 32), 300, dtype=dtype, backend="torch", decay=0.1)
    mean = 0.0
    for _ in range(1000):
        sim.step()
        mean = 0.9 * (mean + 300 / 32**2)
    assert abs(float(sim.field.double().mean()) / mean - 1) < bound


# -- wrong input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": -1.0}, "`speed` must be finite and >= 0; got -1.0"),
        ({"decay": float("nan")}, r"`decay` must be in \[0, 1\]; got nan"),
        ({"decay": 1.5}, r"`decay` must be in \[0, 1\]"),
        ({"deposit": float("inf")}, r"`deposit` must be in \[0, 1e\+12\]; got inf"),
        ({"sensor_distance": 21.0}, "at most the shorter side"),
        ({"speed": [1.0, 2.0]}, "or one per species, 1; got 2"),
        ({"steering": "jonse"}, "Did you mean 'jones'"),
        ({"boundary": "wall"}, "Did you mean 'walls'"),
        ({"spawn": "circle"}, "unknown `spawn`"),
        ({"spawn": "image"}, "needs weights"),
        ({"spawn_radius": 11.0}, "`spawn_radius` must lie in"),
        ({"species": 2, "attraction": torch.eye(3)}, r"\[2, 2\]; got \[3, 3\]"),
        ({"positions": torch.tensor([[24.0, 3.0]]), "agents": 1}, "the first is 0"),
        ({"positions": torch.tensor([[float("nan"), 3.0]]), "agents": 1}, "`positions` must be finite"),
        ({"positions": torch.rand(3, 2), "agents": 2}, r"\[3, 2\]"),
        ({"headings": torch.rand(200)}, "go with `positions`"),
        ({"field": torch.rand(3, 3)}, "`field` must be"),
        ({"field": torch.full((20, 24), float("nan"))}, "`field` must be finite"),
        ({"food": torch.rand(3, 3)}, "`food` must be"),
        ({"food": -torch.ones(20, 24)}, r"`food` must be finite, in \[0,"),
        ({"obstacles": torch.ones(20, 24)}, "not all be zero"),
        ({"shape": (20, 0)}, "`shape` must be"),
        ({"shape": (20, 20000)}, "1..16384"),
        ({"shape": 20}, "`shape` must be"),
        ({"agents": 0}, "`agents` must be a whole number"),
        ({"agents": 2.0}, "`agents` must be a whole number"),
        ({"agents": 2**31 - 1, "species": 64, "shape": (16384, 16384)}, "need about .* GB"),
        ({"speed": None}, "`speed` must be a number, or one per species"),
        ({"speed": ["fast"]}, "`speed` must be a number"),
        ({"decay": 10**400}, r"`decay` must be in \[0, 1\]; got inf"),
        ({"deposit": 1e38}, "`deposit` must be in"),
        ({"attraction": [[float("nan")]]}, "`attraction` must be finite"),
        ({"attraction": [[1, 2], [3]]}, "`attraction` must be a tensor or nested lists"),
        ({"field": "x"}, "`field` must be a tensor"),
        ({"field": torch.ones(20, 24, dtype=torch.complex64)}, "`field` must be real"),
        ({"field": torch.full((20, 24), 1e5), "dtype": torch.float16}, "`field` must fit torch.float16"),
        ({"food": torch.full((20, 24), 1e39, dtype=torch.float64)}, "`food` must be finite"),
        ({"spawn_jitter": "x"}, "`spawn_jitter` must lie in"),
        ({"spawn": "image", "spawn_weights": [[1.0]]}, "`spawn_weights` must be"),
        ({"device": "tpu"}, "`device` 'tpu' cannot be used"),
        ({"device": "meta"}, "`device` 'meta' cannot be used"),
        ({"seed": -1}, "`seed` must be"),
        ({"dtype": torch.int32}, "`dtype` must be one of"),
        ({"backend": {"sensing": "torch"}}, "unknown stage"),
        ({"backend": "cuda"}, "unknown `backend`"),
    ],
    ids=lambda v: str(list(v)[0]) if isinstance(v, dict) else "",
)
def test_wrong_input(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        Physarum(**SMALL | options)


@pytest.mark.parametrize("steps", [-1, 2.5, float("nan"), None, "3", True])
def test_steps_are_whole_numbers(steps) -> None:
    for arguments in ((steps,), (3, steps)):
        sim = Physarum(**SMALL)
        with pytest.raises(ValueError, match="must be a whole number"):
            sim.run(*arguments)
        assert sim.steps_done == 0
    assert Physarum(**SMALL).run(0).steps_done == 0


def test_numbers_of_any_kind(tmp_path) -> None:
    """NumPy's and torch's become Python's: a checkpoint holds nothing else."""
    kinds = {"speed": np.float32(0.5), "decay": torch.tensor(0.25), "deposit": [np.int64(2)], "jitter": 5}
    sim = Physarum(**SMALL | kinds | {"agents": np.int64(50), "field": np.ones((20, 24), dtype=np.uint16)})
    sim.save(tmp_path / "a.pt")
    assert Physarum.load(tmp_path / "a.pt").parameters == sim.parameters
    assert sim.parameters.speed == 0.5 and sim.parameters.deposit == [2.0]


def test_an_explicit_triton_does_not_fall_back() -> None:
    with pytest.raises(BackendUnavailable, match="needs a CUDA card|float64"):
        Physarum(**SMALL | {"backend": "triton"}, dtype=torch.float64)


def test_wrong_images(tmp_path) -> None:
    with pytest.raises(ValueError, match="no image at"):
        read_image(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match="no image that Pillow reads"):
        read_image(tmp_path / "text.png")
    Image.new("1", (20000, 3)).save(tmp_path / "wide.png")
    with pytest.raises(ValueError, match="Scale it down"):
        read_image(tmp_path / "wide.png")
    Image.fromarray(np.full((3, 3), 2.0, np.float32)).save(tmp_path / "bright.tif")
    with pytest.raises(ValueError, match="must have numbers in"):
        read_image(tmp_path / "bright.tif")
    for shape in ((0, 5), (5,), (2.5, 3), (100_000, 100_000)):
        with pytest.raises(ValueError, match="`shape` must be"):
            read_image(tmp_path / "bright.tif", shape)
    with pytest.raises(ValueError, match="no file at"):
        Physarum.load(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("no state")
    with pytest.raises(ValueError, match="is not a state"):
        Physarum.load(tmp_path / "text.pt")


def test_a_damaged_state_is_refused(tmp_path) -> None:
    sim = Physarum(**SMALL, food=torch.ones(20, 24)).run(2)
    before = sim.state_dict()
    for name, value in (("x", 24 * 65536), ("y", -1), ("kind", 1), ("field", float("nan")), ("clock", -1)):
        state = sim.state_dict()
        state[name].view(-1)[1] = value
        with pytest.raises(ValueError, match=f"the state's {name} must be"):
            sim.load_state_dict(state)
    for name, value in (("food", -torch.ones(20, 24)), ("parameters", before["parameters"] | {"speed": -1.0})):
        with pytest.raises(ValueError, match="food|speed"):
            sim.load_state_dict(before | {"x": before["x"] * 0, name: value})
    after = sim.state_dict()
    assert all(torch.equal(after[n], v) for n, v in before.items() if torch.is_tensor(v))
    for name in before:  # without one, or with something else in its place
        without = {n: v for n, v in before.items() if n != name}
        for state in ([] if name == "food" else [without]) + [before | {name: "x"}]:
            torch.save(state, tmp_path / "bad.pt")
            with pytest.raises(ValueError, match="is not a state that"):
                Physarum.load(tmp_path / "bad.pt")


def test_a_state_brings_its_seed() -> None:
    """A colony of another seed goes on like the one that was saved, and says so in its own states."""
    first, other = Physarum(**SMALL, seed=2**63 - 1).run(5), Physarum(**SMALL, seed=4)
    other.load_state_dict(first.state_dict())
    assert same(other.run(5), first.run(5)) and other.state_dict()["settings"]["seed"] == 2**63 - 1


def test_a_state_of_a_thin_field(tmp_path) -> None:
    """Whose sensors are nearer than the default of 9 cells."""
    sim = Physarum((1, 40), 30, sensor_distance=1.0, backend="torch").run(3)
    sim.save(tmp_path / "a.pt")
    assert same(Physarum.load(tmp_path / "a.pt", backend="torch").run(3), sim.run(3))


def test_a_state_of_other_settings_is_refused() -> None:
    state = Physarum(**SMALL).state_dict()
    with pytest.raises(ValueError, match="agents = 200"):
        Physarum(**SMALL | {"agents": 100}).load_state_dict(state)
