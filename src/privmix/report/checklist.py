"""Questions about a guarantee after NIST SP 800-226, answered from facts; what no fact answers is blank.

The publication (Near, Darais, Lefkovitz, Howarth: Guidelines for Evaluating Differential Privacy
Guarantees, 2025) arranges what an evaluation has to look at as a pyramid. The questions here are about
its parts, from the top: the guarantee and its unit; the algorithm and how it is built; utility and bias;
trust, security and the collection of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from privmix._validate import FrozenModel
from privmix.accounting.guarantee import Guarantee, number
from privmix.publishing.signature import Origin
from privmix.report.measurements import Audit, LedgerFacts, Utility

Source = Literal["certificate", "verification", "ledger", "evaluation", "audit"]


class Answer(FrozenModel):
    """One question.

    Attributes:
        part: The part of the evaluation that it belongs to.
        question: The question.
        answer: What the facts say; None for a blank, which a person has to fill in.
        source: Where the answer comes from; None for a blank.

    """

    part: str
    question: str
    answer: str | None = None
    source: Source | None = None


_GUARANTEE = "The guarantee"
_ALGORITHM = "The algorithm and its implementation"
_UTILITY = "Utility and bias"
_DEPLOYMENT = "Trust, security and data collection"


def checklist(
    guarantee: Guarantee,
    *,
    plan: Sequence[tuple[str, str]],
    signature: Origin,
    ledger: Sequence[LedgerFacts],
    utility: Utility | None,
    audit: Audit | None,
) -> tuple[Answer, ...]:
    """Answer what the facts answer."""
    told: list[Answer] = []
    told += _about_guarantee(guarantee, ledger)
    told += _about_algorithm(plan, audit, private=guarantee.private)
    told += _about_utility(utility)
    told += _about_deployment(signature)
    return tuple(told)


def _about_guarantee(guarantee: Guarantee, ledger: Sequence[LedgerFacts]) -> Iterator[Answer]:
    def certified(question: str, answer: str) -> Answer:
        return Answer(part=_GUARANTEE, question=question, answer=answer, source="certificate")

    yield certified("Which kind of differential privacy is claimed?", guarantee.statement)
    yield certified("Whose data, and how much of it, is protected?", guarantee.protects)
    weak = "; ".join(guarantee.weaknesses) or (
        f"epsilon {number(guarantee.epsilon)} and delta {number(guarantee.delta)}: neither is in the "
        "range that privmix calls weak"
    )
    if not guarantee.private:
        weak = guarantee.statement
    yield certified("How strong are the parameters?", weak)
    yield certified(
        "What could an attacker learn about one person?",
        guarantee.attacker or "nothing is bounded",
    )
    yield Answer(
        part=_GUARANTEE, question="Who decided that this is strong enough for this use, and why?"
    )
    question = "Does the bound cover everything that was published from the same data?"
    if not ledger:
        yield Answer(part=_GUARANTEE, question=question)
    for one in ledger:
        limit = f"the limit of {number(one.epsilon_limit)} at delta {number(one.delta)}"
        if one.refusal is None:
            held = f"yes, of what the ledger knows: {limit} holds for data set {one.dataset_id!r}"
        else:
            held = f"NO for data set {one.dataset_id!r}: {one.refusal}"
        yield Answer(part=_GUARANTEE, question=question, answer=held, source="ledger")


def _about_algorithm(
    plan: Sequence[tuple[str, str]], audit: Audit | None, *, private: bool
) -> Iterator[Answer]:
    def certified(question: str, answer: str) -> Answer:
        return Answer(part=_ALGORITHM, question=question, answer=answer, source="certificate")

    yield certified(
        "Which mechanism was used?", "; ".join(f"{name}: {value}" for name, value in plan)
    )
    yield certified(
        "Is the influence of a record bounded whatever the data are?",
        "yes: every record is cut to a stated length before it is added, in whole numbers",
    )
    yield certified(
        "Could rounding of floating-point numbers give something away?",
        "no: sums and noise are whole numbers; what is published is a fixed function of them",
    )
    drawn = (
        "a cryptographic generator with a key of the operating system's, destroyed at the end; the "
        "noise is drawn exactly"
    )
    if not private:
        drawn = "NOT from a secret key, or more was kept than is protected: see the statement"
    yield certified("Where do the random numbers come from?", drawn)
    yield Answer(
        part=_ALGORITHM,
        question="Does the certificate follow from its own parameters, and do the files fit it?",
        answer="yes, recomputed for this report",
        source="verification",
    )
    yield Answer(
        part=_ALGORITHM,
        question="Were limits, classes, designs and settings chosen without a look at the records?",
    )
    question = "Was the implementation attacked or audited?"
    if audit is None:
        yield Answer(part=_ALGORITHM, question=question)
    else:
        answer = (
            f"yes: {audit.verdict} (epsilon is at least {number(audit.lower_bound)} at a confidence of "
            f"{number(audit.confidence)}; tested was {number(audit.epsilon)})"
        )
        yield Answer(part=_ALGORITHM, question=question, answer=answer, source="audit")
    yield Answer(
        part=_ALGORITHM,
        question="Who could observe the machine, or how long it took, during the run?",
    )


def _about_utility(utility: Utility | None) -> Iterator[Answer]:
    accurate = "Is the result accurate enough for its use?"
    groups = "Are small groups served worse than large ones?"
    if utility is None:
        yield Answer(part=_UTILITY, question=accurate)
        yield Answer(part=_UTILITY, question=groups)
    else:
        first = utility.measures[0]
        answer = f"{first.name} {first.value:.4g} on {utility.num_test_records:,} test records"
        yield Answer(
            part=_UTILITY,
            question="What was measured?",
            answer=answer,
            source="evaluation",
        )
        yield Answer(part=_UTILITY, question=accurate)
        worst = [
            f"lowest {name}: {lines[0].name} with {lines[0].value:.4g}"
            for name, lines in utility.parts.items()
        ]
        yield Answer(
            part=_UTILITY,
            question=groups,
            answer="; ".join(worst) or None,
            source="evaluation" if worst else None,
        )
    yield Answer(
        part=_UTILITY, question="Could the way the data were collected, or are used, be unfair?"
    )


def _about_deployment(signature: Origin) -> Iterator[Answer]:
    yield Answer(
        part=_DEPLOYMENT,
        question="Who has to be trusted?",
        answer="the data holder, who has the records (the central model); nobody else has to be",
        source="certificate",
    )
    yield Answer(
        part=_DEPLOYMENT,
        question="What can users ask?",
        answer="nothing: it is published once, and whatever is computed from it costs nothing more",
        source="certificate",
    )
    yield Answer(
        part=_DEPLOYMENT,
        question="How do users know that it is genuine?",
        answer=signature.statement,
        source="verification",
    )
    for question in (
        "How are the original records secured, and who has access to them?",
        "Who keeps the ledger and the run folders, and who can read them?",
        "How were the records collected, on what legal ground, and how long are they kept?",
        "Who may get the result, and whom do people ask who are in the data?",
    ):
        yield Answer(part=_DEPLOYMENT, question=question)
