"""What a report states, as plain data: from a certificate, its verification, a ledger and measurements."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from privmix import _validate
from privmix._validate import FrozenModel, printable
from privmix.accounting.guarantee import Guarantee
from privmix.accounting.rounding import rounded_up
from privmix.accounting.stated import TradeoffCurve
from privmix.dpsgd.model_certificate import (
    ModelCertificate,
    is_model_folder,
    read_certificate,
    verify_model,
)
from privmix.planning.rule import recommend_design
from privmix.planning.summary import plan_lines
from privmix.publishing.certificate import FILE_NAME, SIGNATURE_NAME, Certificate
from privmix.publishing.release import Release
from privmix.publishing.signature import NAMESPACE, Origin
from privmix.publishing.verification import Verification, verify
from privmix.report.checklist import Answer, checklist
from privmix.report.deployment import deployment_entry
from privmix.report.example import RowExample, row_example
from privmix.report.loading import model_snippets, release_snippets
from privmix.report.measurements import (
    Audit,
    LedgerFacts,
    Utility,
    read_audit,
    read_ledger,
    read_utility,
)
from privmix.report.words import model_summary, not_protected, release_summary

# Rates of false alarms at which an attacker's gain is told.
FALSE_ALARMS = (0.001, 0.01, 0.1)
_MOST_ALTERNATIVES = 10
_TOLD = ("epsilon, delta", "protects")  # lines of a plan that the guarantee tells


class AttackerGain(FrozenModel):
    """What an attacker can do at one rate of false alarms, per 1,000 people of each kind.

    Attributes:
        false_alarms: Of 1,000 people who are not in the data, how many are wrongly said to be.
        by_guessing: Of 1,000 people who are, how many are found by an attacker who saw nothing.
        found_at_most: Of the same, how many are found at most; rounded up.

    """

    false_alarms: float
    by_guessing: float
    found_at_most: float


class OtherPlan(FrozenModel):
    """A design that the planning rule compared, from public sizes alone.

    Attributes:
        design: Its name.
        centred: Whether records are centred first.
        predicted_error: Of the reference population, in [0, 1]; it ranks designs and promises nothing.
        taken: Whether it is the release's.

    """

    design: str
    centred: bool
    predicted_error: float
    taken: bool


class ReportFacts(FrozenModel):
    """All that a report states.

    Attributes:
        kind: ``release`` or ``model``.
        name: The folder's name.
        made_by: The library and its version that made the report.
        private: False for what was made with a test seed or for research, which protects nobody.
        guarantee: What is guaranteed.
        summary: What was done, in sentences.
        not_protected: What the guarantee does not cover.
        epsilon_by_delta: Certified epsilons.
        tradeoff_curve: Certified lower bound on an attacker's misses.
        attacker: What an attacker gains; empty where nothing is guaranteed.
        plan: Its quantities, name and value.
        alternatives: Plans that were not taken, and the one that was, the best first; empty where the
            rule has none.
        digest: SHA-256 of the certificate.
        parameters_digest: SHA-256 of the parameters that it states, which an audit names as well.
        signature: What vouches for where it comes from.
        checks: Shell commands that check the folder, by what they check.
        ledger: What ledgers say of it; private to the data holder.
        utility: What was measured.
        audit: What an audit found.
        example: A published row beside a made-up record; None for a model.
        loading: Code that loads it, by tool.
        certificate: The certificate's file as it is.
        checklist: Questions and answers after NIST SP 800-226.
        deployment: An entry in the shape of OpenDP's deployments registry.

    """

    kind: Literal["release", "model"]
    name: str
    made_by: str
    private: bool
    guarantee: Guarantee
    summary: tuple[str, ...]
    not_protected: tuple[str, ...]
    epsilon_by_delta: dict[str, float]
    tradeoff_curve: TradeoffCurve
    attacker: tuple[AttackerGain, ...]
    plan: tuple[tuple[str, str], ...]
    alternatives: tuple[OtherPlan, ...] = ()
    digest: str
    parameters_digest: str
    signature: Origin
    checks: dict[str, str]
    ledger: tuple[LedgerFacts, ...] = ()
    utility: Utility | None = None
    audit: Audit | None = None
    example: RowExample | None = None
    loading: dict[str, str]
    certificate: str
    checklist: tuple[Answer, ...] = ()
    deployment: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)


def report_facts(
    folder: str | Path,
    *,
    evaluation: str | Path | None = None,
    audit: str | Path | None = None,
    ledger: str | Path | None = None,
    expect_digest: str | None = None,
    signers: str | Path | None = None,
    identity: str | None = None,
) -> ReportFacts:
    """Verify a release or a model, and gather what a report states.

    Args:
        folder: The release or the model folder.
        evaluation: What ``privmix evaluate --json`` printed.
        audit: JSON of an audit: ``epsilon``, ``lower_bound``, ``confidence``, ``verdict``.
        ledger: The ledger that it was charged to.
        expect_digest: As for :func:`privmix.verify`; so are the next two.
        signers: OpenSSH's file of allowed signers, one of whom must have signed.
        identity: Which of them.

    Raises:
        InvalidInputError: A folder that does not verify, for another reason than that it was made with
            a test seed or for research; a file that is not what it should be.

    """
    path = Path(folder)
    if not path.exists():
        _validate.fail(str(path), "a release or model folder", "no such folder")
    gather = _model_facts if is_model_folder(path) else _release_facts
    facts = gather(path, expect_digest=expect_digest, signers=signers, identity=identity)
    beside: dict[str, Any] = {}
    if evaluation is not None:
        beside["utility"] = read_utility(evaluation)
    if audit is not None:
        claim = facts.guarantee.epsilon, facts.digest, facts.parameters_digest
        beside["audit"] = read_audit(audit, *claim)
    if ledger is not None:
        beside["ledger"] = read_ledger(ledger, facts.digest)
    facts = facts.model_copy(update=beside)
    told = {
        "checklist": checklist(
            facts.guarantee,
            plan=facts.plan,
            signature=facts.signature,
            ledger=facts.ledger,
            utility=facts.utility,
            audit=facts.audit,
        ),
        "deployment": deployment_entry(
            facts.kind, facts.name, facts.guarantee, facts.plan, facts.summary, facts.not_protected
        ),
    }
    return facts.model_copy(update=told)


def _release_facts(path: Path, **origin: Any) -> ReportFacts:
    outcome = verify(path, **origin)
    release = Release(path)
    certificate = release.certificate
    signature = _sound(path, outcome, certificate, release.certificate_digest, origin)
    plan = certificate.to_plan()
    return ReportFacts(
        kind="release",
        summary=release_summary(certificate),
        plan=tuple(line for line in plan_lines(plan) if line[0] not in _TOLD),
        alternatives=_alternatives(certificate),
        example=row_example(release),
        loading=release_snippets(path.resolve().name, certificate.data_schema.target),
        **_shared(path, certificate, signature, release.certificate_digest),
    )


def _model_facts(path: Path, **origin: Any) -> ReportFacts:
    outcome = verify_model(path, **origin)
    certificate = read_certificate(path)
    signature = _sound(path, outcome, certificate, certificate.digest(), origin)
    config, model = certificate.config, certificate.model
    plan: tuple[tuple[str, str], ...] = (
        ("trained", f"{model.kind.replace('_', ' ')} ({model.architecture})"),
        ("numbers in it", f"{model.num_parameters}"),
        ("records, planned", f"{config.num_records}"),
        ("records in a step, on average", f"{config.batch_size}"),
        ("steps", f"{config.num_steps}"),
        ("noise multiplier", f"{config.noise_multiplier:.6g}"),
        ("limit on one record's gradient", f"{config.clip_norm:.6g}"),
        ("noise on a sum of gradients", f"{certificate.gradient_noise_stddev:.6g}"),
        ("learning rate", f"{config.learning_rate:.6g}"),
        ("augmentations of a record", f"{config.augmentation.num_augmentations}"),
    )
    if config.class_weight is not None:
        weights = ", ".join(f"{weight:.6g}" for weight in config.class_weight)
        plan = (*plan, ("class weights", weights))
    return ReportFacts(
        kind="model",
        summary=model_summary(certificate),
        plan=plan,
        loading=model_snippets(path.resolve().name),
        **_shared(path, certificate, signature, certificate.digest()),
    )


def _sound(
    path: Path,
    outcome: Verification,
    certificate: Certificate | ModelCertificate,
    digest: str,
    origin: dict[str, Any],
) -> Origin:
    """Return the origin of what verifies, or would but for its stamp; refuse everything else."""
    if outcome.digest != digest:
        _validate.fail(str(path), "a folder that does not change meanwhile", "one that changed")
    reasons = [one for one in outcome.reasons if one not in certificate.not_private()]
    if reasons:
        more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        _validate.fail(str(path), "a folder that privmix verify accepts", f"{reasons[0]}{more}")
    if outcome.origin is not None:
        return outcome.origin
    checked = any(value is not None for value in origin.values())
    told = "as expected" if checked else "not looked at"
    nobody = f"{told}: it protects nobody, so it does not matter who made it"
    expected = origin["expect_digest"] is not None
    return Origin(digest_expected=expected, signer=None, key_fingerprint=None, statement=nobody)


def _shared(
    path: Path, certificate: Certificate | ModelCertificate, signature: Origin, digest: str
) -> dict[str, Any]:
    curve, name = certificate.tradeoff_curve, path.resolve().name
    return {
        "name": printable(name, 200),
        "made_by": f"privmix {version('privmix')}",
        "private": certificate.private,
        "guarantee": certificate.guarantee,
        "not_protected": not_protected(certificate),
        "epsilon_by_delta": certificate.epsilon_by_delta,
        "tradeoff_curve": curve,
        "attacker": tuple(_gain(curve, rate) for rate in FALSE_ALARMS * certificate.private),
        "digest": digest,
        "parameters_digest": certificate.to_plan().parameters_digest(),
        "signature": signature,
        "checks": _checks(digest, signature),
        "certificate": certificate.to_bytes().decode(),
    }


def _gain(curve: TradeoffCurve, rate: float) -> AttackerGain:
    found = min(1000.0, rounded_up(1000 * curve.true_positive_rate(rate), 3))
    return AttackerGain(
        false_alarms=1000 * rate, by_guessing=1000 * rate, found_at_most=max(found, 1000 * rate)
    )


def _alternatives(certificate: Certificate) -> tuple[OtherPlan, ...]:
    """Rank what the planning rule compares, at the certified budget, from public sizes alone."""
    schema, mechanism = certificate.data_schema, certificate.mechanism
    if schema.target != "class" or certificate.unit_column is not None or schema.num_classes < 2:
        return ()
    found = recommend_design(
        num_records=schema.num_records,
        num_classes=schema.num_classes,
        num_features=schema.num_features,
        epsilon=certificate.epsilon,
        delta=certificate.delta,
    )
    centred = any(step.step == "center" for step in certificate.preprocessing)
    return tuple(
        OtherPlan(
            design=one.design,
            centred=one.center_share is not None,
            predicted_error=float(f"{one.predicted_error:.4g}"),
            taken=(one.design, one.center_share is not None) == (mechanism.design, centred),
        )
        for one in found[:_MOST_ALTERNATIVES]
    )


def _checks(digest: str, signature: Origin) -> dict[str, str]:
    """Return commands to be run beside the folder; DIR stands for it, since names are foreign."""
    commands = {
        "everything, against the digest that the data holder told you": "privmix verify DIR "
        f"--expect-digest {digest}",
        "the digest alone": f"sha256sum DIR/{FILE_NAME}",
    }
    if signature.key_fingerprint is not None:
        commands |= {
            "everything, and who signed it": "privmix verify DIR --signer allowed_signers",
            "the signature, without privmix": "ssh-keygen -Y verify -f allowed_signers -I SIGNER "
            f"-n {NAMESPACE} -s DIR/{SIGNATURE_NAME} < DIR/{FILE_NAME}",
        }
    return commands
