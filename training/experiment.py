"""Run one experiment: `python -m training.experiment configs/experiments/NAME --seed N`.

An experiment is a folder of differences: a config.yaml that names a recipe and holds only what is changed of it, and of
the data. The runner draws the data, trains, measures on dev (and on natural pairs given with --natural) and keeps one
small JSON a run in eval/results/experiments/; `python -m eval.experiments` makes the table over all of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data import build as data_build
from data.held_out import refuse_test_rows
from data.pairs import file_sha256, read_pairs
from eval.experiments_record import NAME, RESULTS, measured, write_run
from eval.provenance import versions
from eval.relation import evaluate
from roam.adapters import WEIGHTS, read_card
from roam.arguments import ArgumentParser
from roam.errors import ConfigError, DataError, RoamError
from roam.relation_model import TorchRelationModel
from training.config import RelationConfig, from_mapping, load_config
from training.relation import train

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "configs"
OWN_KEYS = ("seed", "out", "train", "dev")
"""What differs between runs of one recipe; the runner sets the first two and, where data is drawn, the others."""


@dataclass(frozen=True)
class Experiment:
    """Content of an experiment's config.yaml."""

    recipe: str | None = None  # path under configs/; none: the defaults
    differences: dict = field(default_factory=dict)  # type: ignore[type-arg] # from_mapping needs a plain class
    build: dict | None = None  # type: ignore[type-arg] # arguments of data.build, {} for its defaults; none: the recipe's files
    note: str | None = None  # what is expected, later what was found


def read_experiment(folder: Path) -> Experiment:
    """The experiment in `folder`; `ConfigError` names what is wrong in it."""
    if not NAME.fullmatch(folder.name):
        raise ConfigError(f"{folder.name!r} is no experiment name: use lower case letters, digits and . _ -")
    path = folder / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"no {path}; an experiment is a folder with a config.yaml, see configs/experiments/README.md")
    experiment = load_config(Experiment, path)
    taken = [key for key in ("seed", "out") if key in experiment.differences]
    if taken:
        raise ConfigError(f"{path}: {', '.join(taken)} cannot be a difference: the runner sets the seed and the folder")
    if experiment.build is not None:
        build_arguments(experiment.build, Path(), str(path))
    return experiment


def build_arguments(build: dict[str, Any], out: Path, where: str) -> list[str]:
    """`build` as arguments of `python -m data.build`; `ConfigError` for one it does not know."""
    if "out" in build:
        raise ConfigError(f"{where}: build.out cannot be set: every experiment's data has a folder of its own")
    arguments = ["--out", str(out)]
    for key, value in build.items():
        flag = f"--{str(key).replace('_', '-')}"
        if value is True:
            arguments.append(flag)
        elif value is not False:
            arguments += [flag, *map(str, value if isinstance(value, list) else [value])]
    try:
        data_build.parse_args(arguments)
    except SystemExit:  # argparse has said on stderr which argument it is
        raise ConfigError(f"{where}: build holds what `python -m data.build` does not take; see its --help") from None
    return arguments


def resolve(experiment: Experiment, folder: Path, seed: int) -> RelationConfig:
    """The recipe with the differences; `{seed}` in a text value becomes the seed (a run's earlier stage, say)."""
    plain = load_config(RelationConfig, RECIPES / experiment.recipe) if experiment.recipe else RelationConfig()
    changes = {
        key: value.replace("{seed}", str(seed)) if isinstance(value, str) else value
        for key, value in experiment.differences.items()
    }
    drawn = {}
    if experiment.build is not None:
        derived = Path("data/derived/experiments") / folder.name
        drawn = {"train": str(derived / "train.jsonl"), "dev": str(derived / "dev.jsonl")}
    values = {
        **dataclasses.asdict(plain),
        **drawn,
        **changes,
        "seed": seed,
        "out": f"runs/experiments/{folder.name}-seed{seed}",
    }
    return from_mapping(RelationConfig, values, where=str(folder / "config.yaml"))


def config_digest(experiment: Experiment, config: RelationConfig) -> str:
    """Digest of what makes the recipe: the values that differ from the defaults, and the data's arguments.

    Defaults are left out so that a new key with a neutral default does not part old runs from new ones.
    """
    plain = dataclasses.asdict(RelationConfig())
    unfilled = {key: value for key, value in experiment.differences.items() if "{seed}" in str(value)}
    values = dataclasses.asdict(config) | unfilled  # the same for every seed
    kept = {key: value for key, value in values.items() if value != plain[key] and key not in OWN_KEYS}
    text = json.dumps({"config": kept, "build": experiment.build}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def prepare_data(experiment: Experiment, config: RelationConfig) -> None:
    """Draw the experiment's pairs, or the default ones when the recipe takes those and they are not there yet.

    The experiment's are drawn anew for every run: that takes a minute, and pairs of an older code or of other families
    would pass unnoticed.
    """
    if experiment.build is not None:
        arguments = build_arguments(experiment.build, Path(config.train).parent, "build")
    elif not Path(config.train).is_file() and config.train == RelationConfig.train:
        arguments = []
    else:
        return
    if data_build.main(arguments):
        raise DataError(f"`python -m data.build {' '.join(arguments)}` failed; its message is above")


def check_run(run: Path, config: RelationConfig) -> None:
    """`ConfigError` unless the finished run's recipe and seed are those of the experiment."""
    found = dataclasses.asdict(load_config(RelationConfig, run / "config.yaml"))
    wanted = dataclasses.asdict(config)
    differing = [key for key in wanted if key not in OWN_KEYS[1:] and found[key] != wanted[key]]
    if differing:
        text = ", ".join(f"{key} {found[key]!r} instead of {wanted[key]!r}" for key in differing)
        raise ConfigError(f"{run} is a run of another recipe: {text}; correct the experiment or leave --run out")


def parameters(model: TorchRelationModel, adapter: Path) -> dict[str, int]:
    """How many numbers the merged model has, and how many of them the adapter's file trained."""
    from math import prod

    from safetensors import safe_open

    with safe_open(str(adapter / WEIGHTS), "np") as weights:
        trained = sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118 - no mapping
    return {"total": sum(value.numel() for value in model.model.parameters()), "trained": trained}


def commit() -> tuple[str | None, bool | None]:
    """(commit, whether tracked files differ from it); (None, None) outside a checkout."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "HEAD"), None if status is None else bool(status)


def train_data(config: RelationConfig, adapter: Path) -> dict[str, Any]:
    """Hashes of the training data as the adapter's card has them, and how many pairs were trained on."""
    hashes = read_card(adapter).data_hash
    digest = hashes.get(Path(config.train).name)
    same = Path(config.train).is_file() and file_sha256(config.train) == digest
    pairs = len(read_pairs(config.train)) if same else None
    if pairs is not None and config.max_train_pairs is not None:
        pairs = min(pairs, config.max_train_pairs)
    earlier = {name: value for name, value in hashes.items() if name.startswith("before: ")}
    return {"train": digest, "train_pairs": pairs, **earlier}


def run_experiment(
    folder: Path, seed: int, *, natural: Path | None = None, run: Path | None = None, results: Path = RESULTS
) -> Path:
    """Train (or take the finished `run`), measure on dev and `natural`, and return the path of the kept JSON.

    `natural` is a labelled pair file of any origin: of it only figures, hashes and predicted relations are kept.
    Raises `ConfigError`, `DataError`, `InputError` or what training raises.
    """
    folder = folder.resolve()
    experiment = read_experiment(folder)
    config = resolve(experiment, folder, seed)
    started_at, dirty = commit()  # before training: the tree may change meanwhile
    if natural is not None:
        refuse_test_rows(natural, read_pairs(natural))  # a bad file should not cost a training run
    if run is not None:
        check_run(run, config)
    prepare_data(experiment, config)
    if Path(config.dev).is_file():  # training says what to do when it is not
        refuse_test_rows(config.dev, read_pairs(config.dev))
    seconds = None
    if run is None:
        begin = time.perf_counter()
        adapter = train(config).adapter
        seconds = round(time.perf_counter() - begin)
    else:
        adapter = run / "adapter"
    model = TorchRelationModel.load(adapter)
    sets = {"dev": Path(config.dev)} | ({natural.stem: natural} if natural else {})
    entries = {}
    for name, pairs in sets.items():
        report = (run or Path(config.out)) / "reports" / name
        evaluate(model, pairs, report, name=folder.name, config=adapter / "roam.json", train_path=Path(config.train))
        entries[name] = measured(report, pairs, results)
    return write_run({
        "experiment": folder.name, "seed": seed, "note": experiment.note,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": experiment.recipe, "differences": experiment.differences, "build": experiment.build,
        "config_digest": config_digest(experiment, config), "commit": started_at, "uncommitted_changes": dirty,
        "base": model.card.base, "adapter": model.digest, "parameters": parameters(model, adapter),
        "data": train_data(config, adapter), "training_seconds": seconds,
        "device": str(next(model.model.parameters()).device),
        "chosen_on": sorted(entries), "versions": versions(), "sets": entries,
    }, results)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m training.experiment",
        description="Train and measure one experiment (a folder of differences) and keep its result.",
        epilog="example: python -m training.experiment configs/experiments/minilm-rank64 --seed 0",
    )
    parser.add_argument("experiment", type=Path, help="folder with a config.yaml, see configs/experiments/README.md")
    parser.add_argument("--seed", type=int, default=0, help="seed of training (default: %(default)s)")
    parser.add_argument("--natural", type=Path, metavar="FILE", help="measure on these labelled pairs as well")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="measure this finished run instead of training")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the result is kept")
    args = parser.parse_args(argv)
    try:
        path = run_experiment(args.experiment, args.seed, natural=args.natural, run=args.run, results=args.results)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{path}; the table over all: python -m eval.experiments")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
