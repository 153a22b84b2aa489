"""Does the installation compute? The article's check, and the same with numbers."""

import torch

import pinnfuse
from pinnfuse.compat import flashpde


def main(size: int = 1024) -> bool:
    print(f"flashpde (pinnfuse) {flashpde.__version__}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(size, size, device=device)
    try:
        result = flashpde.fused_operator(x, boundary="periodic")
    except Exception as fault:
        print(f"failed: {fault}")
        return False
    print(f"success: {list(result.shape)} on {device}" + ("" if device == "cuda" else " (no card: plain torch)"))
    print(pinnfuse.selftest())
    return True


if __name__ == "__main__":
    main()
