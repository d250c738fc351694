"""Labels by batch files instead of an endpoint: `vllm run-batch` takes hundreds of thousands of questions at once.

    python -m data.label_batch write CANDIDATES --model Qwen/Qwen3-32B --out questions.jsonl
    vllm run-batch -i questions.jsonl -o answers.jsonl --model Qwen/Qwen3-32B --enable-prefix-caching
    python -m data.label_batch read CANDIDATES answers.jsonl --out teacher.jsonl

The files are in OpenAI's batch form, so hosted services take them too (some 50,000 questions a file: `split -l 50000`).
What `read` writes is a teacher for `training.distil`; a question without a usable answer stays in it, without a label.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data.label import read_candidates
from data.personamem import Candidate
from data.rows import raise_problems, read_jsonl, read_source
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError
from roam.llm.replies import UnusableReplyError
from roam.prompted.relation_prompt import relation_question
from roam.records import Pair
from roam.writing import write_lines


def questions(found: Sequence[Candidate], model: str, seed: int) -> Iterator[str]:
    """One request a candidate, the rules first, so that a server computes them once."""
    for candidate in found:
        question = relation_question(Pair(candidate.old, candidate.new))
        body = {
            "model": model, "messages": list(question.messages), "max_tokens": question.max_tokens, "temperature": 0.0,
            "seed": seed, "response_format": {"type": "json_schema", "json_schema": {
                "name": "answer", "strict": True, "schema": question.schema}},
        }  # fmt: skip
        yield json.dumps(
            {"custom_id": candidate.id, "method": "POST", "url": "/v1/chat/completions", "body": body},
            ensure_ascii=False,
        )


def answers(found: Sequence[Candidate], path: Path) -> tuple[list[str], int]:
    """(teacher rows: id and label, or null and why; how many have a label). `DataError` for a file of another batch."""
    rows, problems = read_jsonl(path, read_source(path))
    raise_problems(path, problems, strict=True)
    by_id = {str(row.values.get("custom_id")): row.values for row in rows}
    if not any(candidate.id in by_id for candidate in found):
        raise DataError(f"{path}: none of its custom_ids is a candidate's; give the answers to these candidates")
    lines, labelled = [], 0
    for candidate in found:
        label, reason = _answer(candidate, by_id.get(candidate.id))
        labelled += label is not None
        lines.append(json.dumps({"id": candidate.id, "label": label, **({} if reason is None else {"why": reason})}))
    return lines, labelled


def _answer(candidate: Candidate, row: Any) -> tuple[str | None, str | None]:
    """(label, None), or (None, why there is none)."""
    if row is None:
        return None, "not answered"
    response = row.get("response")
    if row.get("error"):
        return None, f"error: {row['error']}"
    try:
        if response["status_code"] != 200:
            return None, f"error: {response['status_code']}"
        text = str(response["body"]["choices"][0]["message"]["content"] or "")
        return str(relation_question(Pair(candidate.old, candidate.new)).parse(text)), None
    except (KeyError, IndexError, TypeError) as error:
        return None, f"no completion in the response ({type(error).__name__})"
    except UnusableReplyError as error:
        return None, str(error)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m data.label_batch",
        description="Questions to a teacher as a batch file, and its answers as a teacher's file for training.distil.",
        epilog="example: python -m data.label_batch write candidates.jsonl --model Qwen/Qwen3-32B --out questions",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="candidates to questions")
    write.add_argument("candidates", type=Path, help="candidate pairs (JSONL: id, old, new, group)")
    write.add_argument("--model", required=True, help="the model's name as the server knows it")
    write.add_argument("--seed", type=int, default=0)
    read = commands.add_parser("read", help="answers to labels")
    read.add_argument("candidates", type=Path, help="the same candidates")
    read.add_argument("answers", type=Path, help="what the batch run wrote")
    for command in (write, read):
        command.add_argument("--out", type=Path, required=True, help="file to write")
    args = parser.parse_args(argv)
    if args.command == "write" and not args.model.strip():
        parser.error("--model is empty: give the model's name as the server knows it")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Write questions or read answers; 2 on bad input, with one line on standard error."""
    args = parse_args(argv)
    try:
        found = read_candidates(args.candidates)
        if args.command == "write":
            print(f"{write_lines(args.out, questions(found, args.model, args.seed))} questions in {args.out}")
        else:
            lines, labelled = answers(found, args.answers)
            write_lines(args.out, lines)
            print(f"{labelled} of {len(found)} candidates have a label in {args.out}")
    except RoamError as error:
        print(f"data.label_batch: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
