import os
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "reference"


@pytest.fixture(scope="session", autouse=True)
def fresh_cache(tmp_path_factory):
    """A cache for this run of the tests, shared by its workers: nothing comes from, or goes to, the user's own."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pinnfuse-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PINNFUSE_CACHE", str(path))
        yield path


@pytest.fixture
def shared():
    """The collected reference files; `open(name)` -> {array name: array}."""
    if not SHARED.is_dir():
        pytest.skip("no collected reference files here")

    def load(name):
        import numpy as np
        from scipy.io import loadmat

        path = SHARED / name
        if path.suffix == ".mat":
            return {key: np.squeeze(value) for key, value in loadmat(path).items() if not key.startswith("__")}
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    return load
