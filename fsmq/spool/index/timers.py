"""Timers: a heap of deadlines whose entries can be cancelled."""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class Timers:
    """Which entries of ``delay/`` are due when. Times are Unix milliseconds."""

    def __init__(self) -> None:
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, name: str) -> bool:
        return name in self._due

    def start(self, name: str, due_ms: int) -> None:
        if self._due.get(name) != due_ms:
            self._due[name] = due_ms
            heappush(self._heap, (due_ms, name))
            self._tidy()

    def start_all(self, due: list[tuple[int, str]]) -> None:
        """Start many at once, each as its deadline and its name."""
        new = [(due_ms, name) for due_ms, name in due if self._due.get(name) != due_ms]
        self._due.update((name, due_ms) for due_ms, name in new)
        self._heap.extend(new)
        heapify(self._heap)

    def cancel(self, name: str) -> None:
        """Forget an entry. Its place in the heap is dropped at its turn, or by a rebuild."""
        if self._due.pop(name, None) is not None:
            self._tidy()

    def _tidy(self) -> None:
        """Drop void places, if there are too many."""
        if len(self._heap) > 2 * len(self._due) + 1024:
            self._heap = [(due_ms, name) for name, due_ms in self._due.items()]
            heapify(self._heap)

    def keep(self, names: set[str]) -> None:
        """Forget all entries but these."""
        for name in [n for n in self._due if n not in names]:
            self.cancel(name)

    def next_ms(self) -> int | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> str | None:
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        name = heappop(self._heap)[1]
        del self._due[name]
        return name
