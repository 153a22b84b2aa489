"""What a simulation or a map does: sensitivity, growth, patterns, and how time grows with size."""

from pinnfuse.analysis.chemotaxis import Chemotaxis, fit_chemotaxis
from pinnfuse.analysis.linear import LinearPhysarum, linear_physarum
from pinnfuse.analysis.lyapunov import average_sensitivity, growth_rate, largest_lyapunov
from pinnfuse.analysis.patterns import entropy, roughness, spectrum, spectrum_slope
from pinnfuse.analysis.scaling import Scaling, fit_scaling
from pinnfuse.analysis.spectra import energy_spectrum

__all__ = [
    "Chemotaxis",
    "LinearPhysarum",
    "Scaling",
    "average_sensitivity",
    "energy_spectrum",
    "entropy",
    "fit_chemotaxis",
    "fit_scaling",
    "growth_rate",
    "largest_lyapunov",
    "linear_physarum",
    "roughness",
    "spectrum",
    "spectrum_slope",
]
