"""What surrogates learn, by name: `get("darcy", points=85)`."""

from pinnfuse.tasks.random_fields import neumann_field, periodic_field
from pinnfuse.tasks.registry import available, get, options
from pinnfuse.tasks.spec import SurrogateSpec, one_adam
from pinnfuse.tasks.task import MapTask, Residual, Scales, Task, WindowTask, relative_errors

__all__ = [
    "MapTask",
    "Residual",
    "Scales",
    "SurrogateSpec",
    "Task",
    "WindowTask",
    "available",
    "get",
    "neumann_field",
    "one_adam",
    "options",
    "periodic_field",
    "relative_errors",
]
