"""Sections of a page that are about the guarantee."""

from __future__ import annotations

from privmix.accounting.guarantee import number
from privmix.markup import Content
from privmix.markup import element as h
from privmix.report.blocks import code_box, data_table, sentence
from privmix.report.facts import AttackerGain, ReportFacts
from privmix.report.figures import people_figure, tradeoff_figure


def whose(facts: ReportFacts) -> str:
    """Name what is protected as a whole."""
    unit = facts.guarantee.privacy_unit
    return "one record" if unit == "record" else f"the records of one {unit}"


def gain_sentence(gain: AttackerGain) -> str:
    """Say what an attacker gains."""
    return (
        f"Of 1,000 people in the data, an attacker who wrongly accuses {number(gain.false_alarms)} of "
        f"1,000 others finds at most {number(gain.found_at_most)}; by guessing alone "
        f"{number(gain.by_guessing)}."
    )


def what_was_done(facts: ReportFacts) -> Content:
    """Say what was done."""
    return [h("p", line) for line in facts.summary]


def who_is_protected(facts: ReportFacts) -> Content:
    """Say who is protected, against whom, and what that means."""
    told = facts.guarantee
    if not facts.private:
        return [h("p", sentence(told.statement))]
    return [
        h("p", h("strong", "Protected: "), sentence(told.protects)),
        h(
            "p",
            h("strong", "Against: "),
            "anybody who has the published files, whatever else they know, all other records included, "
            "and however long they compute.",
        ),
        h("p", h("strong", "That is: "), sentence(told.meaning)),
    ]


def how_strongly(facts: ReportFacts) -> Content:
    """Show epsilon at several deltas, and the trade-off curve."""
    if not facts.private:
        return [h("p", "Nothing is guaranteed, so there are no numbers to state.")]
    rows = [
        (number(delta), number(epsilon))
        for delta, epsilon in sorted(
            ((float(delta), epsilon) for delta, epsilon in facts.epsilon_by_delta.items()),
            reverse=True,
        )
    ]
    told = facts.guarantee
    slider = h(
        "p",
        h("label", "Wrongly accused", for_="rate"),
        h("input", type="range", id="rate", min="0", max="1000", value="100"),
        h("output", id="told", for_="rate", aria_live="polite"),
        class_="reader",
        hidden=True,
    )
    return [
        h("p", f"Certified: {told.statement}."),
        h(
            "p",
            f"Epsilon is a limit on how much more likely any outcome becomes through {whose(facts)}. It "
            "holds but for a probability of delta; for a smaller delta, epsilon is larger. All of these "
            "hold at once, and each is rounded up.",
        ),
        data_table("Epsilon at several deltas", ("delta", "epsilon"), rows, numbers=2),
        h("h3", "All of it in one line"),
        h(
            "p",
            "The line is the strongest attacker that the guarantee allows. On the dashed line an attacker "
            "only guesses; the nearer the two, the better the protection.",
        ),
        h(
            "figure",
            tradeoff_figure(facts.tradeoff_curve),
            slider,
            h(
                "figcaption",
                "People in the data who are found at most, over people not in the data who are wrongly "
                "accused.",
                class_="soft",
            ),
            class_="curve",
        ),
    ]


def attackers_gain(facts: ReportFacts) -> Content:
    """Show what an attacker gains among 1,000 people."""
    if not facts.private:
        return [h("p", "No bound holds: an attacker may find everybody.")]
    pictures = [
        h("figure", people_figure(gain, place), h("figcaption", gain_sentence(gain)))
        for place, gain in enumerate(facts.attacker)
    ]
    return [
        h(
            "p",
            "An attacker wants to tell whose record is in the data. Whoever accuses more people finds "
            "more, by chance alone: that is what guessing means here. The pictures show 1,000 people who "
            f"are in the data with {whose(facts)} each.",
        ),
        h(
            "p",
            h("span", class_="key guess"),
            "found by guessing ",
            h("span", class_="key gain"),
            "at most found beyond that ",
            h("span", class_="key rest"),
            "not found",
        ),
        h("div", pictures, class_="people"),
        h(
            "p",
            "These are limits for the strongest attacker there can be, not what anybody achieved.",
        ),
    ]


def how_to_check(facts: ReportFacts) -> Content:
    """Say how to find out whether it is genuine."""
    print_of_key = facts.signature.key_fingerprint
    return [
        h(
            "p",
            "For this report the files were compared with the certificate, and everything in the "
            "certificate was computed anew. This does not show who made it: anyone who can change all files "
            "can change the certificate, too.",
        ),
        h("p", h("strong", "Origin: "), sentence(facts.signature.statement)),
        h("p", h("strong", "Key that signed: "), print_of_key or "none; it is not signed"),
        h("p", h("strong", "Digest: "), h("code", facts.digest)),
        h(
            "p",
            "Get the digest, or the signer's public key, from the data holder by another way than the one "
            "that the files came by. Then, with DIR for the folder:",
        ),
        h(
            "dl",
            [
                (h("dt", sentence(about)), h("dd", code_box(command, about)))
                for about, command in facts.checks.items()
            ],
        ),
    ]
