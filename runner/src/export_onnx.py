"""Exports an MLflow PyTorch model folder to ONNX, compares the two, and times ONNX Runtime.

    python export_onnx.py SPEC.json RESULT.json

SPEC: {"model_dir", "output", "opset", "dynamic", "parity_batches", "latency_batches", "rtols"}. `output` is the
file to write. `dynamic` names the axes that may vary; `batch` is axis 0 of every input. RESULT is the evidence
that gates judge (`OnnxEvidence`). A batch that cannot run is a finding, written down with the reason; only a
model that cannot be loaded or exported at all makes this exit with 1.
"""

import hashlib
import inspect
import json
import logging
import math
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

# The model was made by a job of this very commit, which ran its own code on this machine: unpickling what it
# left behind gives it no new power.
os.environ.setdefault("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "true")

import numpy as np
import onnx
import onnxruntime
import torch

LATENCY_WARMUP = 20
LATENCY_SAMPLES = 1000
LATENCY_SECONDS = 3.0
# Slow models go on until a p95 can be read off, but not for ever.
LATENCY_SAMPLES_MIN = 200
LATENCY_SECONDS_MAX = 15.0
# Below this the newer exporter converts its graph down; above 20 the older one does not go.
DYNAMO_MIN_OPSET = 18
LEGACY_MAX_OPSET = 20


class Refused(Exception):
    """Said to the user in one line, without a traceback."""


class Input:
    """What is known about one input of the model, and values for it at any batch size."""

    def __init__(self, name, dtype, shape, example):
        self.name, self.dtype, self.shape, self.example = name, np.dtype(dtype), list(shape), example

    def values(self, batch, random):
        shape = [batch] + self.shape[1:]
        low, high = 0.0, 1.0
        if self.example is not None and self.example.size:
            low, high = float(self.example.min()), float(self.example.max())
        if self.dtype.kind == "f":
            # In the range of the example: a model's answers far outside its data say little.
            if self.example is None or high <= low:
                return random.standard_normal(shape).astype(self.dtype)
            return random.uniform(low, high, shape).astype(self.dtype)
        if self.dtype.kind == "b":
            return random.integers(0, 2, shape).astype(bool)
        # Integers index into tables: stay within what the example shows to be valid.
        return random.integers(int(low), int(high) + 1, shape).astype(self.dtype)


def load(model_dir):
    import mlflow.pytorch
    from mlflow.models import Model

    net = mlflow.pytorch.load_model(model_dir, map_location="cpu") if has_pickle(model_dir) else mlflow.pytorch.load_model(model_dir)
    try:
        net.eval()
    except NotImplementedError:
        pass  # an exported program has no modes: it is what it was when it was exported
    description = Model.load(model_dir)
    return net, inputs_of(net, description, load_example(description, model_dir))


def has_pickle(model_dir):
    return (Path(model_dir) / "data" / "model.pth").exists()


def load_example(description, model_dir):
    """-> None, or input name (None when there is just one, unnamed) -> array."""
    if description.saved_input_example_info is None:
        return None
    example = description.load_input_example(model_dir)
    if isinstance(example, np.ndarray):
        return {None: example}
    if isinstance(example, dict) and all(isinstance(v, np.ndarray) for v in example.values()):
        return example
    return None


def inputs_of(net, description, example):
    parameters = [
        p.name for p in inspect.signature(net.forward).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    signature = description.signature
    if signature is not None and signature.inputs is not None and signature.inputs.is_tensor_spec():
        specs = [(spec.name, spec.type, list(spec.shape)) for spec in signature.inputs.inputs]
    elif example is not None:
        specs = [(name, values.dtype, [-1, *values.shape[1:]]) for name, values in example.items()]
    else:
        raise Refused("the model has neither a tensor signature nor an input example: its inputs are unknown")

    # Inputs are given by position. Named ones go where the names of `forward` say.
    names = [name for name, _, _ in specs]
    if set(names) <= set(parameters):
        specs.sort(key=lambda spec: parameters.index(spec[0]))
    inputs = []
    for position, (name, dtype, shape) in enumerate(specs):
        values = None
        if example is not None:
            values = example.get(name, example.get(None))
        if not shape:
            raise Refused(f"input {name or position} is a scalar: it has no batch axis")
        for axis, size in enumerate(shape[1:], start=1):
            if size != -1:
                continue
            if values is None or axis >= values.ndim:
                raise Refused(f"axis {axis} of input {name or position} has no size, and there is no input example that shows one")
            shape[axis] = values.shape[axis]
        if name is None:
            name = parameters[position] if position < len(parameters) else f"input_{position}"
        inputs.append(Input(name, dtype, shape, values))
    return inputs


def example_batch(inputs, dynamic):
    """Batch size at export. Tracers take 0 and 1 for constants, so an axis that varies needs 2 or more."""
    sizes = [len(i.example) for i in inputs if i.example is not None and i.example.ndim]
    batch = sizes[0] if sizes else 2
    fixed = next((i.shape[0] for i in inputs if i.shape[0] > 0), None)
    if fixed is not None:
        return fixed
    return max(batch, 2) if dynamic else batch


def tensors(arrays):
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)


def flat(outputs):
    """Outputs in the order in which exporters number them."""
    leaves, _ = torch.utils._pytree.tree_flatten(outputs)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


class Unregistered(torch.nn.Module):
    """Keeps the tracing exporter from switching the mode of an exported program, which has none."""

    def __init__(self, net):
        super().__init__()
        self.net = [net.requires_grad_(False)]

    def forward(self, *arguments):
        return self.net[0](*arguments)


def export(net, inputs, spec):
    path, opset, dynamic = spec["output"], spec["opset"], "batch" in spec["dynamic"]
    random = np.random.default_rng(0)
    batch = example_batch(inputs, dynamic)
    arguments = tensors([i.values(batch, random) for i in inputs])
    with torch.no_grad():
        count = len(flat(net(*arguments)))
    input_names = [i.name for i in inputs]
    output_names = ["output"] if count == 1 else [f"output_{n}" for n in range(count)]
    Path(path).parent.mkdir(parents=True, exist_ok=True)

    failed = None
    if opset >= DYNAMO_MIN_OPSET:
        try:
            axis = torch.export.Dim("batch", min=1)
            torch.onnx.export(
                net,
                arguments,
                path,
                dynamo=True,
                external_data=False,
                opset_version=opset,
                input_names=input_names,
                output_names=output_names,
                dynamic_shapes=tuple({0: axis} for _ in inputs) if dynamic else None,
                verbose=False,
            )
            return "torch.export"
        except Exception as error:
            failed = error
            print(f"torch.export cannot export this model ({first_line(error)}); trying the tracing exporter", flush=True)
    if opset > LEGACY_MAX_OPSET:
        raise Refused(f"cannot export: {first_line(failed)}")
    try:
        torch.onnx.export(
            Unregistered(net),
            arguments,
            path,
            dynamo=False,
            opset_version=opset,
            input_names=input_names,
            output_names=output_names,
            dynamic_axes={name: {0: "batch"} for name in input_names + output_names} if dynamic else None,
        )
    except Exception as error:
        if failed is None:
            raise
        raise Refused(f"cannot export: {first_line(failed)}; by tracing: {first_line(error)}") from error
    return "tracing"


def first_line(error):
    # Exporters wrap the reason in advice; it is at the bottom of the chain of causes.
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:500]


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feeds(run, inputs, arrays):
    """The exporter drops inputs that nothing reads."""
    wanted = {node.name for node in run.get_inputs()}
    return {i.name: a for i, a in zip(inputs, arrays) if i.name in wanted}


def compare(reference, found, rtols):
    """Fields of a ParityCase for one output."""
    nothing = {"max_abs_diff": None, "max_rel_diff": None, "excess": []}
    if list(reference.shape) != list(found.shape):
        return {**nothing, "error": f"PyTorch answers shape {list(reference.shape)}, ONNX Runtime {list(found.shape)}"}
    a, b = found.astype(np.float64), reference.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return {**nothing, "error": "values are not finite"}
    difference, size = np.abs(a - b), np.abs(b)
    relative = difference[size > 0] / size[size > 0]
    return {
        "max_abs_diff": float(difference.max(initial=0.0)),
        "max_rel_diff": float(relative.max(initial=0.0)),
        "excess": [[float(r), float((difference - r * size).max(initial=-math.inf)) if difference.size else 0.0] for r in rtols],
        "error": None,
    }


def parity(net, run, inputs, spec):
    cases = []
    names = [node.name for node in run.get_outputs()]
    for batch in spec["parity_batches"]:
        random = np.random.default_rng([7, batch])
        arrays = [i.values(batch, random) for i in inputs]
        error = None
        try:
            with torch.no_grad():
                reference = [t.detach().cpu().to(torch.float64).numpy() for t in flat(net(*tensors(arrays)))]
        except Exception as raised:
            error = f"PyTorch cannot run a batch of {batch}: {first_line(raised)}"
        if error is None:
            try:
                found = run.run(names, feeds(run, inputs, arrays))
            except Exception as raised:
                error = f"ONNX Runtime cannot run a batch of {batch}: {first_line(raised)}"
        if error is None and len(found) != len(reference):
            error = f"PyTorch gives {len(reference)} outputs, the ONNX file {len(found)}"
        for position, name in enumerate(names):
            if error is None:
                case = compare(reference[position], found[position], spec["rtols"])
                if case["error"] is not None:
                    case["error"] = f"batch of {batch}, output {name}: {case['error']}"
            else:
                case = {"max_abs_diff": None, "max_rel_diff": None, "excess": [], "error": error}
            cases.append({"batch": batch, "output": name, **case})
        worst = [c["max_abs_diff"] for c in cases[-len(names) :] if c["max_abs_diff"] is not None]
        print(f"parity, batch {batch}: " + (cases[-1]["error"] or f"largest difference {max(worst, default=0.0):.3g}"), flush=True)
    return cases


def latency(run, inputs, spec):
    cases = []
    for batch in spec["latency_batches"]:
        feed = feeds(run, inputs, [i.values(batch, np.random.default_rng([11, batch])) for i in inputs])
        samples = []
        try:
            for _ in range(LATENCY_WARMUP):
                run.run(None, feed)
            began = time.perf_counter()
            while len(samples) < LATENCY_SAMPLES:
                started = time.perf_counter()
                run.run(None, feed)
                ended = time.perf_counter()
                samples.append((ended - started) * 1e3)
                limit = LATENCY_SECONDS if len(samples) >= LATENCY_SAMPLES_MIN else LATENCY_SECONDS_MAX
                if ended - began > limit:
                    break
            middle = sorted(samples)[len(samples) // 2]
            print(f"latency, batch {batch}: median {middle:.4f} ms of {len(samples)} calls", flush=True)
        except Exception as raised:
            # No samples: a budget for this batch cannot pass.
            samples = []
            print(f"latency, batch {batch}: {first_line(raised)}", flush=True)
        cases.append({"batch": batch, "samples_ms": samples})
    return cases


def tensor_info(value):
    kind = value.type.tensor_type
    return {
        "name": value.name,
        "dtype": np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)).name,
        "shape": [d.dim_param if d.WhichOneof("value") == "dim_param" else str(d.dim_value) for d in kind.shape.dim],
    }


def check(path, opset):
    """-> the model without its weights being kept. Refuses a file that is not what was asked for."""
    try:
        onnx.checker.check_model(path, full_check=True)
    except Exception as error:
        raise Refused(f"the exported file is not valid ONNX: {first_line(error)}") from error
    model = onnx.load(path, load_external_data=False)
    made = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if made != opset:
        raise Refused(f"asked for opset {opset}, the exporter made opset {made}")
    return model


def main(spec_path, result_path):
    spec = json.loads(Path(spec_path).read_text())
    unknown = [name for name in spec["dynamic"] if name != "batch"]
    if unknown:
        raise Refused(f"dynamic axis {unknown[0]!r} is not supported: only batch")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, inputs = load(spec["model_dir"])
    started = time.perf_counter()
    exporter = export(net, inputs, spec)
    print(f"exported by {exporter} in {time.perf_counter() - started:.1f} s", flush=True)
    path = spec["output"]
    model = check(path, spec["opset"])
    content = Path(path).read_bytes()
    run = session(path)
    evidence = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "opset": spec["opset"],
        "uri": "",
        "inputs": [tensor_info(v) for v in model.graph.input],
        "outputs": [tensor_info(v) for v in model.graph.output],
        "parity": parity(net, run, inputs, spec),
        "latency": latency(run, inputs, spec),
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        # The first of the session: a provider that was asked for and is missing is silently replaced.
        "provider": run.get_providers()[0],
    }
    # JSON has no NaN: `allow_nan` makes a slip an error here and not at the server.
    Path(result_path).write_text(json.dumps(evidence, allow_nan=False))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: export_onnx.py SPEC.json RESULT.json")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    # An exported program counts as "in training mode", whatever it was exported from.
    warnings.filterwarnings("ignore", message="Exporting a model while it is in training mode")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        main(sys.argv[1], sys.argv[2])
    except Refused as refused:
        sys.exit(f"export refused: {refused}")
    except Exception:
        traceback.print_exc()
        sys.exit(1)
