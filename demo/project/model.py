"""The classifier: 64 pixels in, 10 scores out."""

import torch.nn as nn


def build(hidden):
    return nn.Sequential(
        nn.Linear(64, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )
