"""Measures one model once, in a process of its own.

Accuracy is that of one seed's model on the held-out digits (the seed is the unit of replication); latency is
that of the exported file, one image at a time, one thread.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import onnxruntime

import data

# A sample is the fastest of several bursts of calls that are spread over some 20 ms, and samples are spread over
# half a second: a neighbour on the same core slows a model of 10 us by half for as long as it runs.
SAMPLES = 25
BURSTS = 10
CALLS = 10
PAUSE = 0.002


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main():
    inputs = Path(os.environ["SLUICE_INPUTS"])
    seed = int(os.environ["SLUICE_SEED"])
    _, _, x, y = data.load()

    model = session(inputs / "train" / "seeds" / f"seed-{seed}.onnx")
    scores = model.run(None, {model.get_inputs()[0].name: x})[0]
    accuracy = float(np.mean(scores.argmax(1) == y))

    model = session(inputs / "export" / "onnx" / "model.onnx")
    feed = {model.get_inputs()[0].name: x[:1]}
    for _ in range(200):
        model.run(None, feed)
    latency = []
    for _ in range(SAMPLES):
        best = float("inf")
        for _ in range(BURSTS):
            time.sleep(PAUSE)
            for _ in range(CALLS):
                started = time.perf_counter()
                model.run(None, feed)
                best = min(best, time.perf_counter() - started)
        latency.append(best * 1e3)

    result = {"accuracy": accuracy, "latency_ms": latency}
    Path(os.environ["SLUICE_BENCH_RESULT"]).write_text(json.dumps(result))
    print(f"seed {seed}: accuracy {accuracy:.4f}, latency {float(np.median(latency)):.4f} ms")


if __name__ == "__main__":
    main()
