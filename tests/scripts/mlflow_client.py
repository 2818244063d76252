"""Acceptance of the tracking server and model registry with the unmodified MLflow client.

    python mlflow_client.py --url http://127.0.0.1:5000

Imports only packages from PyPI: mlflow, numpy, scikit-learn, torch. Exits with 1 and one line on standard
error at the first thing that is not as it was logged, prints a JSON summary on standard output otherwise.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path

os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

import mlflow  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param, RunTag  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.models import infer_signature  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402


class Mismatch(Exception):
    """What came back is not what was sent."""


def same(what, found, expected):
    if found != expected:
        raise Mismatch(f"{what}: expected {shown(expected)}, found {shown(found)}")


def shown(value):
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


def refused(what, code, call):
    try:
        answer = call()
    except MlflowException as error:
        same(f"{what}: error code", error.error_code, code)
        return
    raise Mismatch(f"{what}: expected the error {code}, got {answer!r}")


def log_run(client, experiment_id, name):
    """Params, 1 000 metric steps, tags and artifacts, and all of them read back."""
    with mlflow.start_run(experiment_id=experiment_id, run_name="client acceptance") as run:
        run_id = run.info.run_id
        mlflow.log_params({"lr": 0.05, "optimizer": "sgd", "long": "x" * 500})
        mlflow.log_param("epochs", 20)
        mlflow.set_tags({"team": "vision", "mlflow.note.content": "acceptance"})
        mlflow.set_tag("unicode", "Größe ≥ 3")
        losses = [1.0 / (step + 1) for step in range(1000)]
        for step in range(0, 500):
            mlflow.log_metric("loss", losses[step], step=step)
        now = int(time.time() * 1000)
        for start in (500, 750):
            points = [Metric("loss", losses[step], now, step) for step in range(start, start + 250)]
            client.log_batch(run_id, metrics=points, params=[Param("batch", "64")], tags=[RunTag("batched", "yes")])
        # a client that did not hear the answer sends the same again
        client.log_batch(run_id, metrics=points, params=[Param("batch", "64")], tags=[RunTag("batched", "yes")])
        mlflow.log_metric("odd", math.nan, step=1)
        mlflow.log_metric("odd", math.inf, step=2)

        mlflow.log_text("hello\n", "notes/hello.txt")
        mlflow.log_dict({"a": [1, 2]}, "config.json")
        with tempfile.TemporaryDirectory() as folder:
            big = Path(folder) / "weights ünïcode 100%.bin"
            content = np.random.default_rng(7).bytes(12 * 1024 * 1024 + 17)
            big.write_bytes(content)
            mlflow.log_artifact(str(big), "data")

    run = client.get_run(run_id)
    same("run status", run.info.status, "FINISHED")
    same("run name", run.info.run_name, "client acceptance")
    same("params", {k: v for k, v in run.data.params.items() if k != "long"},
         {"lr": "0.05", "optimizer": "sgd", "epochs": "20", "batch": "64"})
    same("long param", run.data.params["long"], "x" * 500)
    for key, value in {"team": "vision", "unicode": "Größe ≥ 3", "batched": "yes", "mlflow.runName": "client acceptance"}.items():
        same(f"tag {key}", run.data.tags.get(key), value)
    same("latest loss", run.data.metrics["loss"], losses[-1])
    same("latest odd", run.data.metrics["odd"], sys.float_info.max)
    history = client.get_metric_history(run_id, "loss")
    same("number of points", len(history), 1000)
    for point in history:
        same(f"loss at step {point.step}", point.value, losses[point.step])
    same("NaN in history", [math.isnan(p.value) for p in client.get_metric_history(run_id, "odd")], [True, False])

    same("artifacts", sorted(f.path for f in client.list_artifacts(run_id)), ["config.json", "data", "notes"])
    listed = client.list_artifacts(run_id, "data")
    same("artifact listing", [(f.path, f.is_dir, f.file_size) for f in listed], [("data/weights ünïcode 100%.bin", False, len(content))])
    same("text artifact", mlflow.artifacts.load_text(f"runs:/{run_id}/notes/hello.txt"), "hello\n")
    same("dict artifact", mlflow.artifacts.load_dict(f"runs:/{run_id}/config.json"), {"a": [1, 2]})
    with tempfile.TemporaryDirectory() as folder:
        path = client.download_artifacts(run_id, "data/weights ünïcode 100%.bin", folder)
        if Path(path).read_bytes() != content:
            raise Mismatch("downloaded artifact differs from the uploaded one")

    found = client.search_runs([experiment_id], f"metrics.loss < 0.01 AND params.optimizer = 'sgd' AND tags.team LIKE 'vis%'", order_by=["metrics.loss DESC"])
    same("search", [r.info.run_id for r in found], [run_id])
    refused("changing a param", "INVALID_PARAMETER_VALUE", lambda: client.log_param(run_id, "lr", 0.1))
    refused("unknown run", "RESOURCE_DOES_NOT_EXIST", lambda: client.get_run(uuid.uuid4().hex))
    refused("unknown experiment name", "RESOURCE_ALREADY_EXISTS", lambda: client.create_experiment(name))
    return run_id, len(history), len(content)


def log_models(client, experiment_id, suffix):
    """An sklearn and a PyTorch model: registered, aliased, loaded by alias, same predictions."""
    digits = load_digits()
    images = (digits.data / 16.0).astype(np.float32)
    sk_name, torch_name = f"digits-sklearn-{suffix}", f"digits-torch-{suffix}"

    sk_model = LogisticRegression(max_iter=200).fit(images[:500], digits.target[:500])
    sk_before = sk_model.predict_proba(images[500:600])
    torch.manual_seed(1)
    torch_model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).eval()
    with torch.no_grad():
        torch_before = torch_model(torch.from_numpy(images[500:600])).numpy()

    # named, so that the client does not start a process to find out
    requirements = ["scikit-learn", "torch"]
    with mlflow.start_run(experiment_id=experiment_id, run_name="models") as run:
        dataset = mlflow.data.from_numpy(images[:10], name="digits-head")
        mlflow.log_input(dataset, context="training")
        sk_info = mlflow.sklearn.log_model(
            sk_model, name="sk", input_example=images[:2], registered_model_name=sk_name,
            serialization_format="cloudpickle", pip_requirements=requirements,
        )
        torch_info = mlflow.pytorch.log_model(
            torch_model, name="net", signature=infer_signature(images[:2], torch_before[:2]), registered_model_name=torch_name,
            serialization_format="pickle", pip_requirements=requirements,
        )
        mlflow.log_metric("accuracy", 0.9, step=1, model_id=sk_info.model_id)

    run = client.get_run(run.info.run_id)
    same("dataset inputs", [(d.dataset.name, d.tags[0].value) for d in run.inputs.dataset_inputs], [("digits-head", "training")])
    same("model outputs", sorted(o.model_id for o in run.outputs.model_outputs), sorted([sk_info.model_id, torch_info.model_id]))
    logged = client.get_logged_model(sk_info.model_id)
    same("logged model status", str(logged.status), "READY")
    same("logged model metrics", [(m.key, m.value) for m in logged.metrics or []], [("accuracy", 0.9)])
    found = client.search_logged_models([experiment_id], filter_string="metrics.accuracy > 0.8 AND name = 'sk'")
    same("search of logged models", [m.model_id for m in found], [sk_info.model_id])

    for name, info in ((sk_name, sk_info), (torch_name, torch_info)):
        same(f"version of {name}", str(info.registered_model_version), "1")
        client.set_registered_model_alias(name, "champion", "1")
        client.set_model_version_tag(name, "1", "checked", "yes")
        version = client.get_model_version_by_alias(name, "champion")
        same(f"{name}@champion", (version.version, version.run_id, version.aliases), ("1", run.info.run_id, ["champion"]))
        same(f"tags of {name}", version.tags.get("checked"), "yes")
        same(f"aliases of {name}", client.get_registered_model(name).aliases, {"champion": "1"})

    sk_after = mlflow.sklearn.load_model(f"models:/{sk_name}@champion").predict_proba(images[500:600])
    if not np.array_equal(sk_before, sk_after):
        raise Mismatch("the sklearn model predicts differently after loading by alias")
    with torch.no_grad():
        torch_after = mlflow.pytorch.load_model(f"models:/{torch_name}@champion").eval()(torch.from_numpy(images[500:600])).numpy()
    if not np.array_equal(torch_before, torch_after):
        raise Mismatch("the PyTorch model predicts differently after loading by alias")
    pyfunc = mlflow.pyfunc.load_model(f"models:/{sk_name}/1")
    same("pyfunc predictions", list(pyfunc.predict(images[500:510])), list(sk_model.predict(images[500:510])))

    second = mlflow.register_model(f"models:/{sk_info.model_id}", sk_name)
    same("second version", second.version, "2")
    client.set_registered_model_alias(sk_name, "champion", "2")
    same("moved alias", client.get_model_version_by_alias(sk_name, "champion").version, "2")
    copied = client.copy_model_version(f"models:/{sk_name}/1", f"{sk_name}-copy")
    same("copied version", copied.version, "1")
    copy = mlflow.sklearn.load_model(f"models:/{sk_name}-copy/1")
    if not np.array_equal(sk_before, copy.predict_proba(images[500:600])):
        raise Mismatch("the copied version predicts differently")
    client.delete_model_version(sk_name, "2")
    refused("alias of a deleted version", "INVALID_PARAMETER_VALUE", lambda: client.get_model_version_by_alias(sk_name, "champion"))
    third = mlflow.register_model(f"models:/{sk_info.model_id}", sk_name)
    same("numbers are not used twice", third.version, "3")
    client.set_registered_model_alias(sk_name, "champion", "3")
    refused("reserved alias", "INVALID_PARAMETER_VALUE", lambda: client.set_registered_model_alias(sk_name, "latest", "3"))
    found = client.search_model_versions(f"name = '{sk_name}'", order_by=["version_number DESC"])
    same("search of versions", [v.version for v in found], ["3", "1"])
    found = client.search_registered_models(f"name LIKE 'digits-%{suffix}'", order_by=["name ASC"])
    same("search of registered models", [m.name for m in found], [torch_name, sk_name] if torch_name < sk_name else [sk_name, torch_name])
    return sk_name, torch_name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="URL of the server")
    url = parser.parse_args().url
    started = time.monotonic()
    mlflow.set_tracking_uri(url)
    mlflow.set_registry_uri(url)
    client = MlflowClient()
    suffix = uuid.uuid4().hex[:8]
    name = f"acceptance-{suffix}"
    experiment_id = client.create_experiment(name, tags={"kind": "acceptance"})
    same("experiment by name", client.get_experiment_by_name(name).experiment_id, experiment_id)
    run_id, points, artifact_bytes = log_run(client, experiment_id, name)
    sk_name, torch_name = log_models(client, experiment_id, suffix)
    print(json.dumps({
        "ok": True,
        "mlflow": mlflow.__version__,
        "experiment_id": experiment_id,
        "run_id": run_id,
        "metric_points": points,
        "artifact_bytes": artifact_bytes,
        "models": [sk_name, torch_name],
        "seconds": round(time.monotonic() - started, 1),
    }))


if __name__ == "__main__":
    try:
        main()
    except Mismatch as mismatch:
        print(f"mlflow_client: {mismatch}", file=sys.stderr)
        sys.exit(1)
