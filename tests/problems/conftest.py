import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def fresh_cache(tmp_path_factory):
    """A cache for this run of the tests, shared by its workers: nothing comes from, or goes to, the user's own."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pinnfuse-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PINNFUSE_CACHE", str(path))
        yield path
