from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import make_data, make_schema


@pytest.fixture
def files(tmp_path) -> Path:
    schema = make_schema(num_records=400)
    (tmp_path / "schema.json").write_text(schema.model_dump_json())
    x, y = make_data(schema, 400)
    pq.write_table(
        pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 5), "label": y}),
        tmp_path / "train.parquet",
    )
    np.savez(tmp_path / "test.npz", x=x, y=y)
    return tmp_path
