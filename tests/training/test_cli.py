import json
import sys

import pytest
import yaml

from pinnfuse import problems
from pinnfuse.training import cli, config
from pinnfuse.training.main import main

ALL = [(pde, name) for pde, names in problems.available().items() for name in names if name != "cylinder_wake"]


def test_defaults_are_those_of_the_problem():
    run = cli.parse(["--pde", "toy"])
    assert (run.problem, run.model) == ("rod", "mlp")
    assert run.options == {"k": 0.1, "held": "none"}
    assert (run.network["width"], run.network["depth"], run.network["activation"]) == (12, 2, "tanh")
    assert run.training.interior == 64 and [p.optimizer for p in run.training.phases] == ["adam", "ssbroyden"]


def test_another_network_has_its_own_options():
    run = cli.parse(["--pde", "toy", "--model", "piratenet", "--network.fourier_scale", "2"])
    assert run.model == "piratenet" and run.network["fourier_scale"] == 2.0
    assert "residual" not in run.network
    assert [p.optimizer for p in run.training.phases] == ["adam", "lbfgs"]  # too many parameters for ssbroyden
    small = cli.parse(["--pde", "toy", "--model", "siren"])
    assert [p.optimizer for p in small.training.phases] == ["adam", "ssbroyden"]


def test_shortcuts_dashes_and_dotted_options():
    short = ["--pde", "toy", "--precision", "float32", "--max-steps", "7", "--seed=3", "--options.k", "0.2"]
    dotted = ["--training.loss_weights.walls", "5", "--trainer.num_nodes", "2", "--record.log-every", "9"]
    run = cli.parse(short + dotted)
    assert (run.max_steps, run.seed, run.options["k"], run.record.log_every) == (7, 3, 0.2, 9)
    assert run.training.precision == "float32" and run.precision is None
    assert run.training.loss_weights == {"walls": 5.0}
    assert run.trainer == {"num_nodes": 2}


def test_file_then_command_line(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("pde: toy\noptions: {k: 0.3}\nnetwork: {width: 20, depth: 3}\ntraining: {interior: 99}\n")
    run = cli.parse(["--config", str(file), "--network.width", "21"])
    assert run.options == {"k": 0.3, "held": "none"} and run.network["width"] == 21 and run.network["depth"] == 3
    assert run.training.interior == 99 and run.training.boundary == 16


def test_saved_config_is_the_config(tmp_path):
    run = cli.parse(
        ["--pde", "toy", "--network.width", "5", "--training.phases", '[{"optimizer": "adam", "steps": 4}]']
    )
    cli.save(run, tmp_path / "config.yaml")
    assert cli.load(tmp_path / "config.yaml") == run
    assert list(yaml.safe_load((tmp_path / "config.yaml").read_text())) == list(vars(config.RunConfig()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--pde tyo", "unknown PDE 'tyo'. Did you mean 'toy'"),
        ("--pde toy --problem rood", "no problem 'rood'. Did you mean 'rod'"),
        ("--pde toy --model mpl", "unknown model 'mpl'. Did you mean 'mlp'"),
        ("--pde toy --backend tritn", "unknown 'tritn'. Did you mean 'triton'"),
        ("--pde toy --network.widht 3", "no option --network.widht. Did you mean '--network.width'?"),
        ("--pde toy --options.q 3", "no option 'q'. Known: 'held', 'k'"),
        ("--pde toy --trainer.max_stpes 3", "no such argument. Did you mean 'max_steps'"),
        ("--pde toy --training.interior many", "training.interior"),
        ("--pde toy --precision half", "precision"),
        ("--pde toy --training.sampler sobl", "`sampler` must be one of"),
        ("--pde toy --training.phases [{optimizer:adm}]", "phases"),
        ('--pde toy --training.phases [{"optimizer":"adam","stepz":3}]', "no option 'stepz'. Did you mean 'steps'?"),
        ("--config nowhere.yaml", "no file nowhere.yaml"),
        ("--pde toy --max-steps -3", "--max-steps: expected 0 or more steps; got -3"),
        ("--pde toy --seed -1", "--seed: expected a number from 0 to 4294967295; got -1"),
        ("--pde toy --logger none --out {file}", "cannot write to"),
        ("--pde toy --logger none --out {file}/run", "cannot write to"),
        ("--pde toy --logger none --devices 0 --out {run}", "Lightning refuses"),
        ("--config {damaged}", "not readable as YAML"),
        ("--config {binary}", "not readable as YAML"),
        ("--resume nowhere", "nowhere is not a run"),
    ],
)
def test_mistakes_end_with_one_line(arguments, message, capsys, tmp_path):
    paths = {name: tmp_path / name for name in ("file", "run", "damaged", "binary")}
    paths["file"].touch()
    paths["damaged"].write_text("{{{")
    paths["binary"].write_bytes(b"\xff\xfe\x00\x81")
    assert main(arguments.format(**paths).split() if "[{" not in arguments else arguments.split()) == 1
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("text", ["2e-1", "0.2", "+2E-1", ".2"])
def test_numbers_are_read_as_people_write_them(tmp_path, text):
    """YAML 1.1 reads 2e-1 as a text."""
    assert cli.parse(["--pde", "toy", "--options.k", text]).options == {"held": "none", "k": 0.2}
    (tmp_path / "c.yaml").write_text(f"pde: toy\noptions: {{k: {text}}}\n")
    assert cli.load(tmp_path / "c.yaml").options["k"] == 0.2


@pytest.mark.parametrize("where", ["trainer", "training"])
def test_a_config_file_cannot_run_code(tmp_path, where):
    target = tmp_path / "pwned"
    evil = {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", str(target)]}}
    phase = {"optimizer": "adam", "steps": 3, "options": {"betas": evil}}
    content = {"trainer": {"callbacks": evil}} if where == "trainer" else {"training": {"phases": [phase]}}
    (tmp_path / "evil.yaml").write_text(yaml.safe_dump({"pde": "toy", **content}))
    with pytest.raises(ValueError, match="`class_path` is not allowed.*'subprocess.Popen'"):
        cli.parse(["--config", str(tmp_path / "evil.yaml")])
    with pytest.raises(ValueError, match="`class_path` is not allowed"):
        cli.parse(["--pde", "toy", "--trainer.callbacks", json.dumps(evil)])
    assert not target.exists()


def test_yaml_tags_are_refused(tmp_path):
    (tmp_path / "evil.yaml").write_text(f"pde: !!python/object/apply:os.system ['touch {tmp_path}/pwned']\n")
    with pytest.raises((ValueError, yaml.YAMLError)):
        cli.parse(["--config", str(tmp_path / "evil.yaml")])
    assert not (tmp_path / "pwned").exists()


def test_list_names_everything(capsys):
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for pde, names in problems.available().items():
        assert pde in out and all(name in out for name in names)
    for name in ("mlp", "modified_mlp", "piratenet", "adam", "soap", "ssbroyden"):
        assert name in out


def test_list_fits_on_eighty_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--list"]) == 0
    first, _, _ = capsys.readouterr().out.partition("\nnetworks")
    lines = first.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 2 * sum(map(len, problems.available().values()))


def test_an_unknown_pde_lists_those_of_surrogates_too():
    with pytest.raises(ValueError, match="unknown PDE 'darci'. Did you mean 'darcy'.*'gray_scott'.*'physarum'"):
        cli.parse(["--pde", "darci"])


def test_help_explains_fields(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--pde", "toy", "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "Points in the interior" in out and "neurons of each hidden layer" in out and "default: 12" in out


@pytest.mark.parametrize(("pde", "problem"), ALL)
def test_every_problem_has_a_config_that_parses_and_holds_only_what_differs(root, pde, problem):
    path = root / "configs" / f"{problem}.yaml"
    content = yaml.safe_load(path.read_text())
    run = cli.load(path)
    assert (run.pde, run.problem) == (pde, problem)
    default = cli.parse(["--pde", pde, "--problem", problem])
    for key, value in content.items():
        if key not in ("pde", "problem"):
            assert getattr(run, key) != getattr(default, key), f"{key}: {value} is the default already"


def test_every_config_is_a_run(root):
    for path in sorted((root / "configs").glob("*.yaml")):
        run = cli.load(path)
        assert cli.is_surrogate(run.pde, run.model) or (run.pde, run.problem) in [
            (pde, name) for pde, names in problems.available().items() for name in names
        ]


@pytest.mark.parametrize("model", ["mlp", "modified_mlp", "piratenet", "siren"])
def test_help_is_plain_text(model):
    text = cli.make_parser("toy", model=model).format_help()
    assert "$" not in text and "\\" not in text and "Source" not in text
    assert {"mlp": "Dense network:", "modified_mlp": "Gated network:", "siren": "Dense network of sines"}.get(
        model, "adaptive network:"
    ) in text


def test_what_is_typed_counts_more_than_a_file_in_any_order(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("pde: toy\nseed: 1\nout: null\noptions:\nnetwork: {width: 20}\n")
    run = cli.parse(["--out", "here", "--seed", "7", "--config", str(file), "--network.depth", "3"])
    assert (run.out, run.seed, run.network["width"], run.network["depth"]) == ("here", 7, 20, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pdee: toy", "no option 'pdee'. Did you mean 'pde'"),
        ("pde: toy\ntraining: {interiorr: 4}", "no option 'interiorr'. Did you mean 'interior'"),
        ("pde: toy\nnetwork: {widht: 4}", "no option 'widht'. Did you mean 'width'"),
        ("pde: [toy]", "`pde` in .* must be a name; got"),
        ("options: [1]", "`options` in .* must be a mapping"),
        ("network: 5", "`network` in .* must be a mapping"),
        ("", "must hold a mapping of options; got nothing"),
        ("a: &x [1]\nb: *x", "YAML aliases"),
        ("pde: toy\nseed: 99999999999999999999999", "--seed: expected a number from 0 to"),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, message):
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        cli.parse(["--config", str(file)])


def test_many_aliases_are_refused_at_once(tmp_path):
    file = tmp_path / "a.yaml"
    levels = "\n".join(f"l{k}: &l{k} [{', '.join([f'*l{k - 1}'] * 9)}]" for k in range(1, 9))
    file.write_text(f"l0: &l0 [0]\n{levels}\n")
    with pytest.raises(ValueError, match="YAML aliases"):
        cli.parse(["--config", str(file)])


@pytest.mark.parametrize("setting", ["--accelerator tpu", "--devices abc", "--devices -1 --accelerator cpu"])
def test_what_lightning_refuses_is_one_line(setting, tmp_path, capsys):
    arguments = ["--pde", "toy", "--logger", "none", "--out", str(tmp_path / "run"), *setting.split()]
    assert main(arguments) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: Lightning refuses") and "\n" not in error


def test_other_loggers_do_without_wandb(tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "wandb", None)
    arguments = ["--pde", "toy", "--logger", "csv", "--max-steps", "2", "--record.figures", "false"]
    assert main([*arguments, "--accelerator", "cpu", "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "metrics.csv").exists()
    reference, *_, training, summary = capsys.readouterr().out.splitlines()  # a log tells at once what is done
    assert reference.startswith("computing the reference") and training == "training" and "rel" in summary
    assert main([*arguments, "--options.k", "nan", "--out", str(tmp_path / "other")]) == 1
    assert "error:" in capsys.readouterr().err
