"""The `pinnfuse` command: doctor, verify, bench. Training is `train.py`."""
