"""Removing a record changes the noiseless sum by at most the sensitivity, and nothing else."""

from __future__ import annotations

import math
from collections import UserList

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from privmix import InvalidInputError
from privmix.dpsgd import AugmentationPlan, DPMixClassifier, LinearHead, Network, trainer
from privmix.dpsgd.private_views import PrivateViews
from privmix.dpsgd.trainer import Steps
from privmix.dpsgd.training_records import as_samples, check_records
from privmix.rng import MasterKey
from training_cases import Pooled, make_config, make_images, make_network

KEY = MasterKey.for_test(3, b"neighbours")
PUBLIC = make_images(10, seed=5)
MODELS = {
    "head": lambda: LinearHead(Pooled()),
    "views": lambda: LinearHead(Pooled(), feature_cache="views"),
    "base": lambda: LinearHead(Pooled(), feature_cache="base"),
    "network": lambda: Network(make_network()),
}


def make_steps(model, config, images, labels):
    records = check_records(images, labels, config)
    synthetic = None
    if config.augmentation.num_synthetic:
        synthetic = as_samples(check_records(*PUBLIC, config), config.num_classes, "cpu")
    parameters = model.initial_parameters(config)
    parameters = parameters + 0.3 * np.random.default_rng(0).standard_normal(parameters.size)
    source = model.bind(PrivateViews(records, config, KEY, synthetic, "cpu"), parameters.size)
    return Steps(config, records, source, KEY), source, parameters


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mixed", ["plain", "self", "diff"])
def test_one_record_less(name, mixed):
    augmentation = {
        "plain": AugmentationPlan.plain(),
        "self": AugmentationPlan.dp_mix_self(3, 2, crop_padding=2),
        "diff": AugmentationPlan.dp_mix_diff(2, 3, 2, crop_padding=2),
    }[mixed]
    config = make_config(augmentation=augmentation, clip_norm=0.5, batch_size=30)
    images, labels = make_images(40)
    steps, source, parameters = make_steps(MODELS[name](), config, images, labels)
    fewer, _, _ = make_steps(MODELS[name](), config, images[:-1], labels[:-1])
    changed = 0
    for step in range(6):
        everybody, others = steps.sample(step), fewer.sample(step)
        assert np.array_equal(everybody[everybody < 39], others)
        whole = steps.noiseless_sum(step, parameters)
        rest = fewer.noiseless_sum(step, parameters)
        gap = math.sqrt(sum(int(v) ** 2 for v in whole - rest))
        assert gap <= source.grid.sensitivity
        if 39 in everybody:
            changed += 1
            assert gap > 0.01 * source.grid.sensitivity
            if name == "network":  # quantised one by one: the change is the record's own
                alone = source.clipped_sum(np.array([39], dtype=np.int32), step, parameters)
                assert np.array_equal(whole - rest, alone)
        else:
            assert gap == 0
    assert changed


def test_the_bound_is_reached():
    config = make_config(clip_norm=1e-3)
    images, labels = make_images(5)
    _, source, parameters = make_steps(LinearHead(Pooled()), config, images, labels)
    one = source.clipped_sum(np.array([2], dtype=np.int32), 0, parameters).astype(float)
    assert np.linalg.norm(one) == pytest.approx(source.grid.sensitivity, rel=1e-5)


def test_records_get_the_same_views_whoever_is_there():
    config = make_config()
    images, labels = make_images(8)
    two = check_records(images, labels, config)
    one = check_records(images[:3], labels[:3], config)
    more, fewer = (PrivateViews(r, config, KEY, None, "cpu") for r in (two, one))
    for record in range(3):
        first = more.of(record, more.generator(record, 4))
        second = fewer.of(record, fewer.generator(record, 4))
        assert torch.equal(first.inputs, second.inputs)
    assert not torch.equal(
        more.of(0, more.generator(0, 5)).inputs, more.of(0, more.generator(0, 4)).inputs
    )


def test_one_input_of_numbers_does_not_change_how_bytes_are_read():
    images, labels = make_images(4)
    pixels = [(255 * np.abs(image) / np.abs(images).max()).astype(np.uint8) for image in images]
    config = make_config()
    assert check_records(pixels, labels, config).inputs.dtype == np.uint8
    for odd in (images[0].astype(np.float32), pixels[0].astype(np.int64)):
        with pytest.raises(InvalidInputError, match="inputs: expected all of them bytes, or none"):
            check_records([*pixels[:3], odd], labels, config)
        with pytest.raises(
            InvalidInputError, match="bytes, or none"
        ):  # NumPy reads any sequence so
            check_records(UserList([*pixels[:3], odd]), labels, config)


@pytest.mark.parametrize("odd", [np.float32(0.5), np.int16(300)])
def test_nor_does_one_in_the_classifier(odd):
    records = [np.full(4, 200, np.uint8) for _ in range(20)]
    labels = [0, 1] * 10
    classifier = DPMixClassifier(None, 1.0, classes=[0, 1], num_records=20, batch_size=5, epochs=1)
    with pytest.raises(InvalidInputError, match="inputs: expected all of them bytes, or none"):
        classifier.fit([*records[1:], np.full(4, odd)], labels)
    assert not hasattr(classifier, "model_")


def test_one_number_with_a_fraction_does_not_change_how_integers_are_rounded():
    config = make_config(input_shape=(2,), augmentation=AugmentationPlan.plain())
    large = (
        2**60 + 2**36 + 1
    )  # to single precision at once it goes up, by way of double precision not
    integers = [np.array([large, 1])] * 3
    alone, beside = (
        check_records([*integers, last], [0, 1, 2, 0], config).inputs[:3]
        for last in (np.array([1, 1]), np.array([0.5, 1.0]))
    )
    assert np.array_equal(alone, beside)


def test_what_a_mask_hides_is_not_trained_on():
    config = make_config(input_shape=(2,), augmentation=AugmentationPlan.plain())
    hidden = np.ma.masked_equal(np.arange(8.0).reshape(4, 2), 3.0)
    with pytest.raises(InvalidInputError, match="without masked values"):
        check_records(hidden, [0, 1, 2, 0], config)


def test_kept_views_are_a_function_of_the_record():
    images, labels = make_images(8)
    for cache in ("views", "base"):
        head, config = LinearHead(Pooled(), feature_cache=cache), make_config()
        _, source, parameters = make_steps(head, config, images, labels)
        first = source.clipped_sum(np.array([5], dtype=np.int32), 0, parameters)
        order = np.roll(np.arange(8), 1)
        _, moved, _ = make_steps(head, config, images[order], labels[order])
        again = moved.clipped_sum(np.array([6], dtype=np.int32), 0, parameters)
        assert len(head.cache) == 1
        if cache == "views":  # with base views, mixtures are drawn afresh for each place and step
            assert np.array_equal(first, again)
        other = make_config(augmentation=AugmentationPlan.self_aug(3, crop_padding=2))
        _, source, _ = make_steps(head, other, images, labels)
        source.clipped_sum(np.array([5], dtype=np.int32), 0, parameters)
        assert len(head.cache) == 2


def test_views_kept_in_one_way_are_not_taken_for_those_of_another():
    images, labels = make_images(4)
    augmentation = AugmentationPlan.dp_mix_self(3, 2)
    head, config = (
        LinearHead(Pooled(), feature_cache="views"),
        make_config(augmentation=augmentation),
    )
    for cache in ("views", "base"):
        head.feature_cache = cache
        _, source, parameters = make_steps(head, config, images, labels)
        source.clipped_sum(np.array([2], dtype=np.int32), 0, parameters)
    assert sorted(len(kept.inputs) for kept in head.cache.values()) == [3, 5]


def test_parts_of_a_step_add_up():
    config = make_config()
    images, labels = make_images(20)
    _, source, parameters = make_steps(Network(make_network()), config, images, labels)
    everybody = np.arange(20, dtype=np.int32)
    whole = source.clipped_sum(everybody, 1, parameters)
    parts = [source.clipped_sum(part, 1, parameters) for part in np.array_split(everybody, 3)]
    assert np.array_equal(whole, sum(parts))


def test_an_empty_step_is_pure_noise():
    config = make_config()
    images, labels = make_images(4)
    for model in (LinearHead(Pooled()), Network(make_network())):
        _, source, parameters = make_steps(model, config, images, labels)
        assert not source.clipped_sum(np.empty(0, dtype=np.int32), 0, parameters).any()


@pytest.mark.parametrize("make", [AugmentationPlan.plain, AugmentationPlan.mixup_of_pairs])
def test_microbatches_have_twice_the_sensitivity(make):
    config = make_config(microbatch_size=2, clip_norm=1e-3, augmentation=make())
    images, labels = make_images(6)
    labels[5] = (labels[4] + 1) % 3
    steps, source, parameters = make_steps(Network(make_network()), config, images, labels)
    fewer, other, _ = make_steps(Network(make_network()), config, images[:-1], labels[:-1])
    pair = np.array([2], dtype=np.int32)
    gap = source.clipped_sum(pair, 0, parameters) - other.clipped_sum(pair, 0, parameters)
    gap = np.linalg.norm(gap.astype(float))
    assert gap <= source.grid.sensitivity
    single = np.linalg.norm(source.clipped_sum(pair, 0, parameters).astype(float))
    assert source.grid.sensitivity == pytest.approx(2 * single, rel=1e-5)
    others = np.array([0, 1], dtype=np.int32)
    assert np.array_equal(
        source.clipped_sum(others, 0, parameters), other.clipped_sum(others, 0, parameters)
    )
    assert steps.sample(0).max(initial=0) <= 2
    assert fewer.sample(0).max(initial=0) <= 2


def test_random_transforms_and_public_weights_keep_the_sensitivity():
    plan = AugmentationPlan.dp_mix_self(
        3, 2, transforms=("flip",), random_transforms=("cutout", "noise")
    )
    config = make_config(clip_norm=1e-3, augmentation=plan)
    head = LinearHead(Pooled(), initial=(np.arange(48.0).reshape(3, 16), np.ones(3)))
    images, labels = make_images(6)
    _, source, parameters = make_steps(head, config, images, labels)
    _, other, _ = make_steps(head, config, images[:-1], labels[:-1])
    everybody = np.arange(6, dtype=np.int32)
    gap = source.clipped_sum(everybody, 0, parameters) - other.clipped_sum(
        everybody[:-1], 0, parameters
    )
    gap = np.linalg.norm(gap.astype(float))
    assert 0.5 * source.grid.sensitivity < gap <= source.grid.sensitivity


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_virtual_batches_agree_with_single_records_or_are_refused():
    config = make_config()
    images, labels = make_images(11)
    _, single, parameters = make_steps(Network(make_network()), config, images, labels)
    everybody = np.arange(11, dtype=np.int32)
    due = single.clipped_sum(everybody, 2, parameters).astype(float)
    try:
        network = Network(make_network(), records_per_call=4)
        network.check(config)
    except InvalidInputError as error:
        assert "records_per_call" in str(error)
        return
    _, together, _ = make_steps(network, config, images, labels)
    found = together.clipped_sum(everybody, 2, parameters).astype(float)
    assert all(p.grad is None for p in network.module.parameters())
    assert np.linalg.norm(found - due) <= 1e-5 * np.linalg.norm(due)
    rest = together.clipped_sum(everybody[:-1], 2, parameters)
    alone = together.clipped_sum(everybody[-1:], 2, parameters)
    assert np.array_equal(together.clipped_sum(everybody, 2, parameters), rest + alone)


@pytest.mark.parametrize("name", ["head", "network"])
def test_noise_has_the_stated_scale(name):
    config = make_config(noise_multiplier=0.7, num_steps=2000)
    images, labels = make_images(3)
    steps, source, parameters = make_steps(MODELS[name](), config, images, labels)
    drawn = []
    while sum(map(len, drawn)) < 2000:
        step = len(drawn)
        total = steps.noiseless_sum(step, parameters)
        gradient = steps.gradient(step, parameters)
        drawn.append(gradient * config.batch_size * source.grid.scale - total)
    noise = np.concatenate(drawn) / (0.7 * source.grid.sensitivity)
    # Two-sided chi-square test with false-alarm probability 1e-8.
    low, high = chi2.ppf([5e-9, 1 - 5e-9], noise.size)
    assert low < np.square(noise).sum() < high
    assert high * 1.5**-2 < low


@pytest.mark.parametrize("microbatch_size", [1, 2])
def test_noise_is_drawn_for_the_sensitivity_with_the_rounding_allowance(
    microbatch_size, monkeypatch
):
    """A microbatch of two may change by twice the clip norm, and its noise is twice as large."""
    plain = AugmentationPlan.plain()
    config = make_config(
        microbatch_size=microbatch_size, clip_norm=0.5, noise_multiplier=1.3, augmentation=plain
    )
    steps, source, parameters = make_steps(Network(make_network()), config, *make_images(6))
    drawn = []

    def watched(stream, extra, stddev, size):
        drawn.append(stddev)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(trainer, "rounded_gaussian", watched)
    steps.gradient(0, parameters)
    accounted = 1.3 * microbatch_size * 0.5 * source.grid.scale
    assert accounted * (1 + 5e-13) < drawn[0] < accounted * (1 + 2e-12)


def test_steps_have_noise_and_samples_of_their_own(monkeypatch):
    """Two steps of a model with no record near it: the published gradients are the noise alone."""
    config = make_config(num_records=60, batch_size=30, num_steps=4)
    steps, _, parameters = make_steps(LinearHead(Pooled()), config, *make_images(60))
    monkeypatch.setattr(
        type(steps), "noiseless_sum", lambda self, step, at: np.zeros(at.size, dtype=np.int64)
    )
    gradients = [steps.gradient(step, parameters) for step in range(4)]
    samples = [tuple(steps.sample(step)) for step in range(4)]
    assert len({gradient.tobytes() for gradient in gradients}) == 4
    assert len(set(samples)) == 4
