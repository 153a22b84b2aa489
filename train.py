"""Train a physics-informed network on a problem, or a neural operator on samples, and check it against solutions.

python train.py                                         # lid-driven cavity at Re 100
python train.py --pde burgers --seed 1
python train.py --config configs/burgers.yaml --network.width 64 --out runs/mine
python train.py --pde darcy --model fno                 # a surrogate; its samples are computed first
python train.py --resume runs/mine
python train.py --list                                  # PDEs, problems, tasks, networks, optimisers
python train.py --pde burgers --help                    # every option, with its default for that problem
"""

import sys

from pinnfuse.training.main import main

if __name__ == "__main__":
    sys.exit(main())
