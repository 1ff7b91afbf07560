"""Synthetic MNIST by DP-MERF, DP-HP and P3GM: what classifiers trained on it are worth on real digits.

    PRIVMIX_DATA=data python -m experiments.baselines.mnist --quick

One row a method, budget, seed and classifier: accuracy on the 10,000 test images of a classifier trained
on 6,000 synthetic ones, a tenth of the real ones' number, and 2,000 with ``--quick``. ``network`` is the small convolutional network by which
P3GM was measured, with a fixed number of epochs; it is no part of ``mean``. ``--development`` scores on 10,000
training images that are left out of the release, on which the settings here were chosen. ``--epsilon inf``
leaves the noise away (epsilon 10^5): what remains is due to the method and its generator.
"""

from __future__ import annotations

import math
import statistics
import warnings
from typing import Any

import numpy as np
from experiments.harness import Experiment, data, parser
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from privmix import baselines

DELTA = 1e-5
SYNTHETIC = 6_000
NO_NOISE = 1e5
EPOCHS = 5  # of the network
# The kernel of DP-HP on MNIST, of order 100 and squared length 0.005 there, with a fifth of the degrees.
PUBLISHED = baselines.HermiteFeatures(20, rho=0.975, scale=math.sqrt(5))
Digits = tuple[NDArray[Any], NDArray[Any]]


def load(development: bool) -> tuple[Digits, Digits]:
    """Return training and test images, as numbers from 0 to 1, (images, 784), with their labels."""
    with np.load(data("mnist.npz"), allow_pickle=False) as archive:
        train, test = (
            (archive[f"x_{part}"].reshape(-1, 784) / 255.0, archive[f"y_{part}"].astype(np.int64))
            for part in ("train", "test")
        )
    if development:
        order = np.random.default_rng(0).permutation(len(train[0]))
        train, test = ((train[0][o], train[1][o]) for o in (order[10_000:], order[:10_000]))
    return train, test


def methods(num_records: int, quick: bool) -> dict[str, Any]:
    """Return the three methods, with their authors' settings where README.md does not say otherwise."""
    fourier = baselines.FourierFeatures(784, 500, length=math.sqrt(105))
    merf = {"image_side": 28, "hidden_size": 200, "batch_size": 100}
    hp = {"hidden_size": 500, "batch_size": 200, "num_steps": 3000}
    return {
        "DP-MERF": baselines.MeanEmbedding(
            10, num_records, fourier, num_steps=600 if quick else 3000, **merf
        ),
        "DP-HP": baselines.MeanEmbedding(10, num_records, PUBLISHED, **hp),
        "P3GM": baselines.P3GM(10, num_records, clip_norm=10.0, num_steps=100 if quick else 400),
    }


def classifiers(seed: int) -> dict[str, Any]:
    """Nine of DP-HP's twelve, with its settings; boosting takes too long here."""
    return {
        "logistic": LogisticRegression(max_iter=1000),
        "forest": RandomForestClassifier(class_weight="balanced", random_state=seed),
        "gaussian bayes": GaussianNB(),
        "bernoulli bayes": BernoulliNB(binarize=0.5),
        "linear svc": LinearSVC(loss="hinge", max_iter=2000),
        "tree": DecisionTreeClassifier(class_weight="balanced", random_state=seed),
        "lda": LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5),
        "mlp": MLPClassifier(random_state=seed),
        "bagging": BaggingClassifier(max_samples=0.1, n_estimators=20, random_state=seed),
    }


def network(made: Digits, test: Digits, seed: int) -> float:
    """Return the accuracy of P3GM's network after ``EPOCHS`` epochs: no choice is made on test images."""
    import torch
    from torch import nn

    images, labels = (torch.from_numpy(np.asarray(part)) for part in made)
    images = images.float().reshape(-1, 1, 28, 28)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Conv2d(1, 28, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(28 * 169, 128)]
        model = nn.Sequential(*layers, nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        for _ in range(EPOCHS):
            for chosen in torch.randperm(len(images)).split(32):
                loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            blocks = torch.from_numpy(test[0]).float().reshape(-1, 1, 28, 28).split(500)
            found = torch.cat([model(block).argmax(dim=1) for block in blocks])
    return 100 * float(np.mean(found.numpy() == test[1]))


def scored(made: Digits, test: Digits, seed: int) -> dict[str, float]:
    """Return accuracies in per cent: each classifier's, their mean, and the network's."""
    found = {}
    for name, classifier in classifiers(seed).items():
        found[name] = accuracy(classifier, made, test)
    return {"mean": statistics.mean(found.values()), **found, "network": network(made, test, seed)}


def accuracy(classifier: Any, made: Digits, test: Digits) -> float:
    """Return the accuracy of a classifier, in per cent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of steps that did not suffice
        return 100 * float(classifier.fit(*made).score(*test))


def synthetic(method: Any, train: Digits, epsilon: float, seed: int, count: int) -> Digits:
    """Return ``count`` synthetic images of a fresh release, with their labels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of releases of the same public images
        target = min(epsilon, NO_NOISE)
        release = method.release(*train, target_epsilon=target, target_delta=DELTA)
    x, labels = release.records(count, seed=seed)
    return x, labels.argmax(axis=1)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--methods", nargs="+")
    options.add_argument("--epsilon", nargs="+", type=float)
    options.add_argument("--seeds", type=int)
    options.add_argument("--development", action="store_true")
    arguments = options.parse_args()
    experiment = Experiment(__file__, ("part", "method", "epsilon", "seed"), arguments)
    part = "development" if arguments.development else "test"
    train, test = load(arguments.development)
    made = methods(len(train[0]), arguments.quick)
    count = SYNTHETIC // 3 if arguments.quick else SYNTHETIC
    for seed in range(arguments.seeds or (1 if arguments.quick else 3)):
        for epsilon in arguments.epsilon or [1.0]:
            for name in arguments.methods or made:

                def row(
                    name: str = name, epsilon: float = epsilon, seed: int = seed
                ) -> dict[str, float]:
                    return scored(synthetic(made[name], train, epsilon, seed, count), test, seed)

                key = {"part": part, "method": name, "epsilon": f"{epsilon:g}", "seed": seed}
                experiment.measure(key, row)
    experiment.show("mean", *classifiers(0), "network")


if __name__ == "__main__":
    main()
