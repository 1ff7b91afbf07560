"""Membership inference on features: non-private, mixtures without noise, and releases.

    PRIVMIX_DATA=... python experiments/attacks/membership.py banking77 --out attacks-banking77
    PRIVMIX_DATA=... python experiments/attacks/membership.py cifar10 --quick --out quick

Half of the candidates, drawn anew each time, go into a model or a release; the other half are the
non-members. Each model is attacked in turn, with all others of its kind as shadows:

- ``loss`` and ``gap``: the papers' metrics (DPFMix, Table 4; NeuroMixGDP, Table 9; values in papers.json);
- ``lira``: likelihood ratios of log odds with shadows; ``rmia``: relative membership, with a population;
- ``rows``: the likelihood ratio of the published rows, of the first ``--row-attacks`` releases;
- ``nearest``: the distance to the nearest of as many synthetic records as there were members, of those.

``non-private`` is a logistic regression; ``noiseless`` the papers' learner on averages of 64 records;
``poisson`` the same behind noise; ``auto`` the design and the learner that privmix recommends; ``fit``
private training of a linear head, where ``--kinds`` asks for it (needs torch). Signals
are kept in the folder ``--out``: a run that was cut off goes on. Halves come from ``--seed``; releases
draw fresh secret randomness, so that numbers vary between runs as much as the spread over releases.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import privmix
from privmix import attacks
from privmix.accounting import gdp_mu_from
from privmix.running.unrecorded import UnrecordedSpendingWarning

DELTA = 1e-5
MIX_SIZE = 64
FALSE_POSITIVE_RATES = (0.01, 0.001)
KINDS = ("poisson", "auto")
EPSILONS = (8.0, 4.0, 2.0, 1.0)
Records = tuple[NDArray[Any], NDArray[Any]]


class Data(NamedTuple):
    """Candidates, and a population of which nobody ever takes part."""

    candidates: Records
    population: Records
    num_classes: int


def unit_norm(x: NDArray[Any]) -> NDArray[np.float32]:
    rows = np.asarray(x, dtype=np.float32)
    # A hair below 1: rounding must not make a record longer than the clip norm.
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * np.float32(1 - 1e-6)


def load(name: str, folder: Path) -> Records:
    """Return the records of both of the publisher's parts."""
    if name == "banking77":
        with np.load(folder / "banking77-minilm.npz", allow_pickle=False) as file:
            x = np.concatenate([file["x_train"], file["x_test"]])
            y = np.concatenate([file["y_train"], file["y_test"]])
    else:
        parts = []
        for split in ("train", "test"):
            with np.load(folder / f"cifar10-efficientnet_lite0-{split}.npz") as file:
                parts.append(
                    (file["features_u8"] * file["scale"].astype(np.float32), file["labels"])
                )
        x, y = (np.concatenate(some) for some in zip(*parts, strict=True))
    return unit_norm(x), np.unique(y, return_inverse=True)[1]


def divide(records: Records, candidates: int, population: int, seed: int) -> Data:
    x, y = records
    order = np.random.default_rng(seed).permutation(len(x))
    one, other = order[:candidates], order[candidates : candidates + population]
    return Data((x[one], y[one]), (x[other], y[other]), int(y.max()) + 1)


@dataclass(frozen=True)
class Mixtures:
    """The papers' mixtures without noise: what the learner reads of a release, with no guarantee."""

    features: NDArray[np.float32]
    label_weights: NDArray[np.float32]
    num_records: int
    design = "poisson"
    mix_size = float(MIX_SIZE)
    feature_clip_norm = 1.0
    feature_noise_stddev = label_noise_stddev = 0.0

    @classmethod
    def of(cls, x: NDArray[Any], y: NDArray[Any], num_classes: int, seed: int) -> Mixtures:
        random, one_hot = np.random.default_rng(seed), np.eye(num_classes, dtype=np.float32)[y]
        coins = (random.random((len(x), len(x))) < MIX_SIZE / len(x)).astype(np.float32)
        return cls(coins @ x / MIX_SIZE, coins @ one_hot / MIX_SIZE, len(x))

    @property
    def classes(self) -> tuple[int, ...]:
        return tuple(range(self.num_classes))

    @property
    def num_classes(self) -> int:
        return self.label_weights.shape[1]

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def num_mixtures(self) -> int:
        return len(self.features)

    @property
    def sampling_prob(self) -> float:
        return MIX_SIZE / self.num_records

    def iter_blocks(self) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        yield self.features, self.label_weights


def learner_of(design: str) -> Any:
    """Return the papers' learner for mixtures with labels, and privmix's own for its designs."""
    if design == "poisson":
        return privmix.KLSoftmaxClassifier()
    return privmix.AdaptiveClassifier() if design == "adaptive" else privmix.NoiseAwareClassifier()


def publish(
    x: NDArray[Any], y: NDArray[Any], num_classes: int, design: str, epsilon: float, folder: Path
) -> privmix.Release:
    schema = privmix.Schema(
        classes=range(num_classes),
        num_features=x.shape[1],
        num_records=len(x),
        feature_clip_norm=1.0,
    )
    options: dict[str, Any] = {}
    if design == "poisson":  # the papers' setting
        options = {"mix_size": MIX_SIZE, "label_balance": 1.0, "num_mixtures": len(x)}
        options["preprocessing"] = ()
    plan = privmix.plan_release(
        schema, target_epsilon=epsilon, target_delta=DELTA, design=design, **options
    )
    with warnings.catch_warnings():
        # Each release stands for one of its own: nobody's records are released again and again.
        warnings.simplefilter("ignore", UnrecordedSpendingWarning)
        return privmix.release(x, y, plan, out=folder)


def train(x: NDArray[Any], y: NDArray[Any], num_classes: int, epsilon: float) -> Any:
    """Train a linear head by full batches: DP gradient descent, settings by a public rule."""
    signal = len(x) * gdp_mu_from(epsilon, DELTA)
    clip_norm, steps = 0.5, 10 if signal < 5000 else 30
    model = privmix.dpsgd.DPMixClassifier(
        None,
        epsilon,
        DELTA,
        classes=range(num_classes),
        num_records=len(x),
        batch_size=len(x),
        epochs=steps,
        clip_norm=clip_norm,
        learning_rate=min(800.0, 1.5 * signal / (clip_norm * steps)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnrecordedSpendingWarning)
        return model.fit(x, y)


def certified(certificate: Any) -> NDArray[np.float64]:
    """Return epsilon, and what its curve allows: the AUC, and true-positive rates."""
    curve = certificate.tradeoff_curve
    # Of a convex curve, whose chords lie above it: a hair less than what is certified.
    area = np.trapezoid(curve.false_negative_rate, curve.false_positive_rate)
    most = [curve.true_positive_rate(rate) for rate in FALSE_POSITIVE_RATES]
    return np.array([certificate.epsilon, 1 - area, *most])


def one_model(
    data: Data, setting: str, number: int, members: NDArray[np.bool_], attack_rows: bool
) -> dict[str, NDArray[Any]]:
    """Make one model and return all that the attacks need of it."""
    x, y = data.candidates
    x_in, y_in = x[members], y[members]
    kind, _, epsilon = setting.partition(" ")
    found: dict[str, NDArray[Any]] = {"members": members}
    if kind == "non-private":
        model: Any = LogisticRegression(C=100.0, max_iter=200).fit(x_in, y_in)
    elif kind == "noiseless":
        model = learner_of("poisson").fit(Mixtures.of(x_in, y_in, data.num_classes, number))
    elif kind == "fit":
        model = train(x_in, y_in, data.num_classes, float(epsilon))
        found["certified"] = certified(model.certificate_)
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = publish(x_in, y_in, data.num_classes, kind, float(epsilon), Path(folder, "r"))
            model = learner_of(made.design).fit(made)
            found["certified"] = certified(made.certificate)
            if attack_rows:
                background = attacks.Background(*data.population, num_records=len(x_in))
                found["rows"] = attacks.row_scores(made, x, y, background)
                synthetic = privmix.synthesize(made, len(x_in), seed=number).features
                found["nearest"] = attacks.nearest_record_scores(x, synthetic)
    found["signals"] = attacks.log_odds(model, x, y)
    found["loss"] = attacks.loss_scores(model, x, y)
    found["population"] = attacks.log_odds(model, *data.population)
    parts = (members, ~members)
    found["accuracy"] = np.array([attacks.accuracy(model, x[part], y[part]) for part in parts])
    return found


def make_models(
    data: Data, setting: str, folder: Path, options: argparse.Namespace
) -> list[dict[str, NDArray[Any]]]:
    """Make the models of a setting that the folder does not have yet."""
    random, found = np.random.default_rng(options.seed + 1), []
    count = len(data.candidates[1])
    for number in range(options.releases):
        members = np.zeros(count, dtype=np.bool_)
        members[random.permutation(count)[: count // 2]] = True
        path = folder / f"{setting.replace(' ', '-')}-{number}.npz"
        if not path.is_file():
            model = one_model(data, setting, number, members, number < options.row_attacks)
            unfinished = path.with_suffix(".part")
            with unfinished.open("wb") as stream:
                np.savez_compressed(stream, **model)
            unfinished.replace(path)
            print(f"{setting}: {number + 1} of {options.releases}", file=sys.stderr)
        with np.load(path) as file:
            found.append({name: file[name] for name in file.files})
        if not np.array_equal(found[-1]["members"], members):
            sys.exit(f"{path}: expected a model of the same candidates, got another")
    return found


def scores_of(models: list[dict[str, NDArray[Any]]], target: int) -> dict[str, NDArray[Any]]:
    """Return the scores of all attacks on one of the models, the others being shadows."""
    own = models[target]
    signals = np.stack([model["signals"] for model in models])
    members = np.stack([model["members"] for model in models])
    shadows = attacks.Shadows(signals, members).without(target)
    others = np.stack([m["population"] for i, m in enumerate(models) if i != target])
    scores = {
        "loss": own["loss"],
        "lira": attacks.likelihood_ratio_scores(own["signals"], shadows),
        "rmia": attacks.relative_membership_scores(
            own["signals"], shadows, own["population"], others
        ),
    }
    return scores | {name: own[name] for name in ("rows", "nearest") if name in own}


def summary(models: list[dict[str, NDArray[Any]]]) -> dict[str, Any]:
    """Return mean and standard deviation over models of what each attack finds."""
    values: dict[str, list[float]] = {}
    for target, model in enumerate(models):
        inside, outside = model["accuracy"]
        values.setdefault("accuracy", []).append(float(outside))
        values.setdefault("gap", []).append(float(inside - outside))
        for name, scores in scores_of(models, target).items():
            split = attacks.MembershipScores.split(scores, model["members"])
            values.setdefault(f"{name} auc", []).append(split.auc)
            for rate in FALSE_POSITIVE_RATES:
                found = split.detection(rate).true_positive_rate.estimate
                values.setdefault(f"{name} tpr at {rate:g}", []).append(found)
    told: dict[str, Any] = {
        name: {
            "mean": float(np.mean(some)),
            "stddev": float(np.std(some, ddof=1)),
            "runs": len(some),
        }
        if len(some) > 1
        else {"mean": some[0], "stddev": None, "runs": 1}
        for name, some in values.items()
    }
    if "certified" in models[0]:
        names = ("epsilon", "auc", *(f"tpr at {rate:g}" for rate in FALSE_POSITIVE_RATES))
        told["certified"] = dict(zip(names, models[0]["certified"].tolist(), strict=True))
    return told


ATTACKS = ("loss", "lira", "rmia", "rows", "nearest")


def as_table(
    results: dict[str, Any], columns: dict[str, str], certified: str, factor: float
) -> str:
    """Return a Markdown table: mean (standard deviation over models), and what is certified."""
    digits = 3 if factor == 1 else 1
    head = ["setting", *columns, "certified at most"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for setting, one in results.items():
        cells = [setting]
        for name in columns.values():
            scale, places = (100, 1) if name in ("accuracy", "gap") else (factor, digits)
            cells.append(_cell(one.get(name), scale, places))
        most = one.get("certified", {}).get(certified)
        cells.append("" if most is None else f"{factor * most:.{digits}f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(found: dict[str, Any] | None, factor: float, digits: int) -> str:
    if found is None:
        return ""
    mean = f"{found['mean'] * factor:.{digits}f}"
    return mean if found["stddev"] is None else f"{mean} ({found['stddev'] * factor:.{digits}f})"


def print_tables(results: dict[str, Any]) -> None:
    areas = {"accuracy %": "accuracy", "gap %": "gap"} | {f"{n} AUC": f"{n} auc" for n in ATTACKS}
    print(as_table(results, areas, "auc", 1.0))
    for rate in FALSE_POSITIVE_RATES:
        print(f"\nTrue-positive rate in % at a false-positive rate of {100 * rate:g} %:\n")
        columns = {name: f"{name} tpr at {rate:g}" for name in ATTACKS}
        print(as_table(results, columns, f"tpr at {rate:g}", 100.0))


def settings_of(kinds: list[str], epsilons: list[float]) -> list[str]:
    private = [f"{kind} {epsilon:g}" for kind in kinds for epsilon in epsilons]
    return ["non-private", "noiseless", *private]


def run(data: Data, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Attack all settings; what the folder has is not made again."""
    folder.mkdir(parents=True, exist_ok=True)
    results = {
        setting: summary(make_models(data, setting, folder, options))
        for setting in settings_of(options.kinds, options.epsilons)
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", choices=["banking77", "cifar10"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--population", type=int, default=3_000)
    parser.add_argument("--releases", type=int, default=16, help="models of each setting")
    parser.add_argument(
        "--row-attacks", type=int, default=4, help="of them, attacked by their rows"
    )
    parser.add_argument("--kinds", nargs="+", choices=["poisson", "auto", "fit"], default=KINDS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="1,000 candidates, 4 models a setting")
    options = parser.parse_args()
    if options.quick:
        options.candidates, options.population, options.releases = 1_000, 1_000, 4
        options.row_attacks = 2
    records = load(options.dataset, Path(os.environ["PRIVMIX_DATA"]))
    data = divide(records, options.candidates, options.population, options.seed)
    print_tables(run(data, options.out, options))


if __name__ == "__main__":
    main()
