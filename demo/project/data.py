"""Handwritten digits (UCI): the 1,797 images of 8 x 8 pixels that scikit-learn ships, split once and for all.

Only numpy is imported: scikit-learn itself takes seconds to load, and all that is needed is its data file.
"""

import importlib.util
from pathlib import Path

import numpy as np

TEST = 450


def load():
    """-> (x_train, y_train, x_test, y_test): pixels as float32 in 0..1, rows of 64; labels as int64."""
    package = Path(importlib.util.find_spec("sklearn").submodule_search_locations[0])
    table = np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",", dtype=np.float32)
    # RandomState's stream is frozen by numpy's compatibility policy: every machine gets the same split.
    order = np.random.RandomState(20260101).permutation(len(table))
    x, y = table[order, :64] / 16, table[order, 64].astype(np.int64)
    return x[TEST:], y[TEST:], x[:TEST], y[:TEST]
