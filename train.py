"""Train a physics-informed network on a problem, and check it against the reference solution.

python train.py                                         # lid-driven cavity at Re 100
python train.py --pde burgers --seed 1
python train.py --config configs/burgers.yaml --network.width 64 --out runs/mine
python train.py --resume runs/mine
python train.py --list                                  # PDEs, problems, networks, optimisers
python train.py --pde burgers --help                    # every option, with its default for that problem
"""

import sys

from pinnfuse.training.main import main

if __name__ == "__main__":
    sys.exit(main())
