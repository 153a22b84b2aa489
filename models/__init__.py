"""Networks as plain `nn.Module`s, and thin LightningModules that train them; imported as `pinnfuse.models`."""
