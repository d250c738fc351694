"""One small record of each benchmark format, written for the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

UPDATES: dict[str, Any] = {
    "store": "s1",
    "atoms": [
        {"id": "a0", "text": "Ilse Brandt repairs clocks in Graz."},
        {"id": "a1", "text": "Tomas Reyl grows saffron on a terrace."},
        {"id": "a2", "text": "Ilse Brandt swims every morning."},
    ],
    "questions": [
        {
            "question": "Where does Ilse Brandt repair clocks?", "answer": "Graz", "gold_atom_ids": ["a0"],
            "update": {"text": '"Ilse Brandt repairs clocks in Linz."', "answer_after": "Linz"},
        },
        {
            "question": "What does Tomas Reyl grow?", "answer": "saffron", "gold_atom_ids": ["a1", "a2"],
            "update": {"text": "Tomas Reyl grows hops on a terrace.", "answer_after": "hops"},
        },
    ],
}  # fmt: skip

MEME: dict[str, Any] = {
    "episode_id": "m1",
    "atoms": [
        {"id": "x0", "time": "2024/02/01 (Thu) 09:00", "entity": "home", "kind": "fact",
         "text": "I live in Osterby", "text3p": "The user lives in Osterby."},
        {"id": "x1", "time": "2024/02/01 (Thu) 09:00", "entity": "gym", "kind": "dependent",
         "text": "I row at the Osterby boathouse."},
        {"id": "x2", "time": "2024/02/02 (Fri) 09:00", "entity": "gym", "kind": "rule",
         "text": "If I move I will row at Lower Quay."},
        {"id": "x3", "time": "2024/02/02 (Fri) 09:00", "entity": "pet", "kind": "fact", "text": "I keep a ferret."},
        {"id": "x4", "time": "2024/02/02 (Fri) 10:00", "entity": "tea", "kind": "exact", "text": "I drink rooibos."},
        {"id": "x5", "time": "2024/02/03 (Sat) 09:00", "entity": "home", "kind": "change",
         "text": "I moved to Vennholm.", "supersedes": "x0"},
        {"id": "x6", "time": "2024/02/03 (Sat) 09:00", "entity": "pet", "kind": "delete",
         "text": "I keep a ferret. Forget that.", "supersedes": "x3"},
    ],
    "questions": [
        {"phase": "before", "task": "Cas", "question": "Where do I row?", "answer": "boathouse",
         "gold_atom_ids": ["x1"]},
        {"phase": "after", "task": "Cas", "question": "Where do I row?", "answer": "Lower Quay",
         "gold_atom_ids": ["x1", "x2", "x5"]},
        {"phase": "after", "task": "Del", "question": "What pet do I keep?", "answer": "none",
         "gold_atom_ids": ["x3", "x6"]},
        {"phase": "after", "task": "ER", "question": "What do I drink?", "answer": "rooibos", "gold_atom_ids": ["x4"]},
        {"phase": "after", "task": "Tr", "question": "Which cars did I own?", "answer": "", "gold_atom_ids": []},
    ],
}  # fmt: skip

_QUESTION = {
    "question_id": "q1", "question_type": "single-session-user", "question": "Which instrument do I play?",
    "answer": "the oboe",
}  # fmt: skip
LONGMEMEVAL: dict[str, Any] = _QUESTION | {
    "haystack_session_ids": ["one", "two"],
    "haystack_dates": ["2024/05/02 (Thu) 08:30", "2024/05/01 (Wed) 21:15"],
    "haystack_sessions": [
        [{"role": "user", "content": "I bought new reeds for my oboe.", "has_answer": True},
         {"role": "assistant", "content": "Store them dry."}],
        [{"role": "user", "content": "My roof leaks again."}, {"role": "assistant", "content": ""}],
    ],
}  # fmt: skip
LONGMEMEVAL_EVIDENCE: dict[str, Any] = _QUESTION | {
    "abstention": False,
    "evidence_sessions": [
        {"session": 1, "date": "2024/05/02 (Thu) 08:30",
         "has_answer_turns": [{"role": "user", "content": "I bought new reeds for my oboe."}]},
    ],
}  # fmt: skip

LOCOMO: dict[str, Any] = {
    "sample_id": "d1",
    "conversation": {
        "session_1_date_time": "4:05 pm on 3 March, 2024",
        "session_2_date_time": "9:00 am on 9 March, 2024",
    },
    "observation": {
        "session_2_observation": {"Ada": [["Ada sold her kayak.", ["D2:1", "D2:2"]]]},
        "session_1_observation": {"Ada": [["Ada owns a kayak.", "D1:3"]], "Bo": [["Bo bakes rye bread.", "D1:4"]]},
    },
    "qa": [
        {"question": "What did Ada sell?", "answer": "a kayak", "evidence": ["D2:2"], "category": 4},
        {"question": "What did Ada own and sell?", "answer": "a kayak", "evidence": ["D1:3; D2:1"], "category": 1},
        {"question": "Where is Bo?", "answer": 7, "evidence": ["D1:9"], "category": 2},
        {"question": "Why?", "adversarial_answer": "no", "evidence": [], "category": 5},
    ],
}
LOCOMO_ROWS: dict[str, Any] = {
    "conv": "d1",
    "atoms": [
        {"id": "d1.0", "session": 1, "time": "4:05 pm on 3 March, 2024", "text": "Ada owns a kayak.", "dia": ["D1:3"]},
        {"id": "d1.1", "session": 2, "time": "9:00 am on 9 March, 2024", "text": "Ada sold her kayak.",
         "dia": ["D2:1"]},
    ],
    "questions": [{"question": "What did Ada sell?", "answer": "a kayak", "evidence": ["D2:1"], "category": 4}],
}  # fmt: skip


def write_lines(path: Path, *records: Mapping[str, Any]) -> Path:
    """Write one record a line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_array(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    """Write one JSON array."""
    path.write_text(json.dumps(records, indent=1), encoding="utf-8")
    return path
