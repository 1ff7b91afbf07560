"""An audit: many runs of the real code, and what they prove about its guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, chi2

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import Event, account, tradeoff_curve
from privmix.accounting.guarantee import number
from privmix.accounting.rounding import rounded_down, rounded_up
from privmix.accounting.tradeoff import Array
from privmix.auditing.bounds import (
    Counts,
    ErrorRates,
    NoiseFamily,
    epsilon_from_rates,
    error_rates,
    gdp_mu_from_rates,
)
from privmix.auditing.canaries import MOST_CANARIES, CanarySet, most_canaries
from privmix.auditing.one_run import (
    best_guesses,
    one_run_epsilon,
    one_run_noise_factor,
    one_run_refutes,
)
from privmix.auditing.trials import NoiseTotals, ReleaseSubject, Subject, Trials, run_trials
from privmix.planning.plan import ReleasePlan
from privmix.records.bounded import Progress

if TYPE_CHECKING:
    from privmix.dpsgd.training_plan import TrainingPlan

Promise = Callable[[Array, Array], Array]
Verdict = Literal["consistent", "violated"]
_TUNING_EVERY = 4  # of the runs, one in so many chooses the test
_QUANTILES = np.linspace(0.0, 1.0, 201)  # of the scores: where a threshold may lie
_CHANCE_REPEATS = 1e-4  # share of the rows that may repeat another one
_NEIGHBOURS = 15  # thresholds on either side that are averaged over
_SHARES = (0.05, 0.2, 1.0)  # of the canaries of one run that are guessed
_TRIALS = 8192  # canaries of all runs, where nothing else is asked for


class AuditReport(FrozenModel):
    """What an audit found; JSON in and out.

    Attributes:
        epsilon: Certified, at ``delta``, of what was run.
        delta: Its delta.
        lower_bound: Lower bound on epsilon at ``delta``, for a mechanism of this kind with noise of
            unknown size: that of the loss distribution of the noisiest one that the runs rule out; 0 where
            nothing is proved from below.
        lower_bound_without_assumptions: Lower bound on epsilon at ``delta`` of any mechanism. Of many runs it
            takes the canaries of one run for independent, given who is there; of a single run it does not.
        gdp_mu_lower_bound: Largest mu of mu-GDP that the runs rule out; None of a single run, as the rates.
        confidence: All of it holds with this probability, each bound by itself.
        tightness: ``lower_bound`` over ``epsilon``; None at epsilon 0.
        verdict: ``violated`` if the runs rule the certified guarantee out, or the certified noise.
        findings: Why, one sentence each.
        num_runs: Runs of the release.
        num_trials: Canaries of all runs, each there or not by a coin.
        false_positive_rate: Upper bound on that of the test that was chosen.
        false_negative_rate: The same of the other error.
        noise_ratio: Measured standard deviation of the published noise over the certified one.
        parameters_digest: Which plan it was: ``parameters_digest()`` of it, and of what it made. None where
            scores of runs were judged without a plan.
        certificate_digest: Of the release or model whose plan it was; None of a plan by itself.

    """

    epsilon: float
    delta: float
    lower_bound: float
    lower_bound_without_assumptions: float
    gdp_mu_lower_bound: float | None = None
    confidence: float
    tightness: float | None
    verdict: Verdict
    findings: tuple[str, ...]
    num_runs: int
    num_trials: int
    false_positive_rate: float | None = None
    false_negative_rate: float | None = None
    noise_ratio: float | None
    parameters_digest: str | None = None
    certificate_digest: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return self.model_dump(mode="json")

    def _without(self) -> str:
        """What the bound without assumptions holds for."""
        if self.gdp_mu_lower_bound is None:
            return "whatever the mechanism is"
        return "for any mechanism whose canaries of one run are independent"

    def lines(self) -> list[str]:
        """Return what was found, and what it means, one sentence a line."""
        sure = f"{100 * self.confidence:.6g} %"
        told = [
            f"certified: epsilon {number(rounded_up(self.epsilon, 6))} at delta {number(self.delta)}",
            f"measured: epsilon is at least {rounded_down(self.lower_bound, 4):.4g} with confidence "
            f"{sure}, if only the size of the noise is in doubt; "
            f"{rounded_down(self.lower_bound_without_assumptions, 4):.4g} {self._without()}",
            f"runs: {self.num_runs}, with {self.num_trials} canaries in all",
        ]
        if self.tightness is not None:
            told.append(f"tightness: {self.tightness:.2g} of the certified epsilon")
        if self.verdict == "violated":
            return [
                *told,
                *self.findings,
                f"verdict: violated; a sound mechanism fails like this in {1 - self.confidence:.1g} of "
                "audits. The code does not do what its certificate says: publish nothing made by it, "
                "and report the fault in private",
            ]
        told.append("verdict: consistent with the certificate")
        if self.tightness is not None and self.tightness < 0.5:
            told.append(
                "note: the bound is below half of the certified epsilon; more runs would show more"
            )
        return told


def audit(
    plan: ReleasePlan | TrainingPlan,
    *,
    runs: int | None = None,
    confidence: float = 0.999,
    num_canaries: int | None = None,
    out: Path | None = None,
    certificate_digest: str | None = None,
    test_seed: int | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Run the code of a plan many times on worst-case canaries and bound epsilon from below.

    The plan's sampling probabilities, noise multipliers, rows, rounds and steps are run as they are;
    features, classes and records are few. Of a training the sampler, the noise and a linear head
    with as many augmentations are run, and every noisy gradient is looked at, as its accounting allows;
    networks' gradients, backbones, transforms and class weights are not run. Charged preprocessing is not run, and a plan for owners of several records is audited for single
    ones: ``epsilon`` of the report is that of what is run.

    Args:
        plan: A plan of a release or of a training, or that of a certificate (``to_plan()``).
        runs: Number of runs; by default enough for 8192 canaries. Settle it beforehand: an analyst who adds runs
            until the verdict changes raises more false alarms than ``confidence`` allows.
        confidence: Probability with which a sound mechanism passes, at least.
        num_canaries: Canaries in one run; by default 64, 16 for ``hierarchical`` and ``adaptive``, 1 for
            ``uniform``.
        out: File of finished runs: the audit goes on where it was cut off.
        certificate_digest: Of the release or model that the plan is of, for the report to name.
        test_seed: For tests: repeatable runs.
        progress: Called with (runs done, runs in all).

    Raises:
        InvalidInputError: A number out of range, or the file of another audit.

    Example:
        >>> from privmix import Schema, plan_release
        >>> from privmix.auditing import audit
        >>> schema = Schema(classes=[0, 1], num_features=8, num_records=400, feature_clip_norm=1.0)
        >>> plan = plan_release(
        ...     schema, target_epsilon=8.0, target_delta=1e-5, design="stratified", rows_per_class=5
        ... )
        >>> report = audit(plan, runs=40, test_seed=0)
        >>> report.verdict, report.lower_bound < report.epsilon
        ('consistent', True)

    """
    _half(confidence)  # checked before hours of runs
    most = most_canaries(plan.mechanism) if isinstance(plan, ReleasePlan) else MOST_CANARIES
    count = most if num_canaries is None else num_canaries
    count = _validate.integer("num_canaries", count, at_most=most)
    runs = math.ceil(_TRIALS / count) if runs is None else runs
    runs = _validate.integer("runs", runs, at_least=2 * _TUNING_EVERY)
    subject, event = subject_of(plan, count)
    trials = run_trials(subject, runs, out=out, test_seed=test_seed, progress=progress)
    report = judge(trials, event, plan.delta, confidence)
    return _named(report, plan, certificate_digest)


def audit_one_run(
    plan: ReleasePlan | TrainingPlan,
    *,
    confidence: float = 0.999,
    num_canaries: int = 1000,
    certificate_digest: str | None = None,
    test_seed: int | None = None,
) -> AuditReport:
    """Run the code of a plan once, with many canaries, and bound epsilon from below.

    For releases and trainings that take long. Nothing is assumed of how the canaries' tests depend on each
    other; bounds are looser than those of :func:`audit`.

    Args:
        plan: As of :func:`audit`; not ``uniform``, which has one canary a run.
        confidence: Probability with which a sound mechanism passes, at least.
        num_canaries: Canaries: as many features, and classes, are mixed.
        certificate_digest: As of :func:`audit`.
        test_seed: For tests: a repeatable run.

    Raises:
        InvalidInputError: A number out of range, or canaries that take more than a gibibyte with the records
            beside them.

    """
    _half(confidence)
    if isinstance(plan, ReleasePlan) and plan.design == "uniform":
        _validate.fail("plan", "a design with several canaries in one run", "uniform")
    count = _validate.integer("num_canaries", num_canaries, at_least=20, at_most=4096)
    subject, event = subject_of(plan, count)
    trials = run_trials(subject, 1, test_seed=test_seed)
    report = judge_one_run(trials, event, plan.delta, confidence)
    return _named(report, plan, certificate_digest)


def _named(
    report: AuditReport, plan: ReleasePlan | TrainingPlan, certificate_digest: str | None
) -> AuditReport:
    """Say in a report what was audited."""
    digests = {
        "parameters_digest": plan.parameters_digest(),
        "certificate_digest": certificate_digest,
    }
    return report.model_copy(update=digests)


def subject_of(plan: ReleasePlan | TrainingPlan, num_canaries: int) -> tuple[Subject, Event]:
    """Return what is run for a plan, and what it costs one record."""
    if isinstance(plan, ReleasePlan):
        clip_norm = 1.0 if plan.data_schema is None else plan.data_schema.feature_clip_norm
        canaries = CanarySet.of(plan.mechanism, clip_norm, num_canaries)
        canaries.check_size()
        return ReleaseSubject(canaries), canaries.mechanism.event
    from privmix.auditing.training import TrainingSubject

    subject = TrainingSubject(plan.config, num_canaries)
    return subject, subject.config.event


def judge(trials: Trials, event: Event, delta: float, confidence: float) -> AuditReport:
    """Turn finished runs into bounds and a verdict.

    One run in four chooses a statistic and a threshold, for each bound; the others count what that test
    gets wrong, so that nothing has been chosen on them. Half of what may go wrong is for the test, half for
    the noise.

    Args:
        trials: Independent runs, as many as were settled beforehand, whose canaries are independent too.
        event: What the certificate says was run, as one record sees it.
        delta: At which epsilons are stated.
        confidence: In (0, 1).

    """
    half = _half(confidence)
    family = NoiseFamily(event)
    rates = tested_rates(trials, half, lambda *rates: np.log(family.factors(*rates)))
    direct = tested_rates(trials, half, partial(_epsilon_below, delta=delta))
    findings = []
    if family.refutes(rates):
        findings.append(
            f"privacy: a test errs on at most {rates.false_positive_rate:.3g} of those who are not "
            f"there and {rates.false_negative_rate:.3g} of those who are, which the certified "
            "trade-off curve excludes"
        )
    bounds = {
        "lower_bound": family.epsilon(family.smallest_factor(rates), delta),
        "lower_bound_without_assumptions": epsilon_from_rates(direct, delta),
        "gdp_mu_lower_bound": gdp_mu_from_rates(rates),
        "false_positive_rate": rates.false_positive_rate,
        "false_negative_rate": rates.false_negative_rate,
    }
    return _report(trials, account(event, delta).epsilon, delta, confidence, findings, **bounds)


def judge_one_run(trials: Trials, event: Event, delta: float, confidence: float) -> AuditReport:
    """Turn runs into bounds and a verdict, whatever canaries have to do with each other.

    Several runs count as one. Guesses are made by the likelihood ratio, on fixed shares of the canaries; what
    may go wrong is divided among the shares.

    Args:
        trials: One run or more.
        event: What the certificate says was run, as one record sees it.
        delta: At which epsilons are stated.
        confidence: In (0, 1).

    Source: Steinke, Nasr, Jagielski 2023 for the bound without assumptions; Mahloujifar, Melis, Chaudhuri
    2025 for that of the family.

    """
    each = 1 - (1 - _half(confidence)) / len(_SHARES)
    present, scores = trials.present.ravel(), trials.scores[..., 0].ravel()
    guesses = best_guesses(scores, present, _SHARES)
    family, total = NoiseFamily(event), len(present)
    findings = [
        f"privacy: {correct} of {made} guesses are right, among {total} canaries, which the certified "
        "trade-off curve excludes"
        for correct, made in guesses
        if one_run_refutes(correct, made, total, tradeoff_curve(event), each)
    ]
    factor = min(one_run_noise_factor(*guess, total, event, each) for guess in guesses)
    bounds = {
        "lower_bound": family.epsilon(factor, delta),
        "lower_bound_without_assumptions": max(
            one_run_epsilon(*guess, total, delta, each) for guess in guesses
        ),
    }
    return _report(trials, account(event, delta).epsilon, delta, confidence, findings, **bounds)


def epsilon_from_scores(
    scores: ArrayLike, present: ArrayLike, delta: float, confidence: float = 0.999
) -> float:
    """Lower bound on epsilon at ``delta`` from any attack's scores; assumes nothing of the mechanism.

    Every fourth score chooses a threshold, the others count. Scores are of independent trials, each with a
    release of its own: of many records of one release they are not, and what is found is no bound.

    Args:
        scores: (trials,) real numbers, of whichever sign for those who are there.
        present: (trials,) whether the record was there.
        delta: In (0, 1).
        confidence: In (0, 1).

    Example:
        >>> import numpy as np
        >>> from privmix.auditing import epsilon_from_scores
        >>> generator = np.random.default_rng(0)
        >>> present = np.arange(4000) % 2 == 0
        >>> scores = generator.standard_normal(4000) + 3.0 * present  # 3-GDP: epsilon 16 at 1e-5
        >>> round(epsilon_from_scores(scores, present, 1e-5), 1)
        3.7

    """
    values = np.asarray(scores, dtype=np.float64)
    there = np.asarray(present, dtype=bool)
    if values.ndim != 1 or not np.isfinite(values).all():
        _validate.fail("scores", "(trials,) finite numbers", f"others, of shape {values.shape}")
    if there.shape != values.shape:
        _validate.fail("present", f"shape {values.shape}, as scores have", there.shape)
    _validate.integer("number of scores", len(values), at_least=4 * _TUNING_EVERY)
    order = np.argsort(there, kind="stable")  # every fourth of those there and of those not there
    trials = Trials(there[order, None], values[order, None, None], NoiseTotals(0, 0.0, 0, 0))
    confidence = _validate.real("confidence", confidence, above=0.0, below=1.0)
    rates = tested_rates(trials, confidence, partial(_epsilon_below, delta=delta))
    return epsilon_from_rates(rates, delta)


def _half(confidence: float) -> float:
    return 1 - (1 - _validate.real("confidence", confidence, above=0.0, below=1.0)) / 2


def _report(
    trials: Trials,
    epsilon: float,
    delta: float,
    confidence: float,
    findings: list[str],
    *,
    lower_bound: float,
    **bounds: Any,
) -> AuditReport:
    """Add what the published noise says, and the verdict."""
    noise = trials.noise
    findings += noise_findings(noise, _half(confidence))
    return AuditReport(
        epsilon=epsilon,
        delta=delta,
        lower_bound=lower_bound,
        confidence=confidence,
        tightness=lower_bound / epsilon if epsilon > 0.0 else None,
        verdict="violated" if findings else "consistent",
        findings=tuple(findings),
        num_runs=len(trials.present),
        num_trials=trials.present.size,
        noise_ratio=math.sqrt(noise.squares / noise.numbers) if noise.numbers else None,
        **bounds,
    )


def tested_rates(trials: Trials, confidence: float, promise: Promise) -> ErrorRates:
    """Choose a statistic and a threshold on some runs, and bound the error rates on the others.

    ``promise`` says of the error rates of many tests how little each would prove.
    """
    number = np.arange(len(trials.present))
    tuning = number % _TUNING_EVERY == 0
    chosen = _choose(trials.present[tuning], trials.scores[tuning], promise)
    statistic, sign, threshold = chosen
    present = trials.present[~tuning].ravel()
    accused = sign * trials.scores[~tuning][..., statistic].ravel() > threshold
    return error_rates(_counts(present, accused), confidence)


def _epsilon_below(alarms: Array, misses: Array, *, delta: float) -> Array:
    """Return minus the epsilon that error rates contradict."""
    pairs = zip(alarms.tolist(), misses.tolist(), strict=True)
    return -np.array([epsilon_from_rates(ErrorRates(*pair), delta) for pair in pairs])


def _counts(present: NDArray[np.bool_], accused: NDArray[np.bool_]) -> Counts:
    return Counts(
        int((accused & ~present).sum()),
        int((~present).sum()),
        int((~accused & present).sum()),
        int(present.sum()),
    )


def _choose(
    present: NDArray[np.bool_], scores: Array, promise: Promise
) -> tuple[int, float, float]:
    """Return (statistic, sign, threshold) of the test that promises to prove the most on other runs."""
    there = present.ravel()
    best, chosen = math.inf, (0, 1.0, 0.0)
    for statistic in range(scores.shape[-1]):
        values = scores[..., statistic].ravel()
        thresholds = np.unique(np.quantile(values, _QUANTILES, method="lower"))
        out, own = np.sort(values[~there]), np.sort(values[there])
        kept, missed = (np.searchsorted(some, thresholds, side="right") for some in (out, own))
        for sign in (1.0, -1.0):  # those above a threshold are accused, or those below
            alarms, misses = (out.size - kept, missed) if sign > 0 else (kept, own.size - missed)
            rates = _expected(alarms, out.size), _expected(misses, own.size)
            promised = _smooth(promise(*rates))
            place = int(promised.argmin())
            if promised[place] < best:
                best, chosen = (
                    float(promised[place]),
                    (statistic, sign, sign * float(thresholds[place])),
                )
    return chosen


def _smooth(values: Array) -> Array:
    """Average over neighbouring thresholds, so that luck at one of them does not decide."""
    reach = min(_NEIGHBOURS, (len(values) - 1) // 2)
    padded = np.pad(values, reach, mode="edge")
    return np.convolve(padded, np.full(2 * reach + 1, 1 / (2 * reach + 1)), mode="valid")


def _expected(errors: NDArray[np.intp], trials: int) -> Array:
    """Bound the rates to be expected of the other runs; an error that has not been seen counts as one."""
    times = _TUNING_EVERY - 1
    seen = times * np.minimum(errors + 1, trials - 1)
    return np.asarray(beta.ppf(0.999, seen + 1, times * trials - seen))


def noise_findings(noise: NoiseTotals, confidence: float) -> list[str]:
    """Say where what was published of nobody is not the noise that the certificate states.

    Squares add up to a chi-square variable. More than one repeated row in ten thousand is found only where, by
    Markov's inequality, so many have little probability of sound noise; noise of few points of the grid repeats
    by chance. Both together raise a false alarm with probability 1 - ``confidence`` at most.
    """
    if not noise.numbers:
        return []
    found = []
    each = (1 - confidence) / 3
    low, high = chi2.ppf(each, noise.numbers), chi2.isf(each, noise.numbers)
    ratio = math.sqrt(noise.squares / noise.numbers)
    # Rounding to the grid adds a twelfth of a point squared, far below what is told apart.
    if not low * (1 - 1e-6) <= noise.squares <= high * (1 + 1e-6):
        found.append(f"noise: its standard deviation is {ratio:.4g} times the certified one")
    passed = math.floor(noise.rows * _CHANCE_REPEATS)
    if noise.repeated > passed and noise.by_chance <= each * (passed + 1):
        found.append(f"noise: {noise.repeated} of {noise.rows} rows repeat that of another row")
    return found
