"""`pinnfuse.selftest()` says yes, and says no when an operator is wrong."""

import pinnfuse
from pinnfuse.compat import flashpde


def test_it_passes(device):
    found = pinnfuse.selftest(device)
    assert found and f"pinnfuse {pinnfuse.__version__}" in str(found) and "success" in str(found)


def test_a_wrong_operator_fails(monkeypatch):
    monkeypatch.setattr(flashpde, "fused_operator", lambda x, boundary: 1.0001 * x)
    found = pinnfuse.selftest("cpu")
    assert not found and "failed" in str(found) and "pinnfuse verify" in str(found)


def test_what_breaks_is_in_the_text(monkeypatch):
    def broken(x, boundary):
        raise RuntimeError("no driver\nmore")

    monkeypatch.setattr(flashpde, "fused_operator", broken)
    assert str(pinnfuse.selftest("cpu")).endswith("failed: RuntimeError: no driver")
