"""Command line and YAML to a `RunConfig`.

The parser is made twice: first only PDE, problem, model and their options are looked up, then every option gets its
type and default from the problem and the network that were chosen.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import torch
import yaml
from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings

from pinnfuse import models, optimizers, problems, tasks
from pinnfuse.backends import BACKENDS
from pinnfuse.errors import did_you_mean, nearest
from pinnfuse.files import write_whole
from pinnfuse.optimizers import Decay, Phase
from pinnfuse.training.config import Plain, RunConfig
from pinnfuse.training.surrogate_config import SurrogateConfig

# arguments of networks that a problem or a task gives
_SECTIONS = ("options", "network", "training", "trainer", "record")
_LARGEST_SEED = 2**32 - 1  # that Lightning takes
_FROM_PROBLEM = {"in_features", "out_features", "bounds", "periods"}
_FROM_TASK = {"in_channels", "out_channels", "dimension", "periodic"}


class _Yaml(yaml.SafeLoader):
    """Reads 1e-3 as a number, as the parser of the options does; YAML 1.1 asks for 1.0e-3."""


_Yaml.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))


def parse(arguments: Sequence[str]) -> RunConfig:
    """The configuration of `train.py` for these arguments.

    Raises:
        ValueError: a name that does not exist (with the nearest one), or a value of the wrong type.
    """
    arguments = _files_first(_with_resumed(_normalised(arguments)))
    names = _first_look(arguments)
    parser = make_parser(**names)
    try:
        config = parser.parse_args(arguments)
    except ArgumentError as error:
        message = str(error)
        known = [option for action in parser._actions for option in action.option_strings]
        unknown = re.match(r"unrecognized arguments: (--\S+?)(=|\s|$)", message, re.IGNORECASE)
        stray = re.search(r"(?:^O|does not accept o)ption '([\w.]+)'|Option '([\w.]+)' is not accepted", message)
        if unknown:
            message = f"there is no option {unknown[1]}. {did_you_mean(unknown[1], known)}--help shows all."
        elif stray:
            names = vars(parser.get_defaults(skip_validation=True).as_flat())
            known = [part for name in names for part in name.split(".")]
            known += [field.name for kind in (Phase, Decay) for field in fields(kind)]  # inside of lists
            name = stray[1] or stray[2]
            message = f"there is no option {name!r}. {did_you_mean(name.split('.')[-1], known)}--help shows all."
        raise ValueError(message) from error
    return _typed(config)


def load(path: Path) -> RunConfig:
    """The configuration in a YAML file, e.g. the `config.yaml` that every run writes."""
    return parse(["--config", str(path)])


def save(config: RunConfig, path: Path) -> None:
    """Write the configuration as YAML, without the run's folder: `train.py --config FILE` reruns it elsewhere."""
    write_whole(path, yaml.safe_dump(asdict(config) | {"out": None, "resume": None}, sort_keys=False))


def changed(config: RunConfig) -> list[str]:
    """What a resumed run has been given that differs from its own `config.yaml`: ["training.interior 64 -> 80", ...].

    Raises:
        ValueError: other windows of time, whose networks are others, or another seed, which the checkpoint holds.
    """
    if config.resume is None:
        return []
    path = Path(config.out or "") / "config.yaml"
    before = load(path)
    if before.seed != config.seed:
        raise ValueError(
            f"--resume: {path.parent} has seed {before.seed}, which its points go on from; got {config.seed}. Leave it "
            "out, or start anew in another folder."
        )
    if not is_surrogate(config.pde, config.model) and before.training.windows != config.training.windows:
        raise ValueError(
            f"--resume: {path.parent} has training.windows {before.training.windows}; got {config.training.windows}. "
            "Leave it out, or start anew in another folder."
        )
    old, new = (_flat(asdict(c) | dict.fromkeys(("out", "resume", "max_steps"))) for c in (before, config))
    return [f"{key} {old.get(key)} -> {new.get(key)}" for key in {**old, **new} if old.get(key) != new.get(key)]


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """{"training.interior": 4096, ...}"""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else None
    if not items:
        return {prefix: values}
    return {k: v for key, value in items for k, v in _flat(value, f"{prefix}.{key}" if prefix else str(key)).items()}


def is_surrogate(pde: str, model: str | None = None) -> bool:
    """The model, or a PDE that has a task but no problem, says that a neural operator is trained."""
    return model in models.OPERATORS or (model is None and pde in tasks.available() and pde not in problems.available())


def make_parser(
    pde: str = "navier_stokes",
    problem: str | None = None,
    model: str | None = None,
    options: dict[str, Any] | None = None,
) -> ArgumentParser:
    """The parser whose types and defaults are those of one problem and one network, or of a task and an operator."""
    if model is not None and model not in (known := [*models.available(), *models.OPERATORS]):
        raise ValueError(f"--model: unknown model {model!r}. {nearest(model, known)}")
    if is_surrogate(pde, model):
        if problem is not None:
            raise ValueError(f"--problem: the task of a surrogate is that of its PDE; got {problem!r}. Leave it out.")
        task = tasks.get(pde, **(options or {}))
        description = "Train a neural operator on samples of a PDE, with its residual in the loss."
        parser = _parser(SurrogateConfig, task, tasks.options(pde), model, description)
        parser.set_defaults(pde=pde)
        return parser
    if pde in tasks.available() and pde not in problems.available():
        raise ValueError(f"--model: {pde!r} has a task for surrogates, {list(models.OPERATORS)}; got {model!r}.")
    if pde not in problems.available():
        raise ValueError(f"--pde: {problems.unknown(pde, tasks.available())}")
    case = problems.get(pde, problem, **(options or {}))
    description = "Train a physics-informed network on a problem with a reference solution."
    parser = _parser(RunConfig, case, problems.options(pde, problem), model, description)
    parser.set_defaults(pde=pde, problem=case.name)
    return parser


def _parser(
    kind: type[RunConfig],
    case: problems.Problem | tasks.Task,
    options: dict[str, inspect.Parameter],
    model: str | None,
    description: str,
) -> ArgumentParser:
    name = model or case.model.name
    surrogate = kind is SurrogateConfig
    network = models.operator(name) if surrogate else models.get(name)
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(prog="train.py", description=description, exit_on_error=False)
    parser.add_argument("--config", action="config", help="YAML file with any of the options below")
    parser.add_argument("--list", action="store_true", help="show PDEs, problems, tasks, networks and optimisers")
    parser.add_class_arguments(kind, skip={"options", "network", "trainer", "training"})
    for key, option in options.items():
        parser.add_argument(f"--options.{key}", type=option.annotation, default=option.default)
    parser.add_class_arguments(network, "network", skip=_FROM_TASK if surrogate else _FROM_PROBLEM, instantiate=False)
    if name == case.model.name:
        parser.set_defaults({f"network.{key}": value for key, value in case.model.kwargs.items()})
    training: Any = case.training
    if isinstance(case, problems.Problem) and name != case.model.name:  # may have too many for a dense optimiser
        with torch.random.fork_rng(devices=[]):
            parameters = sum(p.numel() for p in models.for_problem(case, name).parameters())
        training = replace(training, phases=optimizers.for_size(training.phases, parameters))
    parser.add_argument("--training", type=type(training), default=training)
    parser.add_argument(
        "--trainer", type=dict[str, Plain], default={}, help="more arguments of lightning.pytorch.Trainer"
    )
    parser.set_defaults(model=name)
    for group in parser._action_groups:  # titles are first sentences of docstrings
        group.title = _without_formulas(group.title)
    return parser


def _without_formulas(text: str | None) -> str | None:
    r"""`Gated network, $a = s \odot p$ with $s = ...$:` as `Gated network`: a terminal does not typeset."""
    return re.split(r"[,:]?\s*\$|\. Source", text, maxsplit=1)[0] if text else text


def _normalised(arguments: Sequence[str]) -> list[str]:
    """`--max-steps` as `--max_steps`: fields of dataclasses have no dashes."""
    out = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        out.append(option.replace("-", "_").replace("__", "--", 1) + equals + value if option[:2] == "--" else argument)
    return out


def _files_first(arguments: Sequence[str]) -> list[str]:
    """`--config` before all other options: what is typed counts more than what a file says, whatever the order."""
    files: list[str] = []
    rest: list[str] = []
    k = 0
    while k < len(arguments):
        size = 2 if arguments[k] == "--config" else 1
        (files if arguments[k].partition("=")[0] == "--config" else rest).extend(arguments[k : k + size])
        k += size
    return files + rest


def _with_resumed(arguments: list[str]) -> list[str]:
    """`--resume RUN` starts from the configuration of that run, and writes into its folder."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--resume")
    resume = parser.parse_known_args(arguments)[0].resume
    if resume is None:
        return arguments
    path = Path(resume)
    if not path.exists():
        raise ValueError(
            f"--resume: {resume} is not a run: nothing is there. Give a run's folder, or a .ckpt file in it."
        )
    folder = path if path.is_dir() else path.parent.parent
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"--resume: {resume} is not a run: there is no {folder / 'config.yaml'}")
    if folder.name.startswith("window_") and (folder.parent / "config.yaml").is_file():
        raise ValueError(f"--resume: {resume} is one of several windows of time. Go on with --resume {folder.parent}.")
    return ["--config", str(folder / "config.yaml"), "--out", str(folder), *arguments]


def _first_look(arguments: Sequence[str]) -> dict[str, Any]:
    """PDE, problem, model and the problem's options, from the command line or else from --config files."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", action="append", default=[])
    for name in ("pde", "problem", "model"):
        parser.add_argument(f"--{name}")
    given, rest = parser.parse_known_args(arguments)
    for argument in arguments:
        _refuse_classes({"class_path": argument} if "class_path" in argument else None, "train.py")
    found: dict[str, Any] = {"options": {}}
    for path in given.config:
        if not Path(path).is_file():
            raise ValueError(f"--config: there is no file {path}")
        try:
            text = Path(path).read_text()
            if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
                raise ValueError(f"--config: {path} holds YAML aliases (*name), which are not read. Write values out.")
            content = yaml.load(text, _Yaml)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"--config: {path} is not readable as YAML ({reason}). Mend it or write it anew."
            ) from error
        if not isinstance(content, dict):
            got = "nothing" if content is None else type(content).__name__
            raise ValueError(f"--config: {path} must hold a mapping of options; got {got}.")
        _check_content(content, path)
        found |= {key: content[key] for key in ("pde", "problem", "model") if content.get(key) is not None}
        found["options"] |= content.get("options") or {}
    found |= {key: value for key, value in vars(given).items() if key != "config" and value is not None}
    for option, value in zip(rest, [*rest[1:], ""], strict=False):
        key, equals, inline = option.removeprefix("--options.").partition("=")
        if option.startswith("--options."):
            found["options"][key] = yaml.load(inline if equals else value, _Yaml)
    return found


def _check_content(content: dict[str, Any], path: str) -> None:
    """Names are names and sections are mappings; the parser would go astray on anything else."""
    for key, value in content.items():
        if value is None:
            continue
        kind = str if key in ("pde", "problem", "model") else dict if key in _SECTIONS else object
        if not isinstance(value, kind):
            expected = "a name" if kind is str else "a mapping of options"
            raise ValueError(f"--config: `{key}` in {path} must be {expected}; got {value!r}.")
    _refuse_classes(content, path)


def _refuse_classes(value: Any, where: str) -> None:
    """jsonargparse imports what `class_path` names, wherever it stands; no option of ours is a class."""
    if isinstance(value, dict):
        if "class_path" in value:
            raise ValueError(
                f"{where}: `class_path` is not allowed, options take plain values; got {value['class_path']!r}"
            )
        value = list(value.values())
    for item in value if isinstance(value, list) else []:
        _refuse_classes(item, where)


def _typed(config: Namespace) -> RunConfig:
    """The parsed values as dataclasses; jsonargparse would instantiate any class that a YAML file names."""
    values = config.as_dict()
    values = {key: value for key, value in values.items() if key not in ("config", "list")}
    values |= {key: {} for key in ("options", "trainer") if values.get(key) is None}
    run = _build(SurrogateConfig if is_surrogate(values["pde"], values["model"]) else RunConfig, values)
    if run.backend not in BACKENDS:
        raise ValueError(f"--backend: unknown {run.backend!r}. {nearest(run.backend, BACKENDS)}")
    if run.max_steps is not None and run.max_steps < 0:
        raise ValueError(f"--max-steps: expected 0 or more steps; got {run.max_steps}. Leave it out for all phases.")
    if not 0 <= run.seed <= _LARGEST_SEED:
        raise ValueError(f"--seed: expected a number from 0 to {_LARGEST_SEED}; got {run.seed}. Leave it out for 0.")
    from lightning.pytorch import Trainer

    known = inspect.signature(Trainer).parameters
    for name in run.trainer:
        if name not in known:
            raise ValueError(f"--trainer.{name}: Lightning's Trainer has no such argument. {nearest(name, known)}")
    if run.precision is not None:
        run.training.precision, run.precision = run.precision, None
    return run


def _build(kind: Any, value: Any) -> Any:
    """A dataclass, also inside a list, from a mapping of its fields."""
    if get_origin(kind) is list and isinstance(value, list):
        return [_build(get_args(kind)[0], item) for item in value]
    if not is_dataclass(kind) or not isinstance(value, dict):
        return value
    types = get_type_hints(kind)
    make: Any = kind
    return make(**{key: _build(types.get(key), item) for key, item in value.items()})
