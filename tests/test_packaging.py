"""The wheel and the sdist hold what the folders hold, and the library imports where Triton and Lightning do not."""

import ast
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

import pinnfuse

LINKED = ("datamodules", "kernels", "models")  # folders at the root, linked into the package
IMPORT_NAMES = {
    "pillow": "PIL",
    "pytorch-optimizer": "pytorch_optimizer",
    "pyyaml": "yaml",
}  # where it differs from the distribution's
LIGHTNING_USERS = ("callbacks", "datamodules", "models", "tracking", "training", "bench.data_parallel")


def package_files(root: Path) -> set[str]:
    """What a distribution must hold, as `pinnfuse/...`, read from the real folders: the links are not followed."""
    roots = {"pinnfuse": root / "pinnfuse"} | {f"pinnfuse/{name}": root / name for name in LINKED}
    return {
        f"{prefix}/{path.relative_to(folder).as_posix()}"
        for prefix, folder in roots.items()
        for directory, _, names in os.walk(folder, followlinks=False)
        for path in (Path(directory, name) for name in names)
        if "__pycache__" not in path.parts
    }


def library_files(root: Path) -> list[Path]:
    return [path for folder in ("pinnfuse", *LINKED) for path in (root / folder).rglob("*.py")]


def imported_modules(path: Path) -> list[tuple[int, str]]:
    """(line, name of the top-level module) of every absolute import, wherever it stands in the file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.lineno, node.module.split(".")[0]))
    return found


def run_python(code: str, root: Path) -> None:
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def distributions(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An sdist of a copy of the sources, and the wheel built from that sdist: (sdist, wheel)."""
    source = tmp_path_factory.mktemp("source") / "pinnfuse"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    for name in ("pinnfuse", *LINKED):
        shutil.copytree(root / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(source / "dist"), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    (sdist,), (wheel,) = (source / "dist").glob("*.tar.gz"), (source / "dist").glob("*.whl")
    return sdist, wheel


@pytest.mark.parametrize("name", LINKED)
def test_the_package_links_to_the_folder_at_the_root(root: Path, name: str) -> None:
    assert os.readlink(root / "pinnfuse" / name) == f"../{name}"


def test_the_wheel_holds_every_file_of_the_package(root: Path, distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == package_files(root)


def test_the_sdist_holds_every_file_of_the_package_and_no_link(root: Path, distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as sdist:
        members = sdist.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    files = {PurePosixPath(member.name).relative_to(member.name.split("/")[0]).as_posix() for member in members}
    assert package_files(root) <= files


def test_what_the_wheel_holds_computes(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        wheel.extractall(tmp_path)
    run_python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import pinnfuse\n"
        f"assert pinnfuse.__file__.startswith({str(tmp_path)!r}), pinnfuse.__file__\n"
        "found = pinnfuse.selftest('cpu')\n"
        "assert found, found",
        tmp_path,
    )


@pytest.fixture(scope="module")
def metadata(distributions: tuple[Path, Path]) -> Message:
    with zipfile.ZipFile(distributions[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(name))


@pytest.fixture(scope="module")
def requirements(metadata: Message) -> dict[str, Requirement]:
    """What `pip install pinnfuse` brings, extras left out."""
    items = map(Requirement, metadata.get_all("Requires-Dist", []))
    return {item.name: item for item in items if "extra" not in str(item.marker)}


def test_the_wheel_states_version_and_licence(metadata: Message) -> None:
    assert metadata["Version"] == pinnfuse.__version__
    assert metadata["License-Expression"] == "Apache-2.0"


def test_triton_is_required_on_linux_only(requirements: dict[str, Requirement]) -> None:
    marker = requirements["triton"].marker
    assert marker is not None
    assert [s for s in ("Linux", "Darwin", "Windows") if marker.evaluate({"platform_system": s})] == ["Linux"]


def test_the_library_imports_only_what_it_requires(root: Path, requirements: dict[str, Requirement]) -> None:
    """What another dependency happens to bring along may be gone with its next release."""
    allowed = sys.stdlib_module_names | {"pinnfuse"} | {IMPORT_NAMES.get(name, name) for name in requirements}
    files = [*root.glob("*.py"), *library_files(root)]
    foreign = [
        f"{path}:{line}: {name}" for path in files for line, name in imported_modules(path) if name not in allowed
    ]
    assert not foreign


def test_import_takes_neither_triton_nor_lightning(root: Path) -> None:
    run_python(
        "import sys, pinnfuse\n"
        "heavy = {'triton', 'lightning', 'pytorch_lightning', 'wandb', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy",
        root,
    )


@pytest.mark.parametrize(
    ("blocked", "may_use_it"),
    [(("triton",), ("kernels",)), (("lightning", "pytorch_lightning"), LIGHTNING_USERS)],
    ids=["triton", "lightning"],
)
def test_every_other_module_imports_where_it_is_not_installed(
    root: Path, blocked: tuple[str, ...], may_use_it: tuple[str, ...]
) -> None:
    run_python(
        f"""
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import pinnfuse

def import_all(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if {{module.name.split(".")[1], module.name.partition(".")[2]}} & set({may_use_it!r}):
            continue
        imported = importlib.import_module(module.name)
        if module.ispkg:
            import_all(imported)

import_all(pinnfuse)
""",
        root,
    )


def test_linked_folders_are_imported_by_their_package_name_only(root: Path) -> None:
    """`import kernels` would make a second copy of every module, hence a second registry."""
    files = [*root.glob("*.py"), *library_files(root)]
    files += [path for folder in ("benchmarks", "tests") for path in (root / folder).rglob("*.py")]
    wrong = [f"{path}:{line}" for path in files for line, name in imported_modules(path) if name in LINKED]
    class_path = re.compile(rf"^\s*-?\s*class_path:\s*[\"']?(?:{'|'.join(LINKED)})\.", re.MULTILINE)
    for path in (root / "configs").rglob("*.yaml"):
        wrong += [f"{path}: {match.group().strip()}" for match in class_path.finditer(path.read_text(encoding="utf-8"))]
    assert not wrong


def test_the_library_does_not_print(root: Path) -> None:
    printing = [
        f"{path}:{node.lineno}"
        for path in library_files(root)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing
