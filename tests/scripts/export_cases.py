"""Models that the ONNX export must judge rightly.

    python export_cases.py EXPORT_ONNX.PY [CASE…]

Makes small models, runs the export script on each, and checks the evidence. Exits with 1 and says which case
failed.
"""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "true"

import mlflow.pytorch
import numpy as np
import onnxruntime
import torch
import torch.nn as nn
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec

SCRIPT = sys.argv[1]
description = importlib.util.spec_from_file_location("export_onnx", SCRIPT)
export = importlib.util.module_from_spec(description)
description.loader.exec_module(export)
FLOATS = np.random.default_rng(0).random((4, 6), np.float32)
SMALL = {"opset": 20, "dynamic": ["batch"], "parity_batches": [1, 3, 8, 17], "latency_batches": [1], "rtols": [0.0, 1e-3]}
REQUIREMENTS = ["torch"]


class TwoInputs(nn.Module):
    """Ids and weights in, two outputs in a dictionary."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 5)
        self.line = nn.Linear(6, 5)

    def forward(self, ids, weights):
        both = self.table(ids).mean(1) + self.line(weights)
        return {"scores": both, "best": both.argmax(1)}


class Baked(nn.Module):
    """Takes the batch size of the example for a constant: answers other batches in PyTorch too, wrongly in ONNX."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(6, 3)

    def forward(self, x):
        return self.line(x) + torch.zeros(int(np.asarray(x.shape[0])), 3)


class NotANumber(nn.Module):
    def forward(self, x):
        return torch.log(x - 2)


def save(net, folder, inputs, pickle=False):
    if pickle:
        mlflow.pytorch.save_model(net, folder, input_example=inputs, serialization_format="pickle", pip_requirements=REQUIREMENTS)
    else:
        mlflow.pytorch.save_model(
            net,
            folder,
            input_example=inputs,
            signature=ModelSignature(Schema([TensorSpec(inputs.dtype, (-1, *inputs.shape[1:]))])),
            pip_requirements=REQUIREMENTS,
        )


def write_spec(folder, changes):
    spec = {**SMALL, **changes, "model_dir": str(folder), "output": str(folder / "onnx" / "model.onnx")}
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "result.json").unlink(missing_ok=True)
    return str(folder / "spec.json"), str(folder / "result.json")


def run(folder, **changes):
    """The evidence. In this process: importing torch again for each case would take most of the time."""
    spec, result = write_spec(folder, changes)
    export.main(spec, result)
    return json.loads(Path(result).read_text())


def refused(folder, **changes):
    """What the script says when it cannot export, run as runners run it."""
    spec, result = write_spec(folder, changes)
    done = subprocess.run([sys.executable, SCRIPT, spec, result], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 1 and not Path(result).exists(), f"exit code {done.returncode}:\n{done.stdout}"
    return done.stdout


def ran(evidence):
    return {case["batch"] for case in evidence["parity"] if case["error"] is None}


def dynamic_axis(root):
    torch.manual_seed(1)
    save(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).eval(), root, FLOATS)
    evidence = run(root)
    content = (root / "onnx" / "model.onnx").read_bytes()
    assert evidence["sha256"] == hashlib.sha256(content).hexdigest() and evidence["bytes"] == len(content)
    assert ran(evidence) == {1, 3, 8, 17}, evidence["parity"]
    assert all(excess <= 1e-4 for case in evidence["parity"] for _, excess in case["excess"])
    assert all(case["excess"][0] == [0.0, case["max_abs_diff"]] for case in evidence["parity"]), "rtol 0 leaves the difference itself"
    assert evidence["inputs"][0]["shape"] == ["batch", "6"] and evidence["outputs"][0]["shape"] == ["batch", "3"]
    assert len(evidence["latency"][0]["samples_ms"]) >= 200
    assert evidence["provider"] == "CPUExecutionProvider" and onnxruntime.__version__ in evidence["runtime"]
    # The same model with the batch axis frozen at the example's four rows.
    evidence = run(root, dynamic=[], parity_batches=[4, 3], latency_batches=[3])
    assert evidence["inputs"][0]["shape"] == ["4", "6"], evidence["inputs"]
    assert ran(evidence) == {4}, evidence["parity"]
    error = next(case["error"] for case in evidence["parity"] if case["batch"] == 3)
    assert "batch of 3" in error, error
    assert evidence["latency"][0]["samples_ms"] == []
    for opset in (17, 21):
        assert run(root, opset=opset, parity_batches=[3])["opset"] == opset
    try:
        run(root, dynamic=["length"])
        raise AssertionError("an axis that is not batch was accepted")
    except export.Refused as error:
        assert "length" in str(error), error


def pickled(root):
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.9), nn.Linear(4, 3))
    save(net, root, FLOATS, pickle=True)
    evidence = run(root)
    assert ran(evidence) == {1, 3, 8, 17}
    assert max(case["max_abs_diff"] for case in evidence["parity"]) < 1e-4, "dropout must be off"


def two_inputs(root):
    torch.manual_seed(3)
    example = {"weights": FLOATS, "ids": np.arange(4 * 3).reshape(4, 3) % 10}
    signature = ModelSignature(Schema([TensorSpec(np.dtype(v.dtype), (-1, *v.shape[1:]), name=k) for k, v in example.items()]))
    mlflow.pytorch.save_model(
        TwoInputs().eval(), root, signature=signature, input_example=example, serialization_format="pickle", pip_requirements=REQUIREMENTS
    )
    evidence = run(root)
    assert [(i["name"], i["dtype"]) for i in evidence["inputs"]] == [("ids", "int64"), ("weights", "float32")], evidence["inputs"]
    assert len(evidence["outputs"]) == 2 and len(evidence["parity"]) == 8
    assert ran(evidence) == {1, 3, 8, 17}, evidence["parity"]


def baked(root):
    torch.manual_seed(4)
    sys.modules["__main__"].Baked = Baked
    save(Baked().eval(), root, FLOATS, pickle=True)
    evidence = run(root)
    failed = {case["batch"] for case in evidence["parity"] if case["error"] is not None}
    assert failed == {3, 8, 17} or failed == {1, 3, 8, 17}, evidence["parity"]
    assert all(f"batch of {case['batch']}" in case["error"] for case in evidence["parity"] if case["error"])


def not_a_number(root):
    save(NotANumber().eval(), root, FLOATS)
    evidence = run(root)
    assert all(case["max_abs_diff"] is None and "not finite" in case["error"] for case in evidence["parity"])


def no_model(root):
    assert "MLmodel" in refused(root)


def main():
    failed = []
    cases = (dynamic_axis, pickled, two_inputs, baked, not_a_number, no_model)
    for case in cases:
        if len(sys.argv) > 2 and case.__name__ not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "model"
            if case is no_model:
                root.mkdir()
            try:
                case(root)
                print(f"ok {case.__name__}", flush=True)
            except AssertionError as error:
                failed.append(case.__name__)
                print(f"FAILED {case.__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
