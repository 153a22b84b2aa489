"""Palettes, pictures and films: what is in the files, and that there is never half of one."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pinnfuse.simulation import Physarum
from pinnfuse.simulation.physarum import pictures
from pinnfuse.simulation.physarum.movie import film
from pinnfuse.simulation.physarum.palettes import PALETTES, QUALITATIVE, palette
from pinnfuse.simulation.physarum.pictures import exposure, picture, write

SMALL = {"shape": (20, 30), "agents": 100, "backend": "torch"}


def frames(count: int, name: str = "slime") -> list[Image.Image]:
    return [picture(torch.full((1, 20, 30), float(k)), 2.0, name, shift=k) for k in range(count)]


@pytest.mark.parametrize("name", PALETTES)
def test_palettes(name) -> None:
    table = palette(name)
    assert table.shape == (256, 3) and table.dtype == np.uint8
    colours = len(np.unique(table, axis=0))
    assert colours <= 16 if name in QUALITATIVE else colours > 150
    end = table[:10] if name in QUALITATIVE else table[-2:-12:-1]  # in at the other end, or back without an edge
    assert np.array_equal(palette(name, 10), np.concatenate([table[10:], end]))
    assert np.array_equal(palette(name, 256 if name in QUALITATIVE else 510), table)


def test_there_are_enough_palettes() -> None:
    assert len(PALETTES) >= 8 and len(QUALITATIVE) >= 3
    with pytest.raises(ValueError, match="Did you mean 'slime'"):
        palette("slimy")


def test_a_picture_shows_the_field() -> None:
    field = torch.zeros(1, 20, 30)
    field[0, 3, 7] = 2.0
    image = picture(field, 2.0, "ice")
    assert image.size == (30, 20) and image.mode == "P"
    pixels = np.asarray(image.convert("RGB"))
    table = palette("ice")
    assert tuple(pixels[0, 0]) == tuple(table[0])
    assert tuple(pixels[3, 7]) == tuple(table[161])  # 255 (1 - 1/e)
    assert picture(torch.rand(1, 200, 100), 1.0, size=50).size == (25, 50)
    two = picture(torch.stack([field[0], torch.zeros(20, 30)]), 2.0)
    assert two.mode == "RGB" and np.asarray(two)[3, 7].sum() > 0 and np.asarray(two)[0, 0].sum() == 0
    with pytest.raises(ValueError, match="brightness"):
        picture(field, 0.0)


def test_exposure_is_four_times_the_steady_mean() -> None:
    sim = Physarum(**SMALL, decay=0.25, deposit=2.0)
    brightness = exposure(sim)
    sim.run(60)
    assert brightness == pytest.approx(4 * float(sim.field.mean()), rel=1e-4)
    assert exposure(Physarum(**SMALL, species=2, decay=0.25, deposit=2.0)) == pytest.approx(brightness / 2)
    assert exposure(Physarum(**SMALL, deposit=0.0)) == 1.0 and exposure(Physarum(**SMALL, decay=0.0)) > 0


def test_a_gif_holds_the_frames_and_their_turning_palettes(tmp_path) -> None:
    made = frames(5)
    with Image.open(write(tmp_path / "a.gif", made, fps=20)) as image:
        assert (image.n_frames, image.size, image.info["duration"], image.info["loop"]) == (5, (30, 20), 50, 0)
        for k, frame in enumerate(made):
            image.seek(k)
            assert np.array_equal(np.asarray(image.convert("RGB")), np.asarray(frame.convert("RGB")))


def test_png_and_apng(tmp_path) -> None:
    made = frames(4)
    with Image.open(write(tmp_path / "a.png", iter(made))) as image:
        assert np.array_equal(np.asarray(image.convert("RGB")), np.asarray(made[-1].convert("RGB")))
    with Image.open(write(tmp_path / "a.apng", made)) as image:
        assert image.n_frames == 4 and image.size == (30, 20)


FFMPEG = """#!{python}
import json, sys
pixels = sys.stdin.buffer.read()
if {fails}:
    sys.exit("Unknown encoder")
json.dump([sys.argv[1:], len(pixels), pixels[0]], open(sys.argv[-1], "w"))
"""


def stand_in(folder: Path, monkeypatch, fails: bool = False) -> None:
    program = folder / "ffmpeg"
    program.write_text(FFMPEG.format(python=sys.executable, fails=fails))
    program.chmod(0o755)
    monkeypatch.setattr(pictures.shutil, "which", lambda name: str(program))


def test_mp4_gets_every_frame(tmp_path, monkeypatch) -> None:
    stand_in(tmp_path, monkeypatch)
    made = [frame.crop((0, 0, 29, 20)) for frame in frames(3)]
    command, count, _ = json.loads(write(tmp_path / "a.mp4", made, fps=25).read_text())
    assert count == 3 * 28 * 20 * 3 and command[command.index("-s") + 1] == "28x20" and "25" in command


def test_a_failing_ffmpeg_leaves_nothing(tmp_path, monkeypatch) -> None:
    stand_in(tmp_path, monkeypatch, fails=True)
    with pytest.raises(ValueError, match="ffmpeg failed: Unknown encoder"):
        write(tmp_path / "a.mp4", frames(2))
    assert [p.name for p in tmp_path.iterdir()] == ["ffmpeg"]


def test_an_interrupted_ffmpeg_is_stopped(tmp_path, monkeypatch) -> None:
    """It would write its file after that was removed."""
    stand_in(tmp_path, monkeypatch)
    started = []
    popen = pictures.subprocess.Popen
    monkeypatch.setattr(pictures.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[0])

    def interrupted():
        yield frames(1)[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a.mp4", interrupted())
    assert started[0].returncode is not None and [p.name for p in tmp_path.iterdir()] == ["ffmpeg"]


def test_a_film_and_its_last_picture(tmp_path, monkeypatch) -> None:
    """A film of one kind is written as it is made; nothing is held for the picture."""
    stand_in(tmp_path, monkeypatch)
    sim = Physarum(**SMALL)
    monkeypatch.setattr("pinnfuse.simulation.physarum.movie.MOST_MEMORY", 10.0)
    film(sim, 4, [tmp_path / "a.mp4", tmp_path / "a.png"], every=1)
    assert json.loads((tmp_path / "a.mp4").read_text())[1] == 4 * 30 * 20 * 3
    with Image.open(tmp_path / "a.png") as image:
        expected = picture(sim.field, exposure(sim))
        assert np.array_equal(np.asarray(image.convert("RGB")), np.asarray(expected.convert("RGB")))
    with pytest.raises(ValueError, match="4 frames would take"):
        film(sim, 4, [tmp_path / "a.gif"], every=1)


def test_mp4_without_ffmpeg_says_what_to_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pictures.shutil, "which", lambda name: None)
    monkeypatch.setattr(pictures.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="apt install ffmpeg"):
        film(Physarum(**SMALL), 3, [tmp_path / "a.mp4"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": ["a.jpg"]}, "must end in one of"),
        ({"palettes": ["non"]}, "unknown 'non'"),
        ({"steps": 0}, "must be positive"),
        ({"every": 0}, "must be positive"),
        ({"fps": 0.0}, "`fps` must lie in"),
        ({"fps": float("nan")}, "`fps` must lie in"),
        ({"fps": 1e-3}, "`fps` must lie in"),
    ],
)
def test_a_wrong_film_does_not_start(options, message, tmp_path) -> None:
    sim = Physarum(**SMALL)
    options = {"steps": 3, "paths": ["a.gif"]} | options
    options["paths"] = [tmp_path / p for p in options["paths"]]
    with pytest.raises(ValueError, match=message):
        film(sim, **options)
    assert sim.steps_done == 0 and not list(tmp_path.iterdir())


def test_an_unwritable_folder_is_known_before_the_run(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    sim = Physarum(**SMALL)
    with pytest.raises(ValueError, match="cannot write"):
        film(sim, 3, [tmp_path / "a.gif", tmp_path / "file" / "b.gif"])
    assert sim.steps_done == 0 and [p.name for p in tmp_path.iterdir()] == ["file"]


def test_an_interrupted_film_leaves_nothing(tmp_path) -> None:
    def watch(done: int, frame: Image.Image) -> None:
        if done > 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        film(Physarum(**SMALL), 30, [tmp_path / "a.gif"], every=2, watch=watch)
    assert not list(tmp_path.iterdir())


def test_a_film(tmp_path) -> None:
    seen: list[int] = []
    sim = Physarum(**SMALL)
    options = {"palettes": ["slime", "ice"], "cycle": 16, "watch": lambda done, frame: seen.append(done)}
    gif, png = film(sim, 25, [tmp_path / "a.gif", tmp_path / "b.png"], every=10, **options)
    assert seen == [10, 20, 25] and sim.steps_done == 25
    with Image.open(gif) as a, Image.open(png) as b:
        assert a.n_frames == 3
        a.seek(2)
        assert np.array_equal(np.asarray(a.convert("RGB")), np.asarray(b.convert("RGB")))
