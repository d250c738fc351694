"""The wheel holds roam/ and nothing else; the extras and the script are what the README names."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

PARTS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "Makefile",
    "roam",
    "data",
    "eval",
    "training",
    "configs",
)
DATA_FILE = "roam/pretrained/probe/deeper/weights.bin"  # shipped adapters lie in folders of folders
EXTRAS = {"models", "serve", "mcp", "otel", "postgres", "llm", "train", "eval", "dev"}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built without network from a copy, so that no build folder is left in the tree."""
    root = Path(__file__).resolve().parent.parent
    copy, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, copy / part)
        else:
            shutil.copy(source, copy / part)
    probe = copy / DATA_FILE
    probe.parent.mkdir(parents=True)
    probe.write_bytes(b"weights")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", out, copy]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PIP_NO_INDEX": "1"}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = out.glob("*.whl")
    return zipfile.ZipFile(built)


def package_files(root: Path) -> set[str]:
    """Files of roam/ that belong in the wheel."""
    files = (path for path in (root / "roam").rglob("*") if path.is_file())
    relative = (path.relative_to(root) for path in files)
    hidden = ("__pycache__", ".")  # byte code, and caches of tools that were run inside the folder
    return {str(path) for path in relative if not any(part.startswith(hidden) for part in path.parts)}


@pytest.mark.integration
def test_the_wheel_holds_roam_only(wheel: zipfile.ZipFile, root: Path) -> None:
    names = {name for name in wheel.namelist() if not name.endswith("/")}
    metadata = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    assert names - metadata == package_files(root) | {DATA_FILE}
    assert {"roam/py.typed", "roam/cli.py", "roam/memory.py"} <= names


@pytest.mark.integration
def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile, root: Path) -> None:
    import roam

    [metadata_name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata: Any = Parser().parsestr(wheel.read(metadata_name).decode())
    assert (metadata["Name"], metadata["Version"]) == ("roam-distilled", roam.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra")) == EXTRAS
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert not [line for line in required if line.startswith(("torch", "transformers", "peft"))], (
        "the core must stay light"
    )
    scripts = configparser.ConfigParser()
    scripts.read_string(wheel.read(metadata_name.replace("METADATA", "entry_points.txt")).decode())
    assert dict(scripts["console_scripts"]) == {"roam": "roam.cli:main"}


@pytest.mark.unit
def test_tested_versions_satisfy_the_declared_ranges(root: Path) -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [Requirement(line) for line in project["dependencies"]]
    declared += [Requirement(line) for extra in project["optional-dependencies"].values() for line in extra]
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines if line and not line.startswith("#"))
    }
    clash = {
        requirement.name: tested[name]
        for requirement in declared
        if (name := canonicalize_name(requirement.name)) in tested
        and not requirement.specifier.contains(tested[name], prereleases=True)
    }
    assert clash == {}
    assert {"transformers", "peft", "sqlite-vec"} <= set(tested)


@pytest.mark.unit
def test_the_licence_texts_are_whole(root: Path) -> None:
    code = (root / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in code
    assert "9. Accepting Warranty or Additional Liability" in code
    assert "Creative Commons Attribution 4.0" in (root / "data" / "LICENSE").read_text(encoding="utf-8")
