"""An entry in the shape of OpenDP's registry of deployments of differential privacy.

The registry (github.com/opendp/deployments-registry-data) keeps a YAML file for each deployment. What a
certificate knows is filled in; all that only people know is None, to be filled in before it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privmix.accounting.guarantee import Guarantee

_VARIANT = "Approximate DP"


def deployment_entry(
    kind: str,
    name: str,
    guarantee: Guarantee,
    plan: Sequence[tuple[str, str]],
    summary: Sequence[str],
    not_protected: Sequence[str],
) -> dict[str, Any]:
    """Return the entry as plain data, ready for JSON, which YAML reads as well."""
    unit = "Record-level" if guarantee.privacy_unit == "record" else guarantee.privacy_unit
    parameters = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    return {
        "url_slug": None,
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": [{"data_curator_name": None, "data_curator_type": None}],
                "description": " ".join(summary),
                "intended_use": None,
                "data_product_type": "Noisy sums of records" if kind == "release" else "Model",
                "data_product_region": None,
                "data_product_sector": None,
                "publication_date": None,
            },
            "dp_variant": {
                "variant_name": _VARIANT if guarantee.private else None,
                "data_domain": None,
                "unprotected_quantities": "\n".join(f"- {line}" for line in not_protected),
            },
            "privacy_loss": {
                "privacy_unit": unit,
                "privacy_unit_details": guarantee.protects,
                "privacy_parameters": parameters if guarantee.private else None,
                "privacy_parameters_details": guarantee.statement,
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": None,
                "release_type": "One release",
                "release_type_details": None,
                "access_type": "Non-interactive",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": None,
                "mechanisms": "\n".join(f"- {label}: {value}" for label, value in plan),
                "composition": "Certified by numerical composition of privacy loss distributions, and by "
                "Renyi differential privacy; the smaller of the bounds that hold is stated.",
                "post_processing": None,
                "justification": None,
            },
            "administrative": {
                "evidence_sources": None,
                "status": "Draft",
                "registry_authors": None,
                "tier": None,
            },
        },
    }
