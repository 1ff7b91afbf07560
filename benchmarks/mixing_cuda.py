"""Time to mix 50000 rows of 6144 features on a GPU, and whether its bits are the processor's.

    python benchmarks/mixing_cuda.py [--device cuda] [--json]

``seconds_mixing`` is the time to draw the index sets and add the records up, for all rows, with the
records on the device already; at most 2 s is aimed at on one data-centre GPU. ``seconds_noise`` is
the time of the secure noise, which the processor draws; it is reported apart. ``identical`` says
whether the sums of the first blocks equal those of the compiled kernels. Without a GPU,
``--device cpu`` with smaller sizes runs the same code.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from dask_scaling import mechanism, records
from privmix.backends.cuda import DeviceSums, records_on_device
from privmix.mixer import make_mixers
from privmix.planning.plan import default_threads
from privmix.rng import MasterKey
from privmix.sampling import RowBlock
from stamp import stamp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--num-records", type=int, default=50_000)
    parser.add_argument("--num-features", type=int, default=6144)
    parser.add_argument("--num-mixtures", type=int, default=50_000)
    parser.add_argument("--mix-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=default_threads())
    sizes = parser.parse_args()
    mix = mechanism(sizes.num_records, sizes.num_features, sizes.num_mixtures, sizes.mix_size)
    data = records(sizes.num_records, sizes.num_features)
    key = MasterKey.for_test(0, b"benchmark")
    started = time.perf_counter()
    (there,) = make_mixers(mix, records_on_device(data, sizes.device), key, DeviceSums)
    (here,) = make_mixers(mix, data, key)
    result: dict[str, object] = {"seconds_upload": time.perf_counter() - started}
    blocks = mix.blocks
    identical = all(
        np.array_equal(there.sums(block).features, here.sums(block).features)
        for block in blocks[:3]
    )
    with ThreadPoolExecutor(sizes.threads) as pool:
        started = time.perf_counter()
        for _ in pool.map(lambda block: there.sums(block).features[0, 0], blocks):
            pass
        result["seconds_mixing"] = time.perf_counter() - started

        def noise(block: RowBlock) -> None:
            here.publish(block, here.new_sums(block))

        started = time.perf_counter()
        for _ in pool.map(noise, blocks):
            pass
        result["seconds_noise"] = time.perf_counter() - started
    name = torch.cuda.get_device_name() if sizes.device.startswith("cuda") else sizes.device
    result |= {**stamp(), "identical": identical, "device": name, "sizes": vars(sizes)}
    if sizes.json:
        print(json.dumps(result))
        return
    for entry, value in result.items():
        print(f"{entry:16} {value:.3f}" if isinstance(value, float) else f"{entry:16} {value}")


if __name__ == "__main__":
    main()
