"""What bit users of other tools, case by case, through the public API."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import privmix
from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, Schema, plan_release, release
from privmix.accounting import GaussianEvent, PoissonGaussianEvent, account


def test_a_central_limit_accountant_never_certifies():
    """m = 1, n = T = 50000: the approximation says 1, the truth is 4.9."""
    event = PoissonGaussianEvent(sampling_prob=1 / 50000, noise_multiplier=0.35, count=50000)
    accounting = account(event, 1e-5)
    assert accounting.epsilon == pytest.approx(4.923, rel=0.005)
    gdp = accounting.accountants["gdp"]
    assert gdp.guarantee is False
    assert gdp.epsilon < 0.5 * accounting.epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.01, 1e-5), (30.0, 1e-5), (1000.0, 1e-5), (1.0, 1e-12)]
)
def test_extreme_targets_are_met_or_refused_by_name(epsilon, delta):
    try:
        plan = plan_release(
            make_schema(num_records=1000),
            target_epsilon=epsilon,
            target_delta=delta,
            num_mixtures=1000,
        )
    except InvalidInputError as error:
        assert "epsilon" in str(error)
        assert "allowed" in str(error)
    else:
        assert 0.99 * epsilon <= plan.epsilon <= epsilon


def test_a_delta_so_large_that_epsilon_would_be_negative():
    event = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=10.0, count=10)
    assert account(event, 0.9).epsilon == 0
    for delta in (0.0, 1.0, 1.5, -0.1, math.nan):
        with pytest.raises(InvalidInputError, match="delta"):
            account(event, delta)


def test_sampling_everybody_is_the_plain_gaussian():
    sampled = PoissonGaussianEvent(sampling_prob=1.0, noise_multiplier=4.0, count=4)
    plain = GaussianEvent(noise_multiplier=2.0, count=1)
    assert account(sampled, 1e-5).epsilon == pytest.approx(account(plain, 1e-5).epsilon, rel=1e-6)
    plan = plan_release(
        make_schema(),
        target_epsilon=1.0,
        target_delta=1e-5,
        design="stratified",
        sampling_prob=1.0,
        rows_per_class=1,
        preprocessing=(),
    )
    # mu = 1 / noise multiplier for one plain Gaussian; 0.268051-GDP is (1, 1e-5).
    assert plan.mechanism.noise_multiplier == pytest.approx(1 / 0.268051, rel=0.01)


def test_a_class_without_records_keeps_its_place(tmp_path):
    """Classes come from the schema: removing a class's only record changes no shape."""
    schema = Schema(classes=["a", "b", "c"], num_features=2, num_records=9, feature_clip_norm=1.0)
    x, y = np.full((9, 2), 0.5), np.array(list("aaaabbbbc"))
    for design, options in (
        ("poisson", {"mix_size": 3, "num_mixtures": 12}),
        ("stratified", {"rows_per_class": 4}),
    ):
        plan = make_plan(schema, design, 5.0, **options)
        with_c = release(x, y, plan, out=tmp_path / f"{design}-with")
        without = release(x[:-1], y[:-1], plan, out=tmp_path / f"{design}-without")
        assert with_c.features.shape == without.features.shape
        assert with_c.classes == without.classes == ("a", "b", "c")
        if design == "poisson":
            assert with_c.label_weights.shape == without.label_weights.shape == (12, 3)
        else:
            assert np.array_equal(with_c.labels, without.labels)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_number_is_refused_or_blanked(tmp_path, bad):
    plan = make_plan(make_schema(), "poisson", 5.0, mix_size=6, num_mixtures=10)
    x, y = make_data(plan.data_schema, 60)
    x[17, 3] = bad
    with pytest.raises(InvalidInputError, match=r"features\[17, 3\]"):
        release(x, y, plan, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    opened = release(x, y, plan, out=tmp_path / "r", on_bad_record="zero", max_bad_share=1.0)
    assert np.isfinite(opened.features).all()


def test_an_all_zero_record_stays_zero_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = privmix.bound_records(np.zeros((2, 5)), [0, 1], make_schema())
    assert not records.features.any()


def test_bounds_must_be_stated():
    with pytest.raises(InvalidInputError, match="feature_clip_norm"):
        Schema(classes=[0, 1], num_features=2, num_records=9)


def test_a_seed_makes_a_release_that_says_it_is_not_private(tmp_path):
    plan = make_plan(make_schema(), "poisson", 5.0, mix_size=6, num_mixtures=10)
    data = make_data(plan.data_schema, 60)
    first = release(*data, plan, out=tmp_path / "a", test_seed=1)
    again = release(*data, plan, out=tmp_path / "b", test_seed=1)
    assert np.array_equal(first.features, again.features)
    assert first.certificate.private is False
    assert not privmix.verify(tmp_path / "a").valid


def test_the_cost_of_a_wide_release_is_known_before_it_runs():
    plan = make_plan(make_schema(num_records=10**6, num_features=2048), "poisson", 5.0, mix_size=64)
    assert plan.disk_bytes == pytest.approx(10**6 * 4 * (2048 + 3), rel=0.01)
    assert plan.peak_memory_bytes > 10**6 * 2048 * 2


def test_only_one_relation_is_claimed():
    """Sensitivity and relation travel together: these designs know add_or_remove_one only."""
    plan = make_plan(make_schema(), "poisson", 5.0, mix_size=6, num_mixtures=10)
    assert (
        plan.mechanism.neighboring_relation
        == plan.event.neighboring_relation
        == "add_or_remove_one"
    )
    with pytest.raises(InvalidInputError, match="neighboring_relation"):
        privmix.ReleasePlan.from_json(plan.to_json().replace("add_or_remove_one", "replace_one"))
