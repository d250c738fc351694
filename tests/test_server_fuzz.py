"""The server against requests that schemathesis makes from its own OpenAPI description.

pip install schemathesis && pytest -m slow tests/test_server_fuzz.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from roam.memory import Memory
from roam.server import Settings
from tests.server_app import SCRIPT, listening, make_app
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

with tempfile.TemporaryDirectory() as folder:
    schema = schemathesis.openapi.from_dict(make_app(Path(folder)).openapi())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("fuzz")
    options: dict[str, Any] = {"rate": 1e6, "burst": 10**6}
    with listening(make_app(folder, **options), Settings(db=str(folder / "m.db"), **options)) as (address, _):
        yield address
    # Whatever was sent, the store is sound.
    with Memory.open(
        folder / "m.db", manager=ScriptedRelations(SCRIPT), embedder=HashEmbedder(), fusion=JoinFuser()
    ) as memory:
        assert memory.verify().problems == ()


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_request_breaks_the_server_or_its_description(case: Any, server: str) -> None:
    # A string may be well formed and still be no time, no id that exists, or hold control characters: that is 4xx.
    case.call_and_validate(base_url=server, excluded_checks=[positive_data_acceptance])
