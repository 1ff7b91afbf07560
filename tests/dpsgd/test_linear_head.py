"""The fast path against brute force and against Opacus, and its sensitivity."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from privmix.dpsgd import linear_head
from privmix.dpsgd.formed_gradients import forming_is_quicker
from privmix.dpsgd.grid import ExactSum, HeadGrid
from privmix.dpsgd.linear_head import clipped_head_sum, head_gradient_sum


def summed(features, targets, weights, clip_norm):
    grid = HeadGrid(clip_norm, features.shape[1], weights.size)
    return clipped_head_sum(features, targets, weights, grid)


def make_batch(records, views, width, classes, seed=0, scale=1.0):
    random = torch.Generator().manual_seed(seed)
    features = scale * torch.randn((records, views, width), generator=random).relu()
    mixed = torch.rand((records, views, classes), generator=random) ** 4
    weights = torch.randn((classes, width + 1), generator=random, dtype=torch.float64)
    return features, mixed / mixed.sum(dim=2, keepdim=True), 0.1 * weights.numpy()


def by_opacus(features, targets, weights, clip_norm):
    """Per-sample gradients of the mean loss over views, clipped and summed."""
    from opacus import GradSampleModule

    head = torch.nn.Linear(features.shape[2], len(weights)).double()
    with torch.no_grad():
        head.weight.copy_(torch.as_tensor(weights[:, :-1]))
        head.bias.copy_(torch.as_tensor(weights[:, -1]))
    sampled = GradSampleModule(head, loss_reduction="sum")
    scores = sampled(features.double().requires_grad_())
    losses = -(targets.double() * torch.log_softmax(scores, dim=2)).sum(dim=2)
    losses.mean(dim=1).sum().backward()
    gradients = torch.cat([head.weight.grad_sample, head.bias.grad_sample[:, :, None]], dim=2)
    lengths = gradients.flatten(1).norm(dim=1)
    shares = (clip_norm / lengths).clamp(max=1)
    return torch.einsum("i,icd->cd", shares, gradients).numpy(), lengths.numpy()


@pytest.mark.parametrize("views", [1, 16, 36])
@pytest.mark.parametrize("clip_norm", [0.05, 0.5, 300.0])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 50.0])
def test_clipped_sums_equal_those_of_opacus(views, clip_norm, scale):
    features, targets, weights = make_batch(40, views, 96, 10, seed=views, scale=scale)
    found = head_gradient_sum(features, targets, weights, clip_norm)
    due, lengths = by_opacus(features, targets, weights, clip_norm)
    if clip_norm < 300 and scale == 1.0:  # else the test would not see clipping
        assert (lengths > clip_norm).any()
    # Where gradients are far below the bound, the grid is relative to the bound.
    floor = 1e-7 * clip_norm * math.sqrt(len(features))
    assert np.linalg.norm(found - due) <= 1e-5 * np.linalg.norm(due) + floor


def test_full_size_sums_equal_those_of_opacus():
    features, targets, weights = make_batch(12, 36, 1280, 100)
    found = head_gradient_sum(features, targets, weights, 1.0)
    due, _ = by_opacus(features, targets, weights, 1.0)
    assert np.linalg.norm(found - due) <= 1e-5 * np.linalg.norm(due)


@pytest.mark.parametrize("seed", range(20))
def test_no_record_passes_the_bound(seed):
    generator = np.random.default_rng(seed)
    views, width = int(generator.integers(1, 20)), int(generator.integers(1, 40))
    scale = 10.0 ** generator.uniform(-6, 6)
    clip_norm = 10.0 ** generator.uniform(-3, 3)
    features, targets, weights = make_batch(1, views, width, 4, seed, scale)
    total = summed(features, targets, weights, clip_norm)
    fine = total.shifted(0)
    grid = HeadGrid(clip_norm, views, weights.size)
    square = sum(int(value) ** 2 for value in fine.reshape(-1))
    assert square <= grid.bound**2


@pytest.mark.parametrize("views", [6, 12])
@pytest.mark.parametrize("hostile", ["opposed", "huge", "tiny", "infinite", "saturated"])
def test_no_hostile_record_passes_the_bound(hostile, views):
    features, targets, weights = make_batch(2, views, 8, 3)
    if hostile == "opposed":  # views that cancel but for a little
        targets[0, ::2] = torch.tensor([1.0, 0, 0])
        targets[0, 1::2] = torch.tensor([0.0, 1, 0])
        features[0] = 1e8
    elif hostile == "huge":
        features[0] *= 1e30
    elif hostile == "tiny":
        features[0] *= 1e-30
    elif hostile == "infinite":
        features[0, 2, 1] = math.inf
    else:
        weights = weights * 1e12
    grid = HeadGrid(1.0, views, weights.size)
    alone = summed(features[:1], targets[:1], weights, 1.0).shifted(0)
    assert sum(int(v) ** 2 for v in alone.reshape(-1)) <= grid.bound**2
    rest = summed(features[1:], targets[1:], weights, 1.0).shifted(0)
    both = summed(features, targets, weights, 1.0).shifted(0)
    assert np.array_equal(both, alone + rest)
    if hostile == "infinite":
        assert not alone.any()


def test_sums_do_not_depend_on_order_or_companions():
    features, targets, weights = make_batch(70, 16, 50, 5)
    whole = summed(features, targets, weights, 1.0).shifted(0)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(1))
    shuffled = summed(features[order], targets[order], weights, 1.0).shifted(0)
    single = sum(
        summed(features[i : i + 1], targets[i : i + 1], weights, 1.0).shifted(0) for i in range(70)
    )
    assert np.array_equal(whole, shuffled)
    assert np.array_equal(whole, single)


def test_sums_do_not_depend_on_where_a_record_lies_in_memory():
    features, targets, weights = make_batch(30, 9, 51, 5)  # most are not aligned
    whole = summed(features, targets, weights, 1.0).shifted(0)
    single = sum(
        summed(features[i : i + 1].clone(), targets[i : i + 1], weights, 1.0).shifted(0)
        for i in range(30)
    )
    assert np.array_equal(whole, single)


def test_many_records_that_all_reach_the_bound_in_one_entry(monkeypatch):
    """More of them than are held in 64 bits, as K is large."""
    monkeypatch.setattr(linear_head, "default_threads", lambda: 1)
    views = 1 << 14
    features = torch.full((150, views, 1), 1e4)
    targets = torch.tensor([1.0, 0.0]).expand(150, views, 2)
    weights = np.zeros((2, 2))
    one = summed(features[:1], targets[:1], weights, 1.0).shifted(27)
    assert np.abs(one).max() > 0.7 * HeadGrid(1.0, views, 4).bound / 2**27
    assert np.array_equal(summed(features, targets, weights, 1.0).shifted(27), 150 * one)


@pytest.mark.parametrize("clip_norm", [1e-35, 1e-5, 1e30])
def test_extreme_clip_norms(clip_norm):
    features, targets, weights = make_batch(3, 8, 20, 4)
    grid = HeadGrid(clip_norm, 8, weights.size)
    for i in range(3):
        total = summed(features[i : i + 1], targets[i : i + 1], weights, clip_norm).shifted(0)
        assert sum(int(value) ** 2 for value in total.reshape(-1)) <= grid.bound**2


def test_gradients_are_formed_by_public_sizes_alone():
    assert forming_is_quicker(36, 128_100)
    assert not forming_is_quicker(1, 128_100)
    assert not forming_is_quicker(36, 10**6)


def test_exact_sum_holds_more_than_64_bits_and_rounds_down():
    total = ExactSum(torch.empty(2))
    values = torch.tensor([2.0**52, -(2.0**52) + 1], dtype=torch.float64)
    count = 5000
    for _ in range(count):
        total.add(values, 2.0**53)
    due = [count * 2**52 >> 30, count * (-(2**52) + 1) >> 30]
    assert total.shifted(30).tolist() == due


def test_published_grid_covers_rounding_down():
    grid = HeadGrid(1.0, 36, 128_100)
    generator = np.random.default_rng(0)
    for _ in range(20):
        others = generator.integers(-(2**55), 2**55, size=1000)
        own = generator.standard_normal(1000)
        own = np.rint(own / np.linalg.norm(own) * grid.bound * (1 - 1e-9)).astype(np.int64)
        change = ((others + own) >> grid.shift) - (others >> grid.shift)
        assert np.linalg.norm(change.astype(float)) <= grid.published.sensitivity
    # The allowance is next to nothing, and the units are those of a mean gradient.
    assert grid.published.unit_sensitivity == pytest.approx(1.0, rel=1e-6)


def test_threads_change_nothing_and_leave_torch_as_it_was(monkeypatch):
    features, targets, weights = make_batch(70, 16, 50, 5)
    before = torch.get_num_threads()
    sums = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(linear_head, "default_threads", lambda threads=threads: threads)
        sums.append(summed(features, targets, weights, 1.0).shifted(0))
    assert np.array_equal(sums[0], sums[1])
    assert np.array_equal(sums[0], sums[2])
    assert torch.get_num_threads() == before
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == before


def test_no_records_add_nothing():
    features, targets, weights = make_batch(2, 3, 4, 5)
    assert not summed(features[:0], targets[:0], weights, 1.0).shifted(0).any()


@pytest.mark.parametrize("fault", ["views", "parameters", "targets"])
def test_shapes_other_than_planned_are_refused(fault):
    features, targets, weights = make_batch(2, 3, 4, 5)
    views = 3 + (fault == "views")
    grid = HeadGrid(1.0, views, weights.size + (fault == "parameters"))
    if fault == "targets":
        targets = targets[:, :, :-1]
    with pytest.raises(ValueError, match="planned were"):
        clipped_head_sum(features, targets, weights, grid)


def test_rounding_down_adds_a_point_in_each_entry_to_the_sensitivity():
    """Two sums that differ by the bound in one entry may differ by a point in every other."""
    grid = HeadGrid(1.0, 4, 10_000)
    assert grid.shift > 0
    due = math.ldexp(grid.bound, -grid.shift) + math.sqrt(10_000)
    assert grid.published.sensitivity == due
