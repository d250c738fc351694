"""The paper's figures, in percent unless said otherwise, for printing beside ours. None stands for "not given"."""

from __future__ import annotations

from collections.abc import Mapping

Line = Mapping[str, float]

METHODS = ("Append-all", "Mem0", "EverMemOS-style", "ROAM")
_TABLE_2_COLUMNS = ("0", "2", "4", "6", "8", "LongMemEval", "MEME-Post")
_APPEND = (87.0, 77.3, 47.0, 25.4, 24.4, 57.1, 32.5)


def _rows(columns: tuple[str, ...], *rows: tuple[float, ...]) -> dict[str, Line]:
    return {name: dict(zip(columns, row, strict=True)) for name, row in zip(METHODS, rows, strict=True)}


TABLE_2: Mapping[str, Mapping[str, Line]] = {
    "Gemma-4-12B": _rows(
        _TABLE_2_COLUMNS, _APPEND,
        (74.3, 72.3, 74.0, 71.7, 69.1, 55.0, 24.8),
        (86.2, 74.5, 48.5, 38.3, 36.0, 54.8, 32.4),
        (87.2, 81.5, 78.3, 76.2, 71.3, 63.0, 38.9),
    ),
    "Qwen3.5-9B": _rows(
        _TABLE_2_COLUMNS, _APPEND,
        (85.3, 75.7, 67.0, 54.7, 42.1, 57.8, 31.4),
        (86.0, 74.0, 47.2, 37.2, 36.0, 55.8, 24.9),
        (84.9, 78.1, 78.3, 76.6, 71.9, 59.8, 33.1),
    ),
    "Qwen3-8B": _rows(
        _TABLE_2_COLUMNS, _APPEND,
        (76.8, 64.0, 59.8, 53.2, 48.9, 54.2, 30.3),
        (86.2, 73.2, 48.3, 39.6, 37.0, 54.4, 23.6),
        (84.7, 77.9, 74.9, 68.1, 64.3, 58.6, 31.6),
    ),
}  # fmt: skip
"""Answer accuracy at 256 tokens: N confounders of LongMemEval Controlled, LongMemEval, MEME-Post."""

LEVELS = ("0", "2", "4", "6", "8")
TABLE_3: Mapping[str, Line] = {
    "append": dict(zip(LEVELS, (87.0, 77.3, 47.0, 25.4, 24.4), strict=True)),
    "roam:con": dict(zip(LEVELS, (84.0, 77.2, 54.3, 34.9, 32.1), strict=True)),
    "roam:con+eqv": dict(zip(LEVELS, (84.0, 78.3, 72.8, 66.6, 62.3), strict=True)),
    "roam:nofusion": dict(zip(LEVELS, (79.1, 77.9, 75.5, 73.6, 70.9), strict=True)),
    "roam": dict(zip(LEVELS, (84.9, 78.1, 78.3, 76.6, 71.9), strict=True)),
}
"""Answer accuracy of the ablations, Qwen3.5-9B, 256 tokens, by N."""

TABLE_5: Mapping[str, Line] = {
    "Append-all": {"any_source": 36.6, "all_source": 21.7, "gold_recall": 29.1, "confounder_share": 84.0},
    "Mem0": {"any_source": 81.3, "all_source": 57.4, "gold_recall": 69.0, "confounder_share": 58.6},
    "EverMemOS-style": {"any_source": 35.5, "all_source": 18.5, "gold_recall": 26.9, "confounder_share": 68.3},
    "ROAM": {"any_source": 95.1, "all_source": 73.8, "gold_recall": 84.6, "confounder_share": 47.1},
}
"""Retrieval diagnostics, Qwen3.5-9B, N = 8, 256 tokens."""

_LME = ("temporal-reasoning", "multi-session", "knowledge-update", "single-session-user", "single-session-preference",
        "single-session-assistant")  # fmt: skip
_LME_APPEND = (56.7, 36.8, 83.3, 93.5, 83.3, 15.2)
TABLE_6: Mapping[str, Mapping[str, Line]] = {
    "Gemma-4-12B": _rows(_LME, _LME_APPEND, (55.9, 37.2, 69.4, 90.6, 86.7, 14.3), (49.6, 39.7, 73.6, 93.7, 86.2, 12.5),
                         (63.8, 43.8, 87.5, 95.3, 90.0, 14.3)),
    "Qwen3.5-9B": _rows(_LME, _LME_APPEND, (57.5, 42.2, 75.0, 95.3, 86.1, 16.1), (51.2, 37.2, 76.4, 92.2, 83.3, 10.7),
                        (59.1, 42.5, 81.9, 90.6, 86.7, 14.3)),
}  # fmt: skip
"""Answer accuracy by LongMemEval question type."""

_MEME = ("Cas", "Abs", "Tr", "Del", "Agg", "ER")
_MEME_APPEND = (18.9, 9.2, 64.5, 12.5, 15.4, 98.1)
TABLE_7: Mapping[str, Mapping[str, Line]] = {
    "Gemma-4-12B": _rows(_MEME, _MEME_APPEND, (26.2, 8.5, 4.5, 3.7, 14.2, 97.3), (15.9, 7.7, 61.4, 11.3, 20.0, 97.6),
                         (28.1, 10.3, 79.5, 20.1, 15.8, 97.6)),
    "Qwen3.5-9B": _rows(_MEME, _MEME_APPEND, (13.4, 9.2, 16.6, 7.4, 19.3, 97.3), (19.5, 7.7, 58.3, 10.8, 13.2, 97.3),
                        (23.8, 8.5, 60.9, 16.6, 14.7, 97.6)),
}  # fmt: skip
"""Answer accuracy by MEME-Post question type."""

TABLE_8: Mapping[str, Mapping[str, float]] = {
    "I": {"queries": 398, "confounders": 3184, "confounder_query": 0.7149, "gold_query": 0.6321, "above_one": 0.7635,
          "above_all": 0.6219},
    "II": {"queries": 72, "confounders": 576, "confounder_query": 0.7641, "gold_query": 0.6926, "above_one": 0.8333,
           "above_all": 0.7309},
}  # fmt: skip
"""Similarity audit of the confounders: counts, mean cosines, shares of 1."""

_TYPES = ("I", "II")
TABLE_9: Mapping[str, Mapping[str, Line]] = {
    "Gemma-4-12B": _rows(_TYPES, (31.5, 16.0), (60.9, 52.1), (29.7, 13.2), (85.9, 79.9)),
    "Qwen3.5-9B": _rows(_TYPES, (31.5, 16.0), (73.3, 45.1), (29.6, 11.8), (83.5, 91.0)),
}
"""Gold-source recall by confounder type, N = 8, 256 tokens."""

FIGURE_3: Mapping[str, Line] = {
    "Gemma-4-E4B": {"8": 69.4},
    "Gemma-4-12B": {"0": 87.2, "4": 78.3, "8": 71.3},
    "Gemma-4-26B-A4B": {"8": 74.5},
}
"""ROAM's answer accuracy by manager and N, 256 tokens; the values that the text or Table 2 states."""

FIGURE_4: Mapping[str, Mapping[int, float]] = {
    "ROAM": {128: 42.8, 256: 71.9, 512: 83.0},
    "strongest baseline": {128: 27.9, 256: 42.1, 512: 78.9},
}
"""Answer accuracy at N = 8 by budget, Qwen3.5-9B; the baselines follow from the stated differences."""

TABLE_10: Mapping[str, Mapping[str, float]] = {
    "Mem0": {"llm_calls": 30.1, "input_after_reuse": 16_790, "output_tokens": 11_460, "shared_share": 0.695},
    "EverMemOS-style": {"llm_calls": 18.6, "input_after_reuse": 1_560, "output_tokens": 850, "shared_share": 0.605},
    "ROAM": {"llm_calls": 271.6, "input_after_reuse": 24_790, "output_tokens": 1_900, "shared_share": 0.946},
}
"""Cost of management an episode of LongMemEval Controlled at N = 4: calls, tokens, share of 1."""
