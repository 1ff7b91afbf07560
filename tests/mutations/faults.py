"""The faults: each a file, the exact text to find in it, what takes its place, and who should notice.

They are what a slip of the hand or a plausible simplification would make, in the places on which a
guarantee or a result rests. The text stands exactly once in its file: ``tests/mutations/test_faults.py``
checks that, so that the list keeps up with the code.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A fault put in by hand.

    Attributes:
        name: What goes wrong.
        file: The file, from the root of the project.
        find: Text that stands exactly once in it.
        replace: What takes its place.
        tests: Files, or tests in them, of which one at least must fail.

    """

    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return the file's text with the fault in it."""
        if text.count(self.find) != 1:
            raise ValueError(
                f"{self.name}: its text stands {text.count(self.find)} times in {self.file}"
            )
        return text.replace(self.find, self.replace)


def _in(module: str, *tests: str) -> tuple[str, tuple[str, ...]]:
    return f"src/privmix/{module}.py", tuple(f"tests/{name}" for name in tests)


def _faults(place: tuple[str, tuple[str, ...]], *faults: tuple[str, str, str]) -> list[Fault]:
    file, tests = place
    return [Fault(name, file, find, replace, tests) for name, find, replace in faults]


FAULTS: list[Fault] = [
    *_faults(
        _in("rng", "test_rng.py"),
        ("streams repeat every 8 blocks", "/block={block}", "/block={block % 8}"),
        ("all shards share a stream", "/shard={shard}", "/shard=0"),
        ("all purposes share a stream", "privmix/1/{purpose}/", "privmix/1/"),
        ("keys are not bound to their context", "salt=self._context", "salt=None"),
    ),
    *_faults(
        _in(
            "sampling",
            "test_sampling.py::test_inclusions_are_independent_coins",
            "test_sampling.py::test_small_sets_are_all_equally_likely",
            "test_sampling.py::test_balanced_eligibility",
            "test_sampling.py::test_dirichlet_weights_are_bounded_and_sum_to_about_one",
            "test_sampling.py::TestSigns::test_fair_signs",
        ),
        (
            "a count is one short in the binomial",
            "term = total = (one - prob) ** length",
            "term = total = (one - prob) ** (length - 1)",
        ),
        (
            "a record may enter a row twice",
            "                if not repeated:\n",
            "                if True:\n",
        ),
        (
            "the last record is left out",
            "if records[i] < num_records:",
            "if records[i] < num_records - 1:",
        ),
        (
            "all signs are positive",
            "sign = np.int32(1) - np.int32(2) * np.int32(words[used] >> np.uint64(63))",
            "sign = np.int32(1)",
        ),
        (
            "sets are drawn with replacement",
            "if member >= population or taken[member]:",
            "if member >= population:",
        ),
        (
            "one row too many is open to a class",
            "chosen = order[:eligible_rows]",
            "chosen = order[: eligible_rows + 1]",
        ),
        (
            "random weights are not clipped",
            "clipped = np.minimum(weights, weight_clip)",
            "clipped = weights",
        ),
    ),
    *_faults(
        _in(
            "clipping",
            "test_clipping.py::test_grid_of_a_unit_norm",
            "test_clipping.py::test_truncation_moves_toward_zero",
            "test_clipping.py::test_long_vectors_are_scaled_down",
            "test_clipping.py::test_vectors_on_the_bound_stay_within_it",
            "test_clipping.py::test_integers_that_rounding_puts_above_the_bound_are_shrunk",
        ),
        (
            "long vectors are shortened too much",
            "value = value / largest * (clip_norm / length)",
            "value = value / largest * (0.5 * clip_norm / length)",
        ),
        (
            "integers are rounded away from zero",
            "integer = np.int64(value * scale * shrink)  # toward zero",
            "integer = np.int64(np.rint(value * scale * shrink))",
        ),
        (
            "the exact bound is not checked",
            "            if total <= largest_square:\n",
            "            if total <= 2 * largest_square:\n",
        ),
        (
            "the sensitivity is half of what it is",
            "return self.clip_norm * self.scale",
            "return self.clip_norm * self.scale / 2",
        ),
    ),
    *_faults(
        _in("clipping", "preprocess/test_transforms.py"),
        (
            "clipping stretches short rows",
            "_scale_rows(rows, clip_norm, False)",
            "_scale_rows(rows, clip_norm, True)",
        ),
    ),
    *_faults(
        _in("mixing", "test_mixing.py"),
        (
            "one record in eight is left out",
            "(np.int32(g[j]) + np.int32(h[j]))",
            "np.int32(g[j])",
        ),
        (
            "the last record of a row is left out",
            "        while i < stop:\n",
            "        while i < stop - 1:\n",
        ),
        (
            "labels forget their signs",
            "weight = np.int64(weights[i]) if weights.size else np.int64(1)",
            "weight = np.int64(1)",
        ),
        ("narrow sums overflow", "_RECORDS_PER_INT32 = 65536", "_RECORDS_PER_INT32 = 1 << 40"),
        (
            "rows are published without noise",
            "np.float64(np.int64(sums[t, j]) + noise[t, j])",
            "np.float64(np.int64(sums[t, j]))",
        ),
    ),
    *_faults(
        _in("mixer", "test_mixer.py"),
        (
            "rows are divided by the actual number of records",
            "divisor = grid.scale * unit * self.config.divisor",
            "divisor = grid.scale * unit * self.config.sampling_prob * self._records.count",
        ),
        (
            "every block has the same noise",
            'stream = self._stream(f"{side}-noise", block=block.index)',
            'stream = self._stream(f"{side}-noise")',
        ),
    ),
    *_faults(
        _in(
            "noise",
            "test_noise.py::test_what_is_drawn_is_a_hair_larger_than_what_is_accounted_for",
            "test_noise.py::test_large_scales_are_normal",
            "test_noise.py::test_small_scales_follow_the_rounded_gaussian",
            "test_noise.py::test_exact_decisions_agree_with_fast_ones",
        ),
        (
            "the noise is 3 per cent too small",
            "unit = stddev / 32.0 * 2.0**-32",
            "unit = stddev / 33.0 * 2.0**-32",
        ),
        (
            "noise is positive",
            "negative = -np.int64((word >> np.uint64(48)) & np.uint64(1))",
            "negative = np.int64(0)",
        ),
        (
            "noise is rounded down",
            "magnitude = np.int64(whole) + (1 if fraction > 0.5 else 0)",
            "magnitude = np.int64(whole)",
        ),
        (
            "the rounding allowance is dropped",
            "return noise_multiplier * sensitivity * _ROUNDING_ALLOWANCE",
            "return noise_multiplier * sensitivity",
        ),
    ),
    *_faults(
        _in("mechanism/mixtures", "mechanism/test_mixtures.py"),
        (
            "labels cost nothing",
            "return 1 / math.sqrt(feature_change / feature**2 + label_part)",
            "return 1 / math.sqrt(feature_change / feature**2)",
        ),
        (
            "replacing a record counts like adding one",
            'return 4.0, 4.0 if target == "regression" else 2.0',
            "return 1.0, 1.0",
        ),
        (
            "numbers as labels count like classes",
            'return 4.0, 4.0 if target == "regression" else 2.0',
            "return 4.0, 2.0",
        ),
        (
            "labels have the features' noise",
            'no label noise")\n        return self.label_noise_multiplier',
            'no label noise")\n        return self.feature_noise_multiplier',
        ),
        (
            "half of the rows are charged",
            "count=self.rows_per_class or self.eligible_rows or self.num_mixtures",
            "count=self.rows_per_class or self.eligible_rows or self.num_mixtures // 2",
        ),
        (
            "a record that enters many rows is charged for one",
            "rows_per_record=self.rows_per_record,",
            "rows_per_record=1,",
        ),
        (
            "the class that is open most often is charged for all",
            "return min(self.class_prob)",
            "return max(self.class_prob)",
        ),
        (
            "classes with probabilities of their own may be balanced",
            'self.eligibility, ("random",)',
            'self.eligibility, ("random", "balanced")',
        ),
    ),
    *_faults(
        _in(
            "accounting/pld/bounds",
            "accounting/pld/test_bounds.py::test_what_lies_beyond_the_lattice_counts_as_lost",
            "accounting/pld/test_bounds.py::test_one_step_deltas_against_numerical_integration_in_both_directions",
            "accounting/pld/test_bounds.py::test_both_directions_of_neighbours_count",
        ),
        (
            "the upper bound forgets lost tail mass",
            "return min(finite + composition.lost, 1.0) if upper else finite",
            "return min(finite, 1.0) if upper else finite",
        ),
        (
            "an eligible step is rarer than it is",
            "return SampledStep(pair, event.eligible_prob)",
            "return SampledStep(pair, event.eligible_prob**2)",
        ),
    ),
    *_faults(
        _in(
            "accounting/pld/lattice",
            "accounting/pld/test_bounds.py::test_one_step_deltas_against_numerical_integration_in_both_directions",
        ),
        (
            "mass moves to the wrong lattice point",
            "summed(index + 1, step.share * cells.mass * up, size)",
            "summed(index, step.share * cells.mass * up, size)",
        ),
    ),
    *_faults(
        _in(
            "accounting/pld/pairs",
            "accounting/pld/test_bounds.py::test_one_step_deltas_against_numerical_integration_in_both_directions",
        ),
        (
            "the folded half of a signed step is forgotten",
            "    weight: float = 2.0\n",
            "    weight: float = 1.0\n",
        ),
    ),
    *_faults(
        _in(
            "accounting/pld/composition",
            "accounting/pld/test_bounds.py::test_both_directions_of_neighbours_count",
        ),
        (
            "one direction of neighbours is forgotten",
            "return self, self.reversed()",
            "return (self.reversed(),)",
        ),
    ),
    *_faults(
        _in(
            "accounting/pld/composition",
            "accounting/pld/test_bounds.py::test_errors_of_the_transform_widen_both_bounds",
        ),
        (
            "round-off is not added to the upper bound",
            "total = float(gain.sum()) + (error if upper else -error)",
            "total = float(gain.sum())",
        ),
    ),
    *_faults(
        _in(
            "accounting/rdp",
            "accounting/test_rdp.py::test_poisson_agrees_with_dp_accounting",
            "accounting/test_rdp.py",
        ),
        (
            "the conversion to epsilon has a wrong sign",
            "bound = rdp_curve(event) + np.log1p(-1.0 / ORDERS)",
            "bound = rdp_curve(event) - np.log1p(-1.0 / ORDERS)",
        ),
        (
            "the moments of a sampled step are Gaussian at order one less",
            "moments = k * (k - 1.0) / (2.0 * noise_multiplier**2)",
            "moments = k * (k - 2.0) / (2.0 * noise_multiplier**2)",
        ),
        (
            "fractional orders leave one side of the integral out",
            "total = np.logaddexp(sum_below, sum_above)",
            "total = sum_below",
        ),
    ),
    *_faults(
        _in(
            "accounting/accountants",
            "accounting/test_accountants.py::test_the_central_limit_never_certifies",
            "accounting/test_accountants.py::test_golden_values",
        ),
        (
            "an approximation certifies",
            "uppers = [r.upper for r in readings if r is not None and r.upper is not None]\n    if not",
            "uppers = [r.epsilon for r in readings if r is not None and r.epsilon is not None]\n    if not",
        ),
        (
            "the central limit is called a guarantee",
            "return Reading(epsilon=epsilon, guarantee=exact, lower=bound, upper=bound)",
            "return Reading(epsilon=epsilon, guarantee=True, lower=bound, upper=bound)",
        ),
    ),
    *_faults(
        _in(
            "accounting/calibrate",
            "accounting/test_calibrate.py::test_other_events",
            "accounting/test_calibrate.py::test_random_configs_land_at_or_just_below_the_target",
        ),
        (
            "the search stops above the target",
            "            if excess <= limit:\n                safe, safe_excess",
            "            if excess <= limit + 0.02:\n                safe, safe_excess",
        ),
    ),
    *_faults(
        _in(
            "accounting/group",
            "accounting/test_group.py::test_gaussian_groups_are_exact",
            "accounting/test_group.py::test_sampled_groups_are_covered",
        ),
        (
            "delta of a chain does not grow with epsilon",
            "return (size - 1) * epsilon + math.log(ratio)",
            "return math.log(ratio)",
        ),
        (
            "a group moves a Gaussian by the root of its size",
            "part.noise_multiplier / size}",
            "part.noise_multiplier / math.sqrt(size)}",
        ),
    ),
    *_faults(
        _in("inputs/owners", "inputs/test_owners.py"),
        (
            "an owner keeps one record too many",
            "key=lambda i: (hash_of(i), i))[:max_records]",
            "key=lambda i: (hash_of(i), i))[: max_records + 1]",
        ),
        (
            "which records take part can be recomputed without the key",
            "digest_size=_DIGEST_BYTES, key=key\n",
            'digest_size=_DIGEST_BYTES, key=b""\n',
        ),
    ),
    *_faults(
        _in("features/extraction", "features/test_extraction.py"),
        (
            "texts run together in the key of a part",
            'hasher.update(b"text %d;" % len(text) + text)',
            "hasher.update(text)",
        ),
        (
            "parts of another extractor are taken over",
            "    hasher = hashlib.sha256(context)\n",
            "    hasher = hashlib.sha256()\n",
        ),
    ),
    *_faults(
        _in("mechanism/residual", "rounds/test_residuals.py"),
        (
            "rounds have half of their noise",
            "noise_stddev(self.noise_multiplier, self.residual_grid.sensitivity * sensitivity)",
            "noise_stddev(self.noise_multiplier / 2, self.residual_grid.sensitivity * sensitivity)",
        ),
        (
            "one round is charged for all",
            "GaussianEvent(noise_multiplier=self.noise_multiplier, count=self.num_rounds)",
            "GaussianEvent(noise_multiplier=self.noise_multiplier, count=1)",
        ),
    ),
    *_faults(
        _in("running/finished", "features/test_extraction.py"),
        (
            "others may read the parts",
            "hashlib.sha256(content).digest() + content, mode=0o600)",
            "hashlib.sha256(content).digest() + content)",
        ),
    ),
    *_faults(
        _in("learners/base", "learners/test_base.py"),
        (
            "test records are hardly clipped",
            "return clipped(matrix, self.feature_clip_norm_)",
            "return clipped(matrix, 1000 * self.feature_clip_norm_)",
        ),
    ),
    *_faults(
        _in(
            "theory/spectrum",
            "learners/test_noise_aware.py::test_weights_become_consistent_where_the_uncorrected_ones_stay_biased",
            "learners/test_noise_aware.py",
        ),
        (
            "the noise stays in the covariance",
            "signal = np.maximum(shrink_eigenvalues(eigenvalues[keep], num_rows) - noise, 0)",
            "signal = np.maximum(shrink_eigenvalues(eigenvalues[keep], num_rows), 0)",
        ),
    ),
    *_faults(
        _in("learners/moments", "learners/test_moments.py"),
        (
            "class means are said to be noisier than they are",
            "return means, release.feature_noise_stddev**2 * num_classes / release.num_mixtures",
            "return means, release.feature_noise_stddev**2 * num_classes",
        ),
    ),
    *_faults(
        _in(
            "dpsgd/grid",
            "dpsgd/test_grid.py",
            "dpsgd/test_linear_head.py::test_rounding_down_adds_a_point_in_each_entry_to_the_sensitivity",
            "dpsgd/test_gradients.py::test_microbatches_have_twice_the_sensitivity",
        ),
        (
            "microbatches have the noise of single records",
            "return SumGrid(units, microbatch_size * clip_norm * units)",
            "return SumGrid(units, clip_norm * units)",
        ),
        (
            "rounding down is not covered",
            "sensitivity = math.ldexp(self.bound, -self.shift) + math.sqrt(self.num_parameters)",
            "sensitivity = math.ldexp(self.bound, -self.shift)",
        ),
    ),
    *_faults(
        _in("clipping", "dpsgd/test_grid.py"),
        (
            "gradients may be twice the norm",
            "(Fraction(clip_norm) * Fraction(units)) ** 2",
            "(2 * Fraction(clip_norm) * Fraction(units)) ** 2",
        ),
    ),
    *_faults(
        _in("dpsgd/linear_head", "dpsgd/test_linear_head.py"),
        (
            "gradients of the head are clipped too late",
            "if factor * longest + slack > bound:",
            "if factor * longest + slack > 2.0 * bound:",
        ),
    ),
    *_faults(
        _in("dpsgd/formed_gradients", "dpsgd/test_linear_head.py"),
        (
            "gradients that are formed are clipped too late",
            "if factor * length > bound:",
            "if factor * length > 2.0 * bound:",
        ),
        (
            "intercepts do not count where gradients are formed",
            "square += part + np.float64(intercepts[c]) * np.float64(intercepts[c])",
            "square += part",
        ),
        (
            "sums of records overflow",
            "_SUM_BITS = 61",
            "_SUM_BITS = 66",
        ),
        (
            "what is held is added twice",
            "    points[:] = 0\n",
            "",
        ),
    ),
    *_faults(
        _in(
            "dpsgd/trainer",
            "dpsgd/test_gradients.py::test_steps_have_noise_and_samples_of_their_own",
            "dpsgd/test_gradients.py::test_noise_is_drawn_for_the_sensitivity_with_the_rounding_allowance",
            "dpsgd/test_training_plan.py::test_no_step_beyond_the_budget",
        ),
        (
            "every step has the same noise",
            'self._key.stream("noise", block=step),',
            'self._key.stream("noise"),',
        ),
        (
            "every step has the same sample",
            'self._key.stream("sample", block=step),',
            'self._key.stream("sample"),',
        ),
        (
            "steps beyond the budget",
            "if not 0 <= step < self.config.num_steps:",
            "if step < 0:",
        ),
        (
            "noise of the clip norm, not of the sensitivity",
            "noise_stddev(config.noise_multiplier, grid.sensitivity),",
            "noise_stddev(config.noise_multiplier, config.clip_norm * grid.scale),",
        ),
    ),
    *_faults(
        _in("dpsgd/training_plan", "dpsgd/test_training_plan.py", "dpsgd/test_trainer.py"),
        ("one step is charged", "            count=num_steps,\n", "            count=1,\n"),
    ),
    *_faults(
        _in("running/ledger_account", "running/test_ledger.py", "running/test_ledger_entries.py"),
        (
            "draws are not looked at",
            "            before.check_run(entry, here)\n            charges",
            "            charges",
        ),
        (
            "the ledger admits 1 per cent over the limit",
            "cost.epsilon_spent > self.epsilon_limit:",
            "cost.epsilon_spent > 1.01 * self.epsilon_limit:",
        ),
        (
            "the ledger refuses a charge that meets the limit",
            "cost.epsilon_spent > self.epsilon_limit:",
            "cost.epsilon_spent >= self.epsilon_limit:",
        ),
        (
            "the ledger forgets what was charged before",
            "events = [*_events(self.charges), event]",
            "events = [event]",
        ),
        ("what is known counts for any mechanism", "if recorded == event:", "if recorded:"),
    ),
    *_faults(
        _in("running/ledger", "running/test_ledger.py", "running/test_ledger_entries.py"),
        (
            "a resumed run is charged twice",
            "(known := before.run(run_id)) is not None:",
            "(known := before.run(run_id)) is not None and False:",
        ),
        (
            "an import believes the costs it is told",
            "_wrong_costs(balances(read_entries(links, position), position)):",
            "_wrong_costs(balances(read_entries(links, position), position)) and []:",
        ),
    ),
    *_faults(
        _in(
            "running/journal",
            "running/test_journal.py::test_the_journal_is_for_its_owner_alone",
            "running/test_journal.py::test_resume_belongs_to_one_plan_and_one_input",
            "running/test_journal.py::test_the_key_is_overwritten_and_never_shown",
            "running/test_ledger.py",
            "publishing/test_verification.py",
        ),
        ("a run goes on with other records", "if facts.context != context:", "if False:"),
        (
            "others may read the key",
            "journal.model_dump_json().encode(), mode=0o600)",
            "journal.model_dump_json().encode())",
        ),
        (
            "the key is not overwritten",
            "file.write(bytes(doomed.stat().st_size))",
            "file.write(b'')",
        ),
        (
            "a run is not charged",
            "    terms.charge(facts.run_id)\n",
            "    pass\n",
        ),
    ),
    *_faults(
        _in("publishing/folder", "publishing/test_verification.py"),
        ("changed files pass", "elif folder.digest(name) != stated[name]:", "elif False:"),
        (
            "added files pass",
            'reasons += [f"{name}: not part of the {what}" for name in sorted(strange)]',
            "reasons += []",
        ),
    ),
    *_faults(
        _in(
            "publishing/signature",
            "publishing/test_verification.py",
            "publishing/test_signature.py",
        ),
        (
            "any digest is the expected one",
            "expected = expect_digest is not None and digest == expect_digest.strip().lower()",
            "expected = expect_digest is not None",
        ),
        (
            "another certificate than the checked one is signed",
            "if digest is not None and hashlib.sha256(content).hexdigest() != digest:",
            "if False:",
        ),
    ),
    *_faults(
        _in("accounting/group", "accounting/test_accountants.py"),
        (
            "what dominates an event bounds it from below",
            "size, is_exact=False)",
            "size, is_exact=True)",
        ),
    ),
    *_faults(
        _in("publishing/verification", "publishing/test_verification.py"),
        (
            "epsilon is not recomputed",
            "        reasons += _guarded(release.certificate.recheck)\n",
            "        pass\n",
        ),
        (
            "rows with half of the noise pass",
            "low = int((moments.row_squares < chi2.ppf(share / num_rows, width)).sum())",
            "low = int((4 * moments.row_squares < chi2.ppf(share / num_rows, width)).sum())",
        ),
    ),
    *_faults(
        _in("attacks/scores", "attacks/test_scores.py"),
        (
            "an attack's threshold lets one more non-member pass",
            "np.sort(self.non_members)[::-1][most]",
            "np.sort(self.non_members)[::-1][most + 1]",
        ),
        (
            "limits of non-members forget that they chose the threshold",
            "clopper_pearson(most, len(self.non_members), tail).high",
            "clopper_pearson(most, len(self.non_members), 0.5).high",
        ),
    ),
    *_faults(
        _in("attacks/rows", "attacks/test_rows.py"),
        (
            "the attack on signed rows takes all signs for positive",
            "ratio = np.logaddexp(u, -u) - np.log(2) if signed else u",
            "ratio = u",
        ),
        (
            "the attack on rows leaves out what a record's own norm costs",
            "log_in + ratio - half",
            "log_in + ratio",
        ),
    ),
    *_faults(
        _in("attacks/shadows", "attacks/test_shadows.py"),
        (
            "all shadows have the same half",
            "mask[random.permutation(len(features))[: len(features) // 2]] = True",
            "mask[: len(features) // 2] = True",
        ),
    ),
    *_faults(
        _in("engine", "attacks/test_broken.py"),
        (
            "a fitted transformer passes for an extractor",
            'and isinstance(getattr(extractor, "identity", None), ExtractorIdentity)',
            "and True",
        ),
    ),
    *_faults(
        _in("auditing/bounds", "auditing/test_bounds.py"),
        (
            "each rate of an audit takes the whole error for itself",
            'each = 1 - (1 - _validate.real("confidence", confidence, above=0.0, below=1.0)) / 2',
            'each = _validate.real("confidence", confidence, above=0.0, below=1.0)',
        ),
        (
            "Clopper and Pearson's bound is the one from below",
            "beta.ppf(confidence, successes + 1, trials - successes)",
            "beta.ppf(confidence, max(successes, 1e-9), trials - successes + 1)",
        ),
    ),
    *_faults(
        _in("auditing/one_run", "auditing/test_one_run.py"),
        (
            "guesses of one run count as independent whatever delta is",
            "return min(1.0, tail + 2 * canaries",
            "return min(1.0, tail + 0 * canaries",
        ),
        (
            "right guesses are added up as wrong ones are",
            "right += i / (guesses - i) * more",
            "right += more",
        ),
    ),
    *_faults(
        _in("auditing/likelihood", "auditing/test_canaries.py"),
        (
            "signed rows are scored by half of what a record's own norm costs",
            "- inverse_square / 2",
            "- inverse_square / 4",
        ),
        (
            "the crowd's number is taken without the canary",
            "above = np.interp(labels - 1.0, self._grid, self._open)",
            "above = np.interp(labels, self._grid, self._open)",
        ),
    ),
    *_faults(
        _in("auditing/audit", "auditing/test_trials.py"),
        ("rows that share their noise pass", "if noise.repeated >", "if noise.repeated < -"),
        (
            "noise that is too small passes",
            "if not low * (1 - 1e-6) <= noise.squares",
            "if not 0 <= noise.squares",
        ),
    ),
    *_faults(
        _in("accounting/risk", "accounting/test_risk.py"),
        (
            "the noise that spends more than the risk is taken",
            "(middle, spent, found) if found <= target else (safe, middle, reached)",
            "(middle, spent, found) if found <= 1.1 * target else (safe, middle, reached)",
        ),
    ),
]
