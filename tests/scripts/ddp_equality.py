"""Two processes compute what one computes, and mixed precision reaches the accuracy that is asked for.

    python ddp_equality.py PROJECT_DIR

Runs the demo project's training and checks:
  1. fp32: every step's loss of the 2-process run is within 1e-4 (relative) of the 1-process run's;
  2. bf16 autocast, 2 processes: at least 0.95 of the held-out digits are right.
Prints the numbers as one line of JSON; exits with 1 when one of them is out of bounds.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOLERANCE = 1e-4
ACCURACY = 0.95


def train(project, folder, name, processes, precision):
    curve = folder / f"{name}.json"
    arguments = ["train.py", "--seeds", "1", "--no-save", "--precision", precision, "--curve", str(curve)]
    if processes > 1:
        arguments = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *arguments]
    # Only this test's own variables: nothing is to be logged anywhere.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")} | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *arguments], cwd=project, env=environment, stdout=sys.stderr, check=True)
    return json.loads(curve.read_text())


def main():
    project = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        one = train(project, Path(folder), "one", 1, "fp32")
        two = train(project, Path(folder), "two", 2, "fp32")
        amp = train(project, Path(folder), "amp", 2, "bf16")
    steps = len(one["loss"])
    difference = max(abs(a - b) / abs(a) for a, b in zip(one["loss"], two["loss"], strict=True))
    # bf16 must really have been used: rounding to 8 bits shows in the curve.
    amp_difference = max(abs(a - b) / abs(a) for a, b in zip(one["loss"], amp["loss"], strict=True))
    found = {
        "steps": steps,
        "loss_relative_difference": difference,
        "loss_relative_difference_limit": TOLERANCE,
        "amp_loss_relative_difference": amp_difference,
        "fp32_accuracy": two["test_accuracy"],
        "amp_accuracy": amp["test_accuracy"],
        "amp_accuracy_limit": ACCURACY,
    }
    print(json.dumps(found))
    ok = steps >= 100 and difference <= TOLERANCE and amp_difference > TOLERANCE and amp["test_accuracy"] >= ACCURACY
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
