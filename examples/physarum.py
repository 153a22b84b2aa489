"""Physarum: two species that avoid each other between walls, from a ring; a picture, and numbers of the pattern.

python examples/physarum.py physarum.png
"""

import sys

import torch

from pinnfuse.analysis import entropy, roughness
from pinnfuse.simulation import Physarum
from pinnfuse.simulation.physarum.movie import film

sim = Physarum(
    (200, 300),
    agents=12_000,
    species=2,
    attraction=torch.tensor([[1.0, -0.6], [-0.6, 1.0]]),  # each follows itself and avoids the other
    boundary="walls",
    spawn="ring",
    seed=1,
    device="cuda" if torch.cuda.is_available() else "cpu",
)
film(sim, steps=200, paths=sys.argv[1:], every=50)
sim.set(decay=0.02)  # from the next step on; nothing is compiled
sim.run(100)
for kind, field in enumerate(sim.field):
    print(f"species {kind}: entropy {float(entropy(field)):.3f}, roughness {float(roughness(field)):.3f}")
