"""All tables and figures on one page of Markdown, from the documents that were kept of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertvision.workflows.reproduce.claims import FAILS, HOLDS, OPEN
from bertvision.workflows.reproduce.documents import claim_verdicts, is_current, only_current
from bertvision.workflows.reproduce.estimate import plan
from bertvision.workflows.reproduce.published import published
from bertvision.workflows.reproduce.specs import Item, all_items, shared_at
from bertvision.workflows.reproduce.text import check_words, item_cells, markdown_table, missing_lines, order_words

LONGEST = 3
TIMED = ("shared", "item")
PICTURES = "../results/reproduce"
"""Where they are, seen from the page."""

EARLIER = " **Made before the recipe, or the data below it, was last changed; not made again yet.**"
WORDS = {HOLDS: "hold", FAILS: "do not", OPEN: "are not decided"}

HEAD = """\
# The papers' tables and figures

```
bertvision reproduce list
bertvision reproduce bv-table-1 --data FOLDER                  # laptop scale: minilm, minutes
bertvision reproduce all --data FOLDER --scale paper --plan    # data, hours and bytes of the real thing
```

`FOLDER` holds `squad/`, `glue/` and `crowdflower/`; `--plan` names the files (of SQuAD the official ones will do). Each
of the {count} is a recipe in `recipes/reproduce/`; what they share (data sets, checkpoints, stores) is in
`recipes/shared.toml` and made once below `--out`; interrupted, the same command goes on. Printed numbers are in
`recipes/published.csv`, {misprints} of them corrected, with what was printed and why; the claims and the comparisons
that decide them are in `recipes/claims.toml`. Rows whose data is not there say "no data".

A claim **holds** if the whole 95 % interval of every comparison agrees with it, **does not hold** if the whole interval
of one contradicts it, made wider for the number of the claim's comparisons (Bonferroni), and else is **not decided at
this scale**. Intervals are for the luck of the dev examples (whole contexts drawn together); those of layer weights are
the range over six seeds, those of times the second and the eighth of nine rounds. Encoders are tuned with one seed, and
so are the costliest heads fitted at laptop scale; that luck is in no interval. Comparisons are of a head's mean over
its seeds; rows of an analysis (answer types, second answers, lengths) are of the seed that is best on inner, and may
differ a little from that. Where neither side of a comparison is better than one answer to everything (of labels by
Matthews' correlation), nothing is called shown, except in claim 10, which says just that.

Laptop scale is a small encoder on a small part of the data: its verdicts are about that, and not about BERT.

- The encoder of everything on SQuAD has first learned where answers are, from 3,240 questions of SQuAD 1.1; what is
  called untuned has not. Answerability goes on from there and one epoch of spans.
- SQuAD 2.0 has fewer unanswerable questions here, and its dev more of SQuAD 1.1's, so that a third has no answer, in
  dev as in training: where half have none, this encoder has to see some 47,000 (many of them [more than
  once](defaults.md#what-was-needed-to-make-it-learn-squad-20)) to become better than never answering. It is 800
  questions, of Hulburd's tables 500, and as many of dev; inner, where a head's epoch is chosen, is a tenth of them.
- No answer is said where its score is the highest, as in the papers, with no threshold from inner. Else spans are
  decoded as everywhere here, the best pair of start and end within the context; the paper's own way (two arg-maxes by
  themselves, an end before its start being no answer) is `bertvision evaluate RUN --decode legacy`.
- Heads are as wide by the encoder's width as in the paper: "386" is 145 of 384, "64" is 24; a compression to 386 of 384
  would be none, and claim 4 could not be told.
- Heads on spans are fitted for one epoch as in the paper, at half its batch, for more steps.
- Adapters on GLUE and the sets of texts are tuned for 2 epochs at 1e-3, where the paper takes 10 or 50 at lower rates.

This scale was not fixed beforehand. What SQuAD is mixed from was changed twice, after looking at results on this dev:
with SQuAD 2.0 alone nothing was better than never answering (0 claims held, 5 did not); with fewer unanswerable
questions in dev than in training who always answers came first. Then the widths of heads were changed for time and
proportion, and nearly all sizes for time (they were a fifth larger, of GLUE up to twice as large), and questions that
the encoder had begun with were taken out of its training, all before results with these were seen; last, after a look
at some of them, CoLA, of which 2,500 sentences taught no method anything, was cut to 300 but for figure 8, and for time
alone heads on spans to one epoch and the sets of texts by a third. The comparisons of claims 4, 6 and 24 and what
counts as having learned labels were revised after a first look, too: claim 24 was undecided before; and five
comparisons of claims 10, 20 and 21 were withdrawn at this scale, because a side of them has too little to learn from
(until then claim 10 held, and 20 and 21 did not); and that contradictions must outlast the number of comparisons was
added last (until then claim 15 did not hold), with the comparison at 60 % in claim 9 (which changes
nothing). Read the verdicts as a description.

By its plan (`--plan`) all of laptop scale is {hours:.1f} hours of tuning and extraction on two cores, {shared:.1f} of
them for what several tables share; heads come on top.
{times}Minutes of one table can be compared with each other, seconds of the curves too, but not between them: the
machine was not equally busy. Times that claims rest on are measured in turns.

{tally}{earlier}

This page is made by `python benchmarks/reproduction.py` from `results/reproduce/`; {done} of {count} have been run.
"""


def page(documents: Mapping[str, Mapping[str, Any]], timed: Sequence[Mapping[str, str]]) -> str:
    """The whole page; items that have not been run say so. Timed are rows of ``results/reproduce_times.csv``."""
    items = all_items()
    corrected = sum(one.printed is not None and one.printed != one.value for one in published())
    verdicts = claim_verdicts(only_current(documents.values()))
    laptop = plan(list(items.values()), shared_at("laptop"))
    head = HEAD.format(
        count=len(items),
        misprints=corrected,
        done=len(documents),
        hours=laptop["hours"],
        shared=laptop["shared_hours"],
        times=_times(timed),
        tally=tally(verdicts),
        earlier=_earlier(documents.values()),
    )
    parts = [
        head,
        "## Claims\n",
        _claims(verdicts),
        *(_section(item, documents.get(item.name)) for item in items.values()),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _earlier(documents: Iterable[Mapping[str, Any]]) -> str:
    """Tables and figures that are older than their recipes: shown, but no verdict rests on them."""
    old = [document["item"] for document in documents if not is_current(document)]
    told = "Not counted, because they were made before their recipes last changed, and not decided for that"
    return f"\n{told}: {', '.join(old)}." if old else ""


def _times(timed: Sequence[Mapping[str, str]]) -> str:
    """What is shared, and what the longest items take after that."""
    seconds = {kind: {row["name"]: float(row["seconds"]) for row in timed if row["kind"] == kind} for kind in TIMED}
    if not all(seconds.values()):
        return ""
    shared, items = seconds.values()
    longest = sorted(items, key=lambda name: -items[name])[:LONGEST]
    told = ", ".join(f"{name} {items[name]:,.0f}" for name in longest)
    return (
        "Measured with two threads (`python benchmarks/reproduce_times.py`, `results/reproduce_times.csv`):\n"
        f"{sum(shared.values()) / 60:,.0f} minutes for what is shared, now and then other work beside it, and after "
        f"that, each of {len(items)} by itself, at most\n{told} seconds.\n"
        "Where the file tells of no heads, others had fitted them; seconds of the processor stand there, too.\n"
    )


def tally(found: Sequence[Mapping[str, Any]]) -> str:
    """How many claims, and how many of the comparisons that decide them, have which verdict."""
    claimed = Counter(claim["verdict"] for claim in found)
    compared = Counter(test["verdict"] for claim in found for test in claim["tests"])
    told = [", ".join(f"{count[one]} {word}" for one, word in WORDS.items()) for count in (claimed, compared)]
    return f"Of the {len(found)} claims {told[0]}; of their {compared.total()} comparisons {told[1]}."


def _claims(found: Sequence[Mapping[str, Any]]) -> str:
    cells = [["", "claim", "verdict", "what was compared"]]
    for claim in found:
        waiting = claim["of"] - len(claim["tests"])
        told = [check_words(test) for test in claim["tests"]] + ([f"{waiting} not run yet"] if waiting else [])
        cells.append(
            [
                str(claim["id"]),
                f"{claim['text']} ({claim['source']})",
                f"**{claim['verdict'] if claim['tests'] else 'not run yet'}**",
                "<br>".join(told),
            ]
        )
    return markdown_table(cells) + "\n"


def _section(item: Item, document: Mapping[str, Any] | None) -> str:
    title = f"## {item.name}: {item.title}\n\n{item.source}."
    if document is None:
        return f"{title} Not run yet: `bertvision reproduce {item.name} --data FOLDER`.\n"
    told = f"{title} {document['scale'].capitalize()} scale, {document['encoder']}: {document['status']}."
    told += "" if is_current(document) else EARLIER
    told += "".join(f" {order_words(order).capitalize()}." for order in document["rank_correlations"])
    lines = [told, "", markdown_table(item_cells(document)), "", *missing_lines(document)]
    lines += [f"![{item.title}]({PICTURES}/{name})\n" for name in document["pictures"]]
    return "\n".join([*lines, " ".join([document["note"], *document["notes_on_published"]])]).rstrip() + "\n"
