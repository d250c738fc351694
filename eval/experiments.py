"""Table over all experiments: `python -m eval.experiments`.

Reads the results that `python -m training.experiment` keeps (one JSON a run), puts the seeds of a recipe together and
compares each recipe with the best one before it. Writes experiments.md, experiments.csv and experiments.png.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.experiments_compare import Difference, Recipe, Spread, against_previous_best, recipes
from eval.experiments_plot import experiments_picture
from eval.experiments_record import RESULTS, Run, read_runs
from eval.provenance import check_output, output_folder
from eval.relation_report import percent, table
from roam.arguments import ArgumentParser
from roam.errors import InputError, RoamError

DEV = "dev"
CLAIM_SEEDS = 3


def settings(run: Run) -> str:
    """What the experiment changes of its recipe and of the data, as one line."""
    changed = dict(run.values["differences"])
    built = {f"build.{key}": value for key, value in dict(run.values.get("build") or {}).items()}
    text = ", ".join(f"{key}={value}" for key, value in {**changed, **built}.items()) or "as it is"
    return f"{run.values.get('recipe') or 'defaults'}: {text}"


def spread_text(spread: Spread | None) -> str:
    """Mean in percent, with the range over seeds where there are several."""
    if spread is None:
        return "–"
    mean = percent(spread.mean)
    return mean if spread.low == spread.high else f"{mean} ({percent(spread.low)} to {percent(spread.high)})"


def difference_text(found: Difference | None) -> str:
    if found is None:
        return "–"
    return f"{100 * found.macro_f1:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f}) on {found.other}"


def natural_sets(rows: Sequence[Recipe]) -> list[str]:
    """Names of the sets beside dev, sorted."""
    return sorted({name for row in rows for run in row.runs for name in run.sets} - {DEV})


def markdown_rows(rows: Sequence[Recipe], gaps: Mapping[str, Sequence[Difference | None]]) -> list[str]:
    """Lines of the table: one row a recipe, figures in percent."""
    others = natural_sets(rows)
    header = [
        "experiment", "settings", "seeds", "dev macro-F1", *(f"{name} macro-F1" for name in others),
        "lowest class, dev", "ECE", "swap", "false demotion", "pairs/s", "M parameters (trained)",
        *(f"against the best before, {name}" for name in (DEV, *others)), "chosen on", "commit",
    ]  # fmt: skip
    body = []
    for at, row in enumerate(rows):
        first = row.runs[0].values
        worst = row.worst_class(DEV)
        size = first["parameters"]
        speed = row.spread(DEV, "pairs_per_second")
        body.append([
            row.label, settings(row.runs[0]), str(len(row.runs)),
            *(spread_text(row.spread(name, "macro_f1")) for name in (DEV, *others)),
            f"{percent(worst[1])} ({worst[0]})" if worst else "–",
            *(spread_text(row.spread(DEV, key)) for key in ("ece", "swap_consistency", "false_demotion_rate")),
            f"{speed.mean:.0f}" if speed else "–",
            f"{size['total'] / 1e6:.1f} ({size['trained'] / 1e6:.2f})",
            *(difference_text(gaps[name][at]) for name in (DEV, *others)),
            ", ".join(first["chosen_on"]), str(first.get("commit") or "–")[:9],
        ])  # fmt: skip
    return table(header, body)


def per_class_rows(rows: Sequence[Recipe]) -> list[str]:
    """Lines of a table of mean F1 a relation, for every set."""
    body = []
    for row in rows:
        for name in (DEV, *natural_sets(rows)):
            scores = [row.spread(name, "per_class", relation, "f1") for relation in ("IND", "EQV", "OSN", "NSO", "CON")]
            if any(scores):
                body.append([f"{row.label}, {name}", *(spread_text(score) for score in scores)])
    return table(["F1 of each relation", "IND", "EQV", "OSN", "NSO", "CON"], body)


def markdown(rows: Sequence[Recipe], notes: Sequence[Run], gaps: Mapping[str, Sequence[Difference | None]]) -> str:
    """The whole page."""
    few = [row.label for row in rows if len(row.runs) < CLAIM_SEEDS]
    remarks = [
        (run.values["experiment"], run.values["note"])
        for run in (*(row.runs[0] for row in rows), *notes)
        if run.values.get("note")
    ]
    lines = [
        "# Experiments",
        "",
        "In the order in which they were finished; figures in percent, mean (range over seeds). Each recipe was chosen "
        "on dev data alone, on the sets named in its row; no test pair was read. Temperature and thresholds are fitted "
        "on dev, so its calibration error is a lower bound. A difference is macro-F1 minus that of the best recipe "
        "before it on that set, with the 95 % interval of a paired bootstrap over families (mean of the seeds in every "
        "replicate).",
        "",
        *(markdown_rows(rows, gaps) if rows else ["No runs with figures yet."]),
        "",
        *([f"Fewer than {CLAIM_SEEDS} seeds, so no claim yet: {', '.join(few)}.", ""] if few else []),
        *(["## By relation", "", *per_class_rows(rows), ""] if rows else []),
        *(["![experiments](experiments.png)", ""] if rows else []),
    ]  # fmt: skip
    if remarks:
        lines += ["## Notes", "", *(f"- **{name}**: {note}" for name, note in remarks), ""]
    return "\n".join(lines)


def csv_rows(rows: Sequence[Recipe]) -> list[dict[str, Any]]:
    """One flat row a run and set: for spreadsheets and curves against data or model size."""
    return [
        {
            "experiment": row.label, "seed": run.seed, "set": name, "settings": settings(run),
            "config_digest": run.values["config_digest"], "commit": run.values.get("commit"),
            "finished": run.values["finished"], "base": run.values.get("base"),
            "parameters": run.values["parameters"]["total"], "trained": run.values["parameters"]["trained"],
            "train_pairs": run.values["data"].get("train_pairs"), "train_sha256": run.values["data"].get("train"),
            "pairs": entry["pairs"], "macro_f1": entry["macro_f1"], "low": entry["interval"][0],
            "high": entry["interval"][1],
            **{f"f1_{relation}": score["f1"] for relation, score in entry["per_class"].items()},
            **{key: entry[key] for key in ("ece", "swap_consistency", "false_demotion_rate", "pairs_per_second")},
            "chosen_on": " ".join(run.values["chosen_on"]),
        }
        for row in rows for run in row.runs for name, entry in run.sets.items()
    ]  # fmt: skip


def write(results: Path, out: Path, seed: int = 0) -> str:
    """Write the three files into `out` and return the page."""
    check_output(out)
    runs, notes = read_runs(results)
    if not runs and not notes:
        raise InputError(f"no results in {results}: run `python -m training.experiment configs/experiments/NAME`")
    rows = recipes(runs)
    gaps = {name: against_previous_best(rows, name, results, seed) for name in (DEV, *natural_sets(rows))}
    page = markdown(rows, notes, gaps)
    output_folder(out)
    (out / "experiments.md").write_text(page, encoding="utf-8")
    flat = csv_rows(rows)
    if flat:
        with (out / "experiments.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(flat[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(flat)
        experiments_picture(rows, (DEV, *natural_sets(rows)), out / "experiments.png")
    return page


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m eval.experiments",
        description="Print and write a table over all experiments: seeds together, each against the best before it.",
        epilog="example: python -m eval.experiments --out reports/experiments",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the runs' JSON files")
    parser.add_argument("--out", type=Path, default=Path("reports/experiments"), help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap")
    args = parser.parse_args(argv)
    try:
        print(write(args.results, args.out, args.seed))
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
