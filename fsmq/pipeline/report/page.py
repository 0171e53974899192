"""The page of a report: one HTML file with all in it, for someone who has never seen Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from fsmq.pipeline.report import charts
from fsmq.pipeline.report.figures import Figures, Queue
from fsmq.pipeline.report.words import moment, number, share, span
from fsmq.words import many

_QUEUES = 50


def page(figures: Figures) -> str:
    """The whole HTML document."""
    style = files("fsmq.pipeline.report").joinpath("page.css").read_text("utf-8")
    span_told = f"{moment(figures.begin)} – {moment(figures.end)} UTC"
    body = [
        f"<header><h1>What happened in fsmq</h1><p>{escape(figures.spool)} · {span_told}</p>"
        "</header>",
        _glance(figures),
        *_sections(figures),
        _words(figures),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>fsmq: {escape(span_told)}</title>\n<style>\n{style}</style></head>\n"
        f"<body><main>\n{chr(10).join(body)}\n</main></body></html>\n"
    )


def _glance(figures: Figures) -> str:
    totals = figures.totals
    oldest = max((queue.oldest_s or 0.0 for queue in figures.queues), default=0.0)
    undone = totals["expired"] + totals["purged"]
    cards = [
        (number(totals["accepted"]), "messages came in", ""),
        (number(totals["removed"]), "were done", "taken by a consumer and acknowledged"),
        (span(figures.all_wait[0]), "usual wait", f"95 % within {span(figures.all_wait[1])}"),
        (
            span(figures.all_processing[0]),
            "usual work on one",
            f"95 % within {span(figures.all_processing[1])}",
        ),
        (share(figures.repeat_share), "of deliveries were repeats", "0 % is perfect"),
        (number(totals["buried"]), "dead letters", "given up after too many tries"),
        (number(undone), "left undone otherwise", "expired, or purged"),
        (
            number(figures.waiting),
            "are there now",
            f"the oldest for {span(oldest)}" if figures.waiting else "every queue is empty",
        ),
    ]
    figures_of_all = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span><small>{escape(more)}</small></div>"
        for value, name, more in cards
    )
    findings = "".join(f"<li>{finding}</li>" for finding in _findings(figures))
    return (
        f'<section class="cards">{figures_of_all}</section>\n'
        f"<section><h2>What deserves a look</h2><ul>{findings}</ul></section>"
    )


def _findings(figures: Figures) -> list[str]:
    """What a person would say who has read the rest; each names what to do."""
    found = []
    slow = [queue for queue in figures.queues if queue.wait[1] is not None]
    if slow:
        slowest = max(slow, key=lambda queue: queue.wait[1] or 0.0)
        found.append(
            f"Messages wait longest in {_name(slowest.name)}: one in twenty waited more than"
            f" {span(slowest.wait[1])}. If that is too long, give it more consumers."
        )
    dead_letters = {row["went_to"] for row in figures.dead}
    stuck = [
        queue
        for queue in figures.queues
        if queue.depth and not queue.sums["claimed"] and queue.name not in dead_letters
    ]
    for queue in stuck[:3]:
        found.append(
            f"Nobody takes anything from {_name(queue.name)}, which holds"
            f" {many(queue.depth, 'message')}, the oldest for {span(queue.oldest_s)}."
        )
    repeated = [queue for queue in figures.queues if queue.sums["repeated"]]
    if repeated:
        most = max(repeated, key=lambda queue: queue.sums["repeated"])
        part = most.sums["repeated"] / most.sums["claimed"]
        found.append(
            f"{_name(most.name)} repeats most: {share(part)} of its deliveries were not the"
            " message’s first. Its consumers fail, or take longer than the visibility timeout."
        )
    if figures.totals["buried"]:
        found.append(
            f"{many(figures.totals['buried'], 'message')} ended in a dead-letter queue. The list of"
            " troublesome messages below has their ids; <code>fsmq peek QUEUE ID</code> shows one."
        )
    if figures.totals["expired"]:
        worst = max(figures.queues, key=lambda queue: queue.sums["expired"])
        found.append(
            f"{many(figures.totals['expired'], 'message')} expired before anyone took them, most in"
            f" {_name(worst.name)}."
        )
    return found or ["Nothing stands out."]


def _sections(figures: Figures) -> list[str]:
    minutes = figures.interval_min
    each = "each minute" if minutes == 1 else f"every {span(minutes * 60)}"
    return [
        _section(
            "Throughput",
            f"How many messages came in, and how many were done (one value {each}).",
            [charts.throughput(figures)],
            "Where the blue line runs above the green one for long, consumers are too slow, and"
            " the queues grow.",
        ),
        _section(
            "How full the queues were",
            "Messages in each queue, waiting or being worked on, at the fullest moment of each"
            " interval.",
            [charts.depth(figures)],
            "A hill that falls again is a burst that was worked off. A slope that only rises is a"
            " queue without enough consumers.",
        ),
        _section(
            "How long it took",
            "Left: the wait, from when a message could be taken until a consumer took it. Right:"
            " the work, from there to the acknowledgement. The blue line is the time that half of"
            " the messages did not exceed; 95 and 99 of a hundred did not exceed the others.",
            [
                _titled("Wait", charts.latency(figures, "wait")),
                _titled("Work", charts.latency(figures, "processing")),
            ],
            "Each line of the grid is about ten times the one below. If the red line rises while"
            " the blue one stays, a few messages are held up: a queue without consumers, or one"
            " slow kind of work.",
        ),
        _section(
            "The slowest queues",
            "From the time of half of a queue’s messages (blue) to that of 95 in a hundred"
            " (orange).",
            [
                _titled("Wait", charts.slowest(figures, "wait")),
                _titled("Work", charts.slowest(figures, "processing")),
            ],
            "A long wait asks for more consumers; long work asks for quicker ones. A wide band"
            " means that messages differ much.",
        ),
        _section(
            "What did not go well at once",
            "Left: deliveries that were not a message’s first, as a share of all. Right: messages"
            " that left without being done.",
            [
                _titled("Repeated deliveries", charts.repeats(figures)),
                _titled("Left undone", charts.ends(figures)),
            ],
            "A message is delivered again when its consumer released it, or did not acknowledge"
            " it in time. Expired ones outlived their time before anyone took them; purged"
            " means purged, or deleted with their queue.",
        ),
        _dead_letters(figures),
        _troublesome(figures),
        _all_queues(figures),
    ]


def _section(title: str, about: str, drawn: Sequence[str], look: str) -> str:
    frames = "".join(f"<figure>{each}</figure>" for each in drawn)
    return (
        f"<section><h2>{title}</h2><p>{about}</p>"
        f'<div class="charts of{len(drawn)}">{frames}</div><p class="look">{look}</p></section>'
    )


def _titled(title: str, svg: str) -> str:
    return f"<figcaption>{title}</figcaption>{svg}"


def _dead_letters(figures: Figures) -> str:
    if not figures.dead:
        return ""
    rows = [
        (
            _name(row["queue"]),
            _name(row["went_to"] or "?"),
            number(row["came"]),
            number(row["still"] or 0),
            moment(row["last_at"]),
        )
        for row in figures.dead
    ]
    head = ("from queue", "to", "came", "still there", "the last")
    return (
        "<section><h2>Dead letters</h2><p>Messages that were put aside after too many tries, and"
        " wait there for a person.</p>"
        + f'<div class="charts"><figure>{charts.dead_letters(figures)}</figure></div>'
        + _table(head, rows, words=2)
        + '<p class="look">When their cause is mended, <code>fsmq mv DEAD-LETTERS QUEUE</code>'
        " sends them back.</p></section>"
    )


def _troublesome(figures: Figures) -> str:
    if not figures.worst:
        return ""
    rows = [
        (
            _name(row["queue"]),
            f"<code>{escape(row['id'])}</code>",
            number(row["attempts"]),
            _OUTCOMES[row["outcome"]],
            moment(row["began_at"]),
            moment(row["last_claimed_at"]),
        )
        for row in figures.worst
    ]
    head = ("queue", "message", "tries", "what became of it", "came", "last try")
    return (
        "<section><h2>Troublesome messages</h2><p>Those that consumers took most often. A"
        " message is called poison if no consumer can ever do it.</p>"
        + _table(head, rows, words=2)
        + '<p class="look">Several of one queue with the same number of tries point at a fault of'
        " the consumer; a single one at its content.</p></section>"
    )


_OUTCOMES = {
    "open": "still there",
    "removed": "done at last",
    "buried": "dead letter",
    "moved": "moved to another queue",
    "expired": "expired",
    "purged": "purged",
    "lost": "not known",
}


def _all_queues(figures: Figures) -> str:
    head = (
        "queue",
        "came",
        "done",
        "repeats",
        "wait: half",
        "95 %",
        "work: half",
        "95 %",
        "fullest",
        "there now",
    )
    shown, more = figures.queues[:_QUEUES], len(figures.queues) - _QUEUES
    caption = "The busiest first."
    if more > 0:
        caption = f"The {_QUEUES} busiest; {more:,} more are in the figures above."
    return (
        f"<section><h2>All queues</h2><p>{caption}</p>"
        + _table(head, [_row(queue) for queue in shown])
        + "</section>"
    )


def _row(queue: Queue) -> tuple[str, ...]:
    sums = queue.sums
    repeats = share(sums["repeated"] / sums["claimed"]) if sums["claimed"] else "–"
    return (
        _name(queue.name),
        number(sums["accepted"]),
        number(sums["removed"]),
        repeats,
        *(span(seconds) for seconds in (*queue.wait[:2], *queue.processing[:2])),
        number(queue.deepest),
        number(queue.depth),
    )


def _words(figures: Figures) -> str:
    late = (
        f" {many(figures.late, 'step')} came too late to be counted by the minute."
        if figures.late
        else ""
    )
    return (
        "<footer><p>Made by <code>fsmq pipeline report</code> from the lifecycle journal, in which"
        " the programs note each step of each message. The journal is nearly complete: a power cut"
        " or a full disk can cost it some steps, never a message. Times are UTC."
        f"{late}</p></footer>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table; the first ``words`` columns are words, the others numbers. Cells are HTML."""

    def line(cells: Sequence[str], tag: str) -> str:
        marked = (
            f"<{tag}{'' if n < words else ' class=n'}>{cell}</{tag}>"
            for n, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    lines = "".join(line(row, "td") for row in rows)
    return f'<div class="wide"><table><thead>{line(head, "th")}</thead>{lines}</table></div>'


def _name(queue: str) -> str:
    return f"<b>{escape(queue)}</b>"
