"""Sections of a page beside the guarantee: budget, plan, measurements, use, and what is signed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from privmix.accounting.guarantee import number
from privmix.markup import Content
from privmix.markup import element as h
from privmix.report.blocks import code_box, data_table, sentence, shown_epsilon
from privmix.report.checklist import Answer
from privmix.report.facts import ReportFacts
from privmix.report.figures import row_scales, strip_figure
from privmix.report.measurements import LedgerFacts, Measure

_MOST_CERTIFICATE = 1_000_000  # characters of it that are shown
_BLANK = "to be filled in"
_SUBJECTS = {  # of an audit, unless it is of this very certificate
    "same_parameters": "It ran the code by the same parameters, for a plan or for another certificate.",
    "unknown": "It does not say what was audited.",
}


def budget(ledgers: Sequence[LedgerFacts]) -> Content:
    """Show what ledgers say of it."""
    if not ledgers:
        return [
            h(
                "p",
                "No ledger was given. Other publications from the same records add to the loss; this page "
                "is about one alone.",
            )
        ]
    rows = [
        (
            one.dataset_id,
            *(
                shown_epsilon(value)
                for value in (one.epsilon_before, one.epsilon_after, one.epsilon_now)
            ),
            number(one.epsilon_limit),
            number(one.delta),
        )
        for one in ledgers
    ]
    return [
        h("p", "Private to the data holder: take this part out before the report is handed on."),
        data_table(
            "Used of the limit",
            ("data set", "before", "after", "now", "limit", "delta"),
            rows,
            numbers=5,
        ),
        h(
            "p",
            "What holds is the limit: everything that the ledger knows of the data set is together within "
            "it. How much of it is used decides what may still be published.",
        ),
        [
            h("p", f"Nothing more is admitted for {one.dataset_id}: {one.refusal}.")
            for one in ledgers
            if one.refusal is not None
        ],
        h("p", "Last entry of the ledger (head): ", h("code", ledgers[0].head)),
    ]


def plan_and_alternatives(facts: ReportFacts) -> Content:
    """Show the plan, and what was compared."""
    parts: list[Content] = [
        h(
            "p",
            "A plan is made from public numbers alone and looks at no record. Whether these numbers were "
            "chosen without a look is for the data holder to say.",
        ),
        data_table("The plan", ("quantity", "value"), facts.plan),
    ]
    if facts.alternatives:
        rows = [
            (
                one.design,
                "yes" if one.centred else "no",
                f"{one.predicted_error:.1%}",
                "taken" if one.taken else "",
            )
            for one in facts.alternatives
        ]
        parts += [
            h("h3", "Alternatives"),
            h(
                "p",
                "What privmix compares at this budget and these sizes, the best first. The errors are those "
                "of a model population: they rank designs and say nothing about these data.",
            ),
            data_table("Designs", ("design", "centred", "predicted error", ""), rows),
        ]
    return parts


def usefulness(facts: ReportFacts) -> Content:
    """Show what was measured."""
    found = facts.utility
    if found is None:
        return [
            h(
                "p",
                "Not measured: no evaluation was given. ",
                h("code", "privmix evaluate --json"),
                " makes one.",
            )
        ]

    def row(one: Measure) -> tuple[str, str, str]:
        ends = one.interval
        return (
            one.name,
            f"{one.value:.4g}",
            "" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}",
        )

    return [
        h(
            "p",
            f"Measured on {found.num_test_records:,} test records, as the evaluation that was given says. "
            "The numbers are about these test records, which nothing here protects.",
        ),
        data_table(
            "Scores",
            ("score", "value", "interval of 95 %"),
            [row(one) for one in found.measures],
            numbers=2,
        ),
        [
            data_table(
                f"{sentence(name)} The lowest {len(lines)} of {found.num_parts[name]}",
                ("of", "value"),
                [row(one)[:2] for one in lines],
                numbers=1,
            )
            for name, lines in found.parts.items()
        ],
    ]


def attacks_and_audits(facts: ReportFacts) -> Content:
    """Show what an audit found."""
    found = facts.audit
    if found is None:
        return [h("p", "None was given. The bounds above are proved, not measured.")]
    sense = (
        "That agrees with the certificate, as far as the attacks went: they find lower bounds only."
    )
    if found.contradicts:
        sense = "The guarantee does not hold as it is certified. Do not hand this out."
    parts: list[Content] = [
        h("p", h("strong", "Verdict: "), found.verdict),
        h(
            "p",
            f"The attacks show, at a confidence of {number(found.confidence)}, an epsilon of at least "
            f"{number(found.lower_bound)}, where {number(found.epsilon)} was claimed. {sense}",
        ),
        h("ul", [h("li", line) for line in found.findings]) if found.findings else None,
    ]
    if (subject := _SUBJECTS.get(found.subject)) is not None:
        parts.append(h("p", subject))
    if not found.same_claim:
        parts.append(
            h(
                "p",
                "The claim that was audited is not the epsilon of this certificate: an audit leaves out "
                "charged preprocessing, and may have been of another delta or another run.",
            )
        )
    return parts


def what_a_row_looks_like(facts: ReportFacts) -> Content:
    """Show a row beside a made-up record."""
    example = facts.example
    if example is None:
        return None
    own, shared = row_scales(example)
    shown = len(example.row)
    times = example.noise_length / example.share_length
    strips = (
        (example.record, own, "A record. This one is made up, and as long as any may be."),
        (example.share, shared, "What that record adds to a row, on the scale of the row below."),
        (example.row, shared, "The first row as it was published."),
    )
    return [
        h(
            "p",
            "No private record is shown on this page. The noise in a row is "
            f"{number(float(f'{times:.3g}'))} times as long as the most that any one record adds to it.",
        ),
        [
            h(
                "figure",
                strip_figure(values, scale, text, place),
                h("figcaption", text, class_="soft"),
            )
            for place, (values, scale, text) in enumerate(strips)
        ],
        h(
            "p",
            f"Each bar is one of the first {shown} of {example.num_features} numbers; the standard "
            f"deviation of the noise in one of the row's is {example.noise_stddev:.4g}.",
        ),
    ]


def how_to_load(facts: ReportFacts) -> Content:
    """Show code that loads it."""
    parts: list[Content] = []
    if facts.kind == "release":
        parts.append(
            h(
                "p",
                "A row holds many records, one, or none, and noise: single rows mean little. Learners of "
                "privmix know the noise; others do better with synthetic records.",
            )
        )
    for tool, text in facts.loading.items():
        parts += [h("h3", tool), code_box(text.rstrip("\n"), tool)]
    return parts


def questions(answers: Sequence[Answer]) -> Content:
    """Show the checklist."""
    parts = list(dict.fromkeys(one.part for one in answers))
    blanks = sum(one.answer is None for one in answers)
    return [
        h(
            "p",
            "Questions after NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees "
            f"(2025). {len(answers) - blanks} are answered by facts; {blanks} are blank, for people to "
            "fill in.",
        ),
        [
            data_table(
                part,
                ("question", "answer", "from"),
                [
                    (
                        one.question,
                        h("span", f"BLANK: {_BLANK}", class_="blank")
                        if one.answer is None
                        else one.answer,
                        one.source or "",
                    )
                    for one in answers
                    if one.part == part
                ],
            )
            for part in parts
        ],
    ]


def decision() -> Content:
    """Leave room for a signature."""
    lines = ("Decision", "Conditions", "Name and role", "Date", "Signature")
    rows = [h("tr", h("th", line, scope="row"), h("td", " ")) for line in lines]
    caption = h("caption", "To be filled in by hand")
    return [h("table", caption, h("tbody", rows), class_="sign")]


def whole_certificate(text: str) -> Content:
    """Show the certificate."""
    shown = text if len(text) <= _MOST_CERTIFICATE else text[:_MOST_CERTIFICATE]
    more = None
    if len(shown) < len(text):
        more = h(
            "p", f"The first {len(shown):,} of {len(text):,} characters; the file has all of it."
        )
    return [
        more,
        h(
            "details",
            h("summary", "certificate.json"),
            code_box(shown.rstrip("\n"), "certificate.json", long=True),
        ),
    ]


def registry_entry(facts: ReportFacts) -> Content:
    """Show the entry for a registry."""
    text = json.dumps(facts.deployment, indent=2, ensure_ascii=False)
    return [
        h(
            "p",
            "In the shape of OpenDP's registry of deployments of differential privacy; null is a blank, to "
            "be filled in by the sender.",
        ),
        h("details", h("summary", "The entry"), code_box(text, "registry entry", long=True)),
    ]
