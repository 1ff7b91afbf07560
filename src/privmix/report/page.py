"""The facts of a report as one HTML page that loads nothing from anywhere."""

from __future__ import annotations

from privmix.accounting.guarantee import NOT_PRIVATE, number
from privmix.markup import Content, Element, page
from privmix.markup import element as h
from privmix.report.background import (
    attacks_and_audits,
    budget,
    decision,
    how_to_load,
    plan_and_alternatives,
    questions,
    registry_entry,
    usefulness,
    what_a_row_looks_like,
    whole_certificate,
)
from privmix.report.blocks import lead_line, listed, sentence
from privmix.report.facts import ReportFacts
from privmix.report.protection import (
    attackers_gain,
    gain_sentence,
    how_strongly,
    how_to_check,
    what_was_done,
    who_is_protected,
    whose,
)
from privmix.report.style import SCRIPT, STYLE, content_policy


def report_page(facts: ReportFacts) -> str:
    """Return the page. Every text of the facts is escaped."""
    sections = [
        ("done", "What was done", what_was_done(facts)),
        ("who", "Who is protected, and against what", who_is_protected(facts)),
        ("strength", "How strongly", how_strongly(facts)),
        ("attacker", "What an attacker gains", attackers_gain(facts)),
        (
            "limits",
            "What is not protected",
            [h("ul", [lead_line(one) for one in facts.not_protected])],
        ),
        ("genuine", "How to check that it is genuine", how_to_check(facts)),
        ("budget", "The budget before and after", budget(facts.ledger)),
        ("plan", "The plan, and plans that were not taken", plan_and_alternatives(facts)),
        ("utility", "How useful it is", usefulness(facts)),
        ("audit", "Attacks and audits", attacks_and_audits(facts)),
        ("row", "What a row looks like", what_a_row_looks_like(facts)),
        ("load", "How to load it", how_to_load(facts)),
        ("checklist", "Checklist", questions(facts.checklist)),
        ("sign", "Decision", decision()),
        ("certificate", "The certificate in full", whole_certificate(facts.certificate)),
        ("registry", "Entry for a registry of deployments", registry_entry(facts)),
    ]
    shown = [(name, title, content) for name, title, content in sections if content]
    name = f"{facts.kind} {facts.name}"
    body = [
        h("a", "To the content", href="#main", class_="skip"),
        h(
            "header",
            h("h1", f"Privacy report: {name}"),
            h("p", f"Made by {facts.made_by} from a certificate that was verified."),
            h("p", _seal(facts)),
            _stamps(facts),
        ),
        h(
            "nav",
            h("ul", [h("li", h("a", title, href=f"#{one}")) for one, title, _ in shown]),
            aria_label="Contents",
        ),
        h(
            "main",
            h("h2", "In short", id="short"),
            _short(facts),
            [
                h("section", h("h2", title, id=one), content, aria_labelledby=one)
                for one, title, content in shown
            ],
            id="main",
            tabindex="-1",
        ),
        h("footer", h("p", _seal(facts), class_="soft")),
        h("script", SCRIPT),
    ]
    policy = h("meta", http_equiv="Content-Security-Policy", content=content_policy())
    return page(f"Privacy report: {name}", [policy, h("style", STYLE)], body)


def _seal(facts: ReportFacts) -> Content:
    return f"Certificate digest (SHA-256): {facts.digest}"


def _stamps(facts: ReportFacts) -> Content:
    if not facts.private:
        return h(
            "p",
            f"{NOT_PRIVATE}. {facts.guarantee.statement}. No number on this page protects anybody. "
            "Do not hand this out.",
            class_="stamp",
            role="note",
        )
    told = list(facts.guarantee.weaknesses)
    if facts.audit is not None and facts.audit.contradicts:
        told.append(
            "an audit found more than the certificate allows: the guarantee does not hold as stated"
        )
    return [h("p", one, class_="stamp", role="note") for one in told]


def _short(facts: ReportFacts) -> Element:
    """Answer the five questions that everybody has."""
    told = facts.guarantee
    strength: Content = h("p", f"Nothing is guaranteed: {told.statement}.")
    gain: Content = h("p", "No bound holds: an attacker may find everybody.")
    protects = "Nobody."
    if facts.private:
        protects = sentence(told.protects)
        strength = [
            h("p", f"epsilon {number(told.epsilon)}", class_="big"),
            h(
                "p",
                f"at delta {number(told.delta)}. The smaller, the stronger; 0 would mean that "
                f"{whose(facts)} changes nothing.",
            ),
        ]
        one = facts.attacker[1]
        gain = h("p", gain_sentence(one))
    return h(
        "ul",
        [
            h(
                "li",
                h("h3", title),
                content,
                h("p", h("a", f"More {about}", href=f"#{goal}")),
            )
            for title, content, about, goal in (
                ("Who is protected", h("p", protects), "on who is protected", "who"),
                ("How strongly", strength, "on how strongly", "strength"),
                ("What an attacker gains", gain, "on an attacker's gain", "attacker"),
                (
                    "What is not protected",
                    h("p", listed(one.partition(":")[0] for one in facts.not_protected)),
                    "on what is not protected",
                    "limits",
                ),
                ("Is it genuine?", h("p", _genuine_sentence(facts)), "on checking it", "genuine"),
            )
        ],
        class_="cards",
    )


def _genuine_sentence(facts: ReportFacts) -> str:
    if facts.signature.key_fingerprint is not None:
        return "It is signed. Check whose key it is, or compare the digest with the data holder's."
    return "It is not signed. Ask the data holder for the digest, and compare it."
