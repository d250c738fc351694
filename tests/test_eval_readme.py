"""The README's tables come from the kept reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval import readme
from roam.errors import DataError


def test_readme_is_up_to_date() -> None:
    assert readme.main(["--check"]) == 0


def test_tables_need_their_place() -> None:
    with pytest.raises(DataError, match="relations"):
        readme.fill("# no tables", {})


def test_keep_drops_long_lists_and_refuses_missing_files(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"macro_f1": 0.5, "worst_errors": [1]}))
    readme.keep("mine", [f"test={tmp_path / 'report.json'}"], tmp_path / "results")
    assert readme.read_results(tmp_path / "results") == {"mine": {"test": {"macro_f1": 0.5}}}
    with pytest.raises(DataError, match="not NAME=FILE"):
        readme.keep("mine", ["test=absent.json"], tmp_path / "results")


def test_every_kept_report_says_where_it_comes_from() -> None:
    for adapter, reports in readme.read_results().items():
        assert "test" in reports, adapter
        for name, report in reports.items():
            if name != "demo":
                assert report["hashes"], (adapter, name)
                assert "seed" in report, (adapter, name)
