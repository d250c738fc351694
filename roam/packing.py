"""Packing of ranked hits into a token budget (paper equation 3)."""

from __future__ import annotations

from dataclasses import replace

from roam.fusion.chain import shorten
from roam.interfaces import Embedder
from roam.records import Hit

VIEW_SHARE = 0.25
"""Share of the budget above which a view gives up history and details, as far as others need the room."""


class Packer:
    """Fills a token budget with hits in rank order; the last one may be cut.

    A view grows with what is fused into it, and a value chain has its current value at the end, where a cut would take
    it. So a view that needs more than `VIEW_SHARE` of the budget gives up the oldest values of its chains; where that
    is not enough, its Primary's atomic text, which says what holds now, stands for it. Best hit first, views get back
    what the other hits leave over.
    """

    def __init__(self, embedder: Embedder, budget: int) -> None:
        self._embedder, self._budget, self._used = embedder, budget, 0
        self._separator = embedder.count_tokens("\n")
        self._most = max(1, int(budget * VIEW_SHARE))
        self._whole: dict[int, tuple[str, str]] = {}
        self.hits: list[Hit] = []

    def context(self) -> str:
        """The hits' texts, a line each."""
        return "\n".join(hit.text for hit in self.hits)

    def add(self, hit: Hit, atomic: str) -> bool:
        """Take a hit, shortened or cut if need be; False when the budget is full. `atomic` is its Primary's text."""
        left = self._budget - self._used - (self._separator if self.hits else 0)
        text = self._within(hit.text, atomic, min(self._most, left))
        tokens = self._embedder.count_tokens(text)
        if tokens <= left:
            if text != hit.text:
                self._whole[len(self.hits)] = hit.text, atomic
            self._append(hit, text, tokens)
            return True
        text = self._embedder.truncate(text, left) if left > 0 else ""
        if text:
            self._append(hit, text, self._embedder.count_tokens(text))
        return False

    def finish(self) -> None:
        """Give shortened chains back what room is left, and cut from the end what is too much.

        A tokenizer may count a joined text as more than its parts.
        """
        for place, (whole, atomic) in self._whole.items():
            hit = self.hits[place]
            room = self._budget - self._used + hit.tokens
            text = self._within(whole, atomic, room)
            tokens = self._embedder.count_tokens(text)
            if hit.tokens < tokens <= room:
                self._used += tokens - hit.tokens
                self.hits[place] = replace(hit, text=text, tokens=tokens)
        while self.hits and self._embedder.count_tokens(self.context()) > self._budget:
            last = self.hits.pop()
            text = self._embedder.truncate(last.text, last.tokens - 1)
            if text:
                self.hits.append(replace(last, text=text, tokens=self._embedder.count_tokens(text)))

    def _within(self, view: str, atomic: str, tokens: int) -> str:
        """The fullest wording of a view that keeps to `tokens`, or the shortest when none does."""

        def fits(text: str) -> bool:
            return self._embedder.count_tokens(text) <= tokens

        if fits(view):
            return view
        shorter = (shorten(view, fits), atomic)
        return next(filter(fits, shorter), None) or min((view, *shorter), key=self._embedder.count_tokens)

    def _append(self, hit: Hit, text: str, tokens: int) -> None:
        self._used += tokens + (self._separator if self.hits else 0)
        self.hits.append(replace(hit, text=text, tokens=tokens))
