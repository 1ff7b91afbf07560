"""What was done and what is not protected, in plain words, from a certificate's facts."""

from __future__ import annotations

from privmix.accounting.guarantee import number
from privmix.dpsgd.model_certificate import ModelCertificate
from privmix.mechanism import Design
from privmix.publishing.certificate import Certificate

_NOISE = "How well they hide any one record's part is what the numbers below say."
_SUMS = f"Random numbers (Gaussian noise) were added to every sum. {_NOISE}"

# How records enter the rows of each design.
DESIGN_WORDS: dict[Design, str] = {
    "poisson": "Every row is the sum of a few records, each of which was drawn by chance.",
    "signed": "Every row is a sum of records drawn by chance, each added or subtracted by the toss of "
    "a secret coin.",
    "stratified": "Every row is the sum of records of one class, fixed in advance.",
    "hybrid": "Some rows are the sum of all records of a class; the others are sums of records drawn by "
    "chance, each added or subtracted by the toss of a secret coin.",
    "adaptive": "In rounds, every row is a sum of records weighted by how far a model learnt from the "
    "earlier rows is from their label; other rows are sums of records drawn by chance.",
    "hierarchical": "For every row some classes were chosen by chance, and every row is the sum of a few "
    "of their records.",
    "uniform": "Every row is the sum of a fixed number of records, drawn by chance.",
    "transposed": "Every record was put into a fixed number of rows, drawn by chance; a row is the sum "
    "of the records in it.",
}


def release_summary(certificate: Certificate) -> tuple[str, ...]:
    """Say what was done to make a release."""
    schema, mechanism = certificate.data_schema, certificate.mechanism
    what = "classes" if schema.target_bounds is None else "outputs"
    made = "Their features were taken as the data holder gave them."
    if (extractor := certificate.extractor) is not None:
        made = f"A public program ({extractor.name}) turned each record into {schema.num_features} numbers."
    lines = [
        f"About {schema.num_records:,} labelled records of {len(schema.classes):,} {what} were "
        f"turned into {mechanism.num_mixtures:,} noisy rows of {mechanism.num_features:,} numbers. "
        "The rows are published; the records are not.",
        made,
        DESIGN_WORDS[mechanism.design],
        f"Before it was added, every record was limited in length to {number(schema.feature_clip_norm)}. "
        + _SUMS,
    ]
    if paid := [
        step.step.replace("_", " ") for step in certificate.preprocessing if step.is_charged
    ]:
        lines.append(
            f"Statistics that prepare the records ({', '.join(paid)}) were published with noise, too; "
            "what they cost is part of the numbers below."
        )
    return tuple(lines)


def model_summary(certificate: ModelCertificate) -> tuple[str, ...]:
    """Say what was done to train a model."""
    config, model = certificate.config, certificate.model
    kind = "the last layer of a public network" if model.kind == "linear_head" else "a network"
    return (
        f"About {config.num_records:,} labelled records of {len(config.classes):,} classes were used "
        f"to train {kind} with {model.num_parameters:,} numbers. The model is published; the records "
        "are not.",
        f"Training took {config.num_steps:,} steps. Each step looked at records drawn by chance, "
        f"{config.batch_size:,} on average, and limited how far any one of them could move the model.",
        f"Random numbers (Gaussian noise) were added in every step. {_NOISE}",
    )


def not_protected(certificate: Certificate | ModelCertificate) -> tuple[str, ...]:
    """Say what the guarantee does not cover; each line begins with what it is about."""
    lines = [
        "What is true of people in general: if the data show that smoking and a disease go together, "
        "that is learnt of every smoker, whether in the data or not.",
        "What is stated in public: the planned number of records, the names of the classes, the limits "
        "and every number in the certificate.",
        _unit_limit(certificate),
        "Other publications from the same records: their losses add up. A ledger keeps account of them.",
        "The original records: anyone who can read them where they are kept learns all of it. This is "
        "about what is published.",
        "Choices made by looking at the records before they were mixed: which records to take, say, or "
        "which limits to set.",
    ]
    extractor = certificate.extractor
    if extractor is not None:
        lines.append(
            "People in whose data the public program that made the features was trained: the guarantee "
            "is about the records, not about these."
        )
    return tuple(lines)


def _unit_limit(certificate: Certificate | ModelCertificate) -> str:
    if (owner := certificate.unit_column) is not None:
        return (
            f"Groups: one {owner!r} is protected with all of its records; several of them together are "
            "protected less."
        )
    return (
        "People with several records: one record is protected. Whoever has many is protected less, as "
        "are families and other groups."
    )
