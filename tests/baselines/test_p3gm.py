"""Each part's bound on one record, and what the whole learns."""

from __future__ import annotations

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.baselines import P3GM, p3gm

K, D, N = 3, 6, 300
METHOD = P3GM(
    K, N, num_directions=3, components_per_class=2, hidden_size=4, batch_size=150, num_steps=6
)


def records(scale: float = 1.0):
    random = np.random.default_rng(0)
    y = random.integers(K, size=N)
    return scale * (np.eye(K, D)[y] * 0.8 + 0.1 * random.normal(size=(N, D))), y


def noiseless(monkeypatch, x, y):
    """Return sums in units of what the noise is scaled to, with multipliers; later parts see noise alone."""
    seen = []

    def keep(sums, sensitivity, noise_multiplier, key, purpose):
        seen.append((sums.ravel().astype(float) / sensitivity, noise_multiplier))
        random = np.random.default_rng(len(seen))
        if purpose == "moments":
            return random.normal(0, sensitivity, sums.shape)
        return sensitivity * (1 + random.uniform(size=sums.shape))

    monkeypatch.setattr(p3gm, "noisy", keep)
    made = METHOD.release(x, y, target_epsilon=2.0, target_delta=1e-5, test_seed=0)
    return seen, made.event


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_one_record_moves_every_published_sum_by_no_more_than_the_noise_is_scaled_to(
    monkeypatch, scale
):
    x, y = records(scale)
    one, event = noiseless(monkeypatch, x, y)
    two, _ = noiseless(monkeypatch, x[:-1], y[:-1])
    moved = [float(np.linalg.norm(a - b)) for (a, _), (b, _) in zip(one, two, strict=True)]
    assert max(moved) <= 1 + 1e-9
    # A triangle of the matrix is published, whose norm is the bound.
    assert moved[0] > (0.6 if scale == 1e6 else 0)
    planned = [part.noise_multiplier for part in event.events for _ in range(part.count)]
    assert [multiplier for _, multiplier in one] == planned
    taken = [i for i in range(6) if N - 1 in METHOD._sample(N, i, key())]
    trained = [i for i, change in enumerate(moved[-6:]) if change > 0]
    assert trained == taken  # a record moves a step that it takes part in, and no other
    assert taken


def key():
    from privmix.baselines.base import Budget

    return Budget("P3GM", 2.0, 1e-5, 0).make_key(None)


def test_a_gradient_is_that_of_the_squared_error():
    random = np.random.default_rng(3)
    decoder = p3gm.Decoder(
        random.normal(size=(5, 2)),
        random.normal(size=2),
        np.array([0.5, 2.0]),
        random.normal(size=(4, 3)),
        random.normal(size=(5, 5)),
    )
    record, code = random.normal(size=5), random.normal(size=2)
    sizes = decoder.hidden.size, decoder.output.size

    def loss(weights):
        made = decoder._replace(
            hidden=weights[: sizes[0]].reshape(4, 3), output=weights[sizes[0] :].reshape(5, 5)
        )
        return float(((made.decode(code[None])[0] - record) ** 2).sum()) / 2

    weights = np.concatenate([decoder.hidden.ravel(), decoder.output.ravel()])
    found = np.empty_like(weights)
    p3gm._gradient(record, code, *decoder, found)
    steps = 1e-6 * np.eye(len(weights))
    due = [(loss(weights + step) - loss(weights - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(found, due, atol=1e-6)


def test_shares_are_those_of_the_mixture():
    random = np.random.default_rng(4)
    weights = np.array([0.2, 0.8])
    means, variances = random.normal(size=(2, 3)), random.uniform(0.5, 2, size=(2, 3))
    codes = random.normal(size=(7, 3))
    found = np.empty((7, 2))
    p3gm._share(codes, weights, means, variances, found)
    away = (codes[:, None] - means) ** 2 / variances + np.log(variances)
    due = weights * np.exp(-away.sum(axis=2) / 2)
    np.testing.assert_allclose(found, due / due.sum(axis=1, keepdims=True), rtol=1e-10)


def test_with_little_noise_classes_come_out_apart():
    x, y = records()
    method = P3GM(K, N, num_directions=4, hidden_size=8, batch_size=60, num_steps=20, low=-1.0)
    made = method.release(x, y, target_epsilon=200.0, target_delta=1e-5, test_seed=0)
    rows, labels = made.records(300)
    assert (rows[:, :K].argmax(axis=1) == labels.argmax(axis=1)).mean() > 0.9
    assert (labels.sum(axis=0) > 50).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_records", 0),
        ("num_directions", 10),
        ("em_steps", 0),
        ("label_weight", 0.0),
        ("shares", (1.0, 0.0, 0.0)),
        ("num_steps", -1),
    ],
)
def test_bad_settings_are_refused_by_name(name, value):
    method = P3GM(**{"num_classes": K, "num_records": N, "num_directions": 3, name: value})
    with pytest.raises(InvalidInputError, match=f"^{name}"):
        method.release(*records(), target_epsilon=1.0, target_delta=1e-5)
