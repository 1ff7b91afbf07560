"""The dataset card of a release, from public facts only."""

from __future__ import annotations

import json
from collections.abc import Iterable

from privmix.accounting.guarantee import Guarantee
from privmix.markup import markdown
from privmix.mechanism import ResidualConfig, TableConfig
from privmix.planning.summary import plan_notes
from privmix.preprocess import FILE_NAME as PREPROCESSING_NAME
from privmix.preprocess import Step
from privmix.publishing.certificate import Certificate
from privmix.publishing.folder import COMPONENTS
from privmix.schema import Schema, Target

CARD_NAME = "README.md"
_SYNTHESIS = """
Tools that know nothing of noisy sums need records, which
`privmix synthesize FOLDER --num-records 10000 --out synthetic.parquet` draws from what the rows say, where
they say enough. They have labels and the columns that records had, where these can be told, and the same guarantee.
"""


def dataset_card(certificate: Certificate) -> str:
    """Write the README.md of a release: a Hugging Face dataset card, from public facts only."""
    schema, mechanism = certificate.data_schema, certificate.mechanism
    tables = "\n".join(_describe(part, schema) for part in mechanism.components)
    columns = {
        "public": "- `label`: the class of all the records in the row, as an index into the classes\n",
        "mixed": f"- `label_weights`: {_LABEL_TEXTS[schema.target]}\n",
    }
    described = columns.get(mechanism.components[0].labels, "")
    names = " or ".join(f"`{name}`" for name in COMPONENTS.get(mechanism.design, ()))
    if mechanism.design == "hybrid":
        described = (
            f"- `component`: {names}\n"
            "- `label`: the class of a class sum, as an index into the classes; null elsewhere\n"
        )
    kind = "a sum of private records, chosen at random,"
    if mechanism.design == "adaptive":
        described = (
            f"- `component`: {names}\n"
            "- `label`: the class of a residual row, or of a row of weights, as an index into the "
            "classes; null elsewhere\n\n"
            "Rows of `weights` carry no noise. Those before the residuals of a round are the public "
            "model's\nweights in that round, for features in clip norms.\n"
        )
        kind = (
            "a sum of private records, chosen at random or, in rounds, weighted by how far\na public "
            "model that earlier rounds determine is from the label,"
        )
    private = certificate.private
    drawn = "" if plan_notes(certificate.to_plan()) else _SYNTHESIS  # all that they tell of
    return f"""---
pretty_name: {"Private mixtures" if private else "Mixtures, not private"}
tags:
- {"differential-privacy" if private else "not-private"}
- mixup
configs:
- config_name: default
  data_files: data/*.parquet
---

# {"Private mixtures" if private else "Mixtures, NOT PRIVATE"}

Each row is {kind} plus Gaussian noise, divided by a public
constant. {_describe_guarantee(certificate.guarantee)}

Design `{mechanism.design}`:

{tables}
{_describe_steps(certificate.preprocessing)}
Columns:

- `features`: {mechanism.num_features} numbers, the noisy sum of the records' feature vectors, each
  clipped to L2 norm {schema.feature_clip_norm:g}, over the constant
{described}
{_describe_classes(schema)}
{_describe_features(certificate)}

To load the rows: `datasets.load_dataset("FOLDER")`, `pandas.read_parquet("FOLDER/data")`,
`polars.read_parquet("FOLDER/data")`, `privmix.Release("FOLDER")`.

A row can hold many records, one, or none: single rows mean little, and a learner should know the
noise. `privmix train` fits one that does.
{drawn}"""


def _describe_guarantee(guarantee: Guarantee) -> str:
    lines = "\n".join(f"- {markdown(line)}" for line in guarantee.lines())
    if not guarantee.private:
        return f"""**{guarantee.statement}.**
The noise can be computed and taken off, so share these rows as you would the records.
`privmix verify` rejects them."""
    return f"""The rows together are {markdown(guarantee.statement)}.

{lines}

`certificate.json` states the mechanism; `privmix verify` recomputes its guarantee from it."""


def _describe_features(certificate: Certificate) -> str:
    """Name what made the features, and the features where they have names."""
    told = ["\nFeatures: as the data holder gave them; no extractor is certified."]
    if certificate.extractor is not None:
        told = [f"\nFeatures: made by {certificate.extractor.describe()}."]
    schema = certificate.data_schema
    if schema.feature_names is not None:
        names = _names(schema.feature_names)
        told.append(f"Names of the features, in their order, before any preprocessing: {names}")
    if schema.table is not None:
        columns = _names(one.name for one in schema.table.columns)
        told.append(f"Columns of the table that they were made of: {columns}")
    return "\n\n".join(told)


def _describe_steps(steps: tuple[Step, ...]) -> str:
    if not steps:
        return ""
    names = ", ".join(f"`{step.step}`" for step in steps)
    paid = any(step.is_charged for step in steps)
    source = f" with the noisy results in `{PREPROCESSING_NAME}`" if paid else ""
    return f"""
Before they were mixed, records went through {names}{source}. Records to classify
must go through the same: `privmix.Release("FOLDER").preprocessor.transform(x)`. The learners of
privmix do that by themselves.
"""


_LABEL_TEXTS: dict[Target, str] = {
    "class": "the noisy sum of the records' one-hot labels over the same constant, one number per "
    "class",
    "soft": "the noisy sum of the records' class weights over the same constant, one number per "
    "class",
    "multilabel": "the noisy sum of the records' labels, 0 or 1 for each class and together of "
    "limited norm, over the same constant",
    "regression": "the noisy sum of the records' targets, each clamped to its bounds and scaled to "
    "[-1, 1], over the same constant, one number per output",
}


def _describe_classes(schema: Schema) -> str:
    names = _names(schema.classes)
    if schema.target_bounds is None:
        return f"Classes: {names}"
    bounds = ", ".join(f"[{low:g}, {high:g}]" for low, high in schema.target_bounds)
    return f"Outputs: {names}, with bounds {bounds}"


def _names(names: Iterable[str | int]) -> str:
    """Return names as a list of JSON, in Markdown: they are whatever the data holder's files say."""
    return f"[{', '.join(markdown(json.dumps(name, ensure_ascii=False)) for name in names)}]"


def _describe(config: TableConfig, schema: Schema) -> str:
    layout = ""
    if config.rows_per_class is not None:
        rows = "row" if config.rows_per_class == 1 else "rows"
        layout = f", {config.rows_per_class} {rows} of each class in the order of the classes"
    if isinstance(config, ResidualConfig):
        layout = f", {config.num_rounds} rounds of one row a class in the order of the classes"
    if isinstance(probs := getattr(config, "class_prob", None), tuple):
        shares = ", ".join(f"{prob:.6g}" for prob in probs)
        layout = f", classes open in shares of {shares} of them"
    noise = config.published_stddev(schema.feature_clip_norm, "feature")
    return (
        f"- {config.num_mixtures} rows (`{config.design}`{layout}), divided by "
        f"{config.divisor:.6g}; noise standard deviation of a feature value: {noise:.6g}"
    )
