"""What a record is turned into: shapes, labels, and that only its own randomness counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from privmix import InvalidInputError
from privmix.dpsgd import AugmentationPlan
from privmix.dpsgd.augmentation import TRANSFORMS, Samples, augment, base_views

RECORD = torch.rand((3, 12, 10), generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0.0, 1.0, 0.0, 0.0])


def made(plan, seed=0, synthetic=None):
    return augment(RECORD, TARGET, plan, np.random.default_rng(seed), synthetic)


def test_presets_have_the_papers_numbers():
    assert AugmentationPlan.plain().num_augmentations == 1
    assert AugmentationPlan.self_aug().num_augmentations == 16
    assert AugmentationPlan.dp_mix_self().num_augmentations == 34
    assert AugmentationPlan.dp_mix_diff().num_augmentations == 36
    assert AugmentationPlan.pure_diff().num_base == 0
    assert AugmentationPlan.dp_mix_self().mix_alpha == 0.2


def test_plain_is_the_record_itself():
    inputs, targets = made(AugmentationPlan.plain())
    assert torch.equal(inputs[0], RECORD)
    assert torch.equal(targets[0], TARGET)


def test_crops_and_flips_are_windows_of_the_reflected_record():
    plan = AugmentationPlan.self_aug(40, crop_padding=3)
    views = base_views(RECORD, plan, np.random.default_rng(1))
    padded = torch.nn.functional.pad(RECORD[None], (3, 3, 3, 3), mode="reflect")[0]
    windows = [
        padded[:, i : i + 12, j : j + 10].flip(-1) if flip else padded[:, i : i + 12, j : j + 10]
        for i in range(7)
        for j in range(7)
        for flip in (False, True)
    ]
    found = [next(n for n, w in enumerate(windows) if torch.equal(w, view)) for view in views]
    assert len(set(found)) > 20


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_keeps_shape_and_range(name):
    plan = AugmentationPlan.self_aug(6, transforms=(name,))
    inputs, _ = made(plan)
    assert inputs.shape == (6, 3, 12, 10)
    assert torch.isfinite(inputs).all()
    assert not all(torch.equal(view, RECORD) for view in inputs)
    assert torch.equal(made(plan).inputs, inputs)
    assert not torch.equal(made(plan, seed=1).inputs, inputs)


def test_each_view_goes_through_one_random_transform():
    names = ("cutout", "sobel", "blur")
    plan = AugmentationPlan.self_aug(60, transforms=(), random_transforms=names)
    views = base_views(RECORD, plan, np.random.default_rng(0))
    blank = [bool((view == 0).all(dim=0).sum() >= 9) for view in views]
    assert views.shape == (60, 3, 12, 10)
    # Binomial(60, 1/3): outside 5 to 40 with probability below 1e-5; the draws are fixed.
    assert 5 <= sum(blank) <= 40
    assert torch.equal(base_views(RECORD, plan, np.random.default_rng(0)), views)


def test_random_transforms_are_no_part_of_plans_without_them():
    assert "random_transforms" not in AugmentationPlan().model_dump_json()
    plan = AugmentationPlan.self_aug(2, transforms=("crop",), random_transforms=("crop", "noise"))
    assert plan.all_transforms == ("crop", "noise")
    assert AugmentationPlan.model_validate_json(plan.model_dump_json()) == plan
    with pytest.raises(InvalidInputError, match="transforms"):
        plan.check_input((5,), 0)


def test_a_mixture_needs_two_members():
    pairs = AugmentationPlan.mixup_of_pairs()
    pairs.check_mixtures(2)
    with pytest.raises(InvalidInputError, match="num_mixed"):
        pairs.check_mixtures()
    with pytest.raises(InvalidInputError, match="num_mixed"):
        AugmentationPlan(num_base=1, num_mixed=2).check_mixtures()


def test_mixtures_lie_between_two_members():
    plan = AugmentationPlan.dp_mix_self(4, 30, crop_padding=2)
    inputs, targets = made(plan)
    members = inputs[:4].flatten(1)
    for mixed in inputs[4:].flatten(1):
        gaps = []
        for i in range(4):
            for j in range(i):
                along = members[i] - members[j]
                if along.norm() == 0:
                    continue
                share = ((mixed - members[j]) @ along / (along @ along)).clamp(0, 1)
                gaps.append(float((mixed - members[j] - share * along).norm()))
        assert min(gaps) < 1e-4
    assert torch.allclose(targets, TARGET.expand(34, -1))


def test_weights_follow_the_beta_distribution():
    # Var Beta(a, a) = 1 / (8 a + 4). The variance of 10,000 draws is off by 8 % with probability
    # below 1e-8 (bounded variable, Hoeffding on its square); by a factor of 1.5 it would fail.
    plan = AugmentationPlan.dp_mix_diff(1, 10_000, 1, transforms=())
    public = Samples(torch.zeros((1, 3, 12, 10)), torch.tensor([[1.0, 0, 0, 0]]))
    shares = made(plan, synthetic=public).targets[2:, 1].double().numpy()
    assert np.mean((shares - 0.5) ** 2) == pytest.approx(1 / 5.6, rel=0.08)


def test_synthetic_images_enter_with_their_labels():
    public = Samples(torch.rand((5, 3, 12, 10)), torch.eye(4)[[0, 1, 2, 3, 3]])
    plan = AugmentationPlan.dp_mix_diff(2, 3, 4)
    inputs, targets = made(plan, synthetic=public)
    assert inputs.shape[0] == plan.num_augmentations == 9
    for view, target in zip(inputs[2:6], targets[2:6], strict=True):
        place = next(i for i in range(5) if torch.equal(public.inputs[i], view))
        assert torch.equal(target, public.targets[place])
    assert torch.allclose(targets.sum(dim=1), torch.ones(9))
    pure = AugmentationPlan.pure_diff(3, 2)
    assert made(pure, synthetic=public).inputs.shape[0] == 5


def test_cutmix_weighs_labels_by_area():
    public = Samples(torch.full((1, 3, 12, 10), 2.0), torch.tensor([[1.0, 0, 0, 0]]))
    plan = AugmentationPlan.dp_mix_diff(1, 40, 1, transforms=(), mix="cutmix", mix_alpha=1.0)
    inputs, targets = made(plan, synthetic=public)
    pasted = (inputs[2:, 0] == 2.0).float().mean(dim=(1, 2))
    assert torch.allclose(targets[2:, 0], pasted, atol=1e-6)
    assert 0.1 < float(pasted.mean()) < 0.9


@pytest.mark.parametrize(
    "changes, place",
    [
        ({"num_base": 0}, "num_base"),
        ({"num_base": -1}, "num_base"),
        ({"mix_alpha": float("nan")}, "mix_alpha"),
        ({"mix_alpha": 0.0}, "mix_alpha"),
        ({"transforms": ("crop", "crop")}, "transforms"),
        ({"transforms": ("spin",)}, "transforms"),
        ({"transforms": "crop"}, "transforms"),
        ({"transforms": [["crop"]]}, "transforms"),
        ({"random_transforms": ("spin",)}, "random_transforms"),
    ],
)
def test_bad_plans_are_refused(changes, place):
    with pytest.raises(InvalidInputError, match=place):
        AugmentationPlan(**changes)


@pytest.mark.parametrize(
    "plan, shape, synthetic, place",
    [
        (AugmentationPlan(), (7,), 0, "transforms"),
        (AugmentationPlan(transforms=(), mix="cutmix", num_mixed=1), (7,), 0, "mix"),
        (AugmentationPlan(), (3, 4, 4), 0, "crop_padding"),
        (AugmentationPlan(transforms=("jitter",)), (1, 8, 8), 0, "transforms"),
        (AugmentationPlan.dp_mix_diff(), (3, 8, 8), 0, "synthetic"),
        (AugmentationPlan(), (3, 8, 8), 5, "synthetic"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(plan, shape, synthetic, place):
    with pytest.raises(InvalidInputError, match=place):
        plan.check_input(shape, synthetic)


@pytest.mark.parametrize("shape", [(5,), (3, 8, 8)])
def test_the_record_itself_takes_no_randomness(shape):
    """So that all records can have one generator: see ``PrivateViews.generator``."""
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    found = augment(torch.ones(shape), torch.eye(3)[0], AugmentationPlan.plain(), generator)
    assert generator.bit_generator.state == before
    assert torch.equal(found.inputs, torch.ones((1, *shape)))
