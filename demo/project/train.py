"""Trains the digits classifier with data parallelism (gloo) and mixed precision.

    torchrun --standalone --nproc-per-node=2 train.py
    python train.py --precision fp32

The sequence of global batches does not depend on the number of processes: each one takes every
world-size-th row of the batch, and gradients are summed over processes after each loss was divided by the
size of the global batch. So two processes compute what one computes, up to rounding.

Several seeds are trained, because one number says little about a change: seed 0 is the model that is saved
(and whose curves are logged), all of them are written as ONNX for the benchmark.
"""

import argparse
import json
import os
import signal
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import data
import model as architecture

EXIT_STOPPED = 143
"""What a process that ended itself on SIGTERM exits with (128 + 15)."""


class Stopped(Exception):
    """SIGTERM reached some process; all of them leave after the same step."""


class StopFlag:
    def __init__(self):
        self.set = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, *_):
        self.set = True


class Clock:
    """Milliseconds of each part of a step."""

    def __init__(self):
        self.parts = {}

    def measure(self, part, since):
        now = time.perf_counter()
        self.parts[part] = self.parts.get(part, 0.0) + (now - since) * 1e3
        return now


class Tracker:
    """Rank 0's log. Points are sent in batches, so that logging costs little beside steps of a millisecond."""

    FLUSH_STEPS = 50

    def __init__(self):
        import mlflow  # here, because only rank 0 needs it and it takes seconds to load

        self.mlflow = mlflow
        # The job's run: its id is in MLFLOW_RUN_ID.
        self.run_id = mlflow.start_run().info.run_id
        self.client = mlflow.MlflowClient()
        self.pending = []
        self.steps = 0

    def params(self, values):
        self.mlflow.log_params(values)

    def add(self, values, step):
        now = int(time.time() * 1000)
        self.pending += [self.mlflow.entities.Metric(k, float(v), now, step) for k, v in values.items()]
        self.steps += 1
        if self.steps % self.FLUSH_STEPS == 0:
            self.flush()

    def flush(self):
        while self.pending:
            self.client.log_batch(self.run_id, metrics=self.pending[:1000])
            self.pending = self.pending[1000:]

    def end(self, status):
        self.flush()
        self.mlflow.end_run(status)


class NoTracker:
    """Of the other ranks, and of trials without a tracking server."""

    def params(self, values):
        pass

    def add(self, values, step):
        pass

    def flush(self):
        pass

    def end(self, status):
        pass


def summing_hook(clock):
    """Sums a bucket of gradients over the processes, and times it.

    It waits for the sum instead of letting it overlap the rest of the backward pass: these models fit in one
    bucket, so nothing is left to overlap, and the time spent can be told apart."""

    def hook(_state, bucket):
        started = time.perf_counter()
        gradients = bucket.buffer()
        dist.all_reduce(gradients)
        clock.measure("allreduce_ms", started)
        done = torch.futures.Future()
        done.set_result(gradients)
        return done

    return hook


@torch.no_grad()
def accuracy(net, x, y):
    return (net(x).argmax(1) == y).float().mean().item()


def train(seed, params, args, split, stop, tracker, curve):
    """One model. Everything but `tracker` and `curve` is the same on all ranks."""
    rank, world = dist.get_rank(), dist.get_world_size()
    x_train, y_train, x_test, y_test = split
    x_test, y_test = torch.from_numpy(x_test), torch.from_numpy(y_test)
    batch, epochs = params["batch"], params["epochs"]
    steps_per_epoch = len(x_train) // batch
    total = steps_per_epoch * epochs

    torch.manual_seed(seed)
    net = architecture.build(params["hidden"])
    clock = Clock()
    ddp = DistributedDataParallel(net)
    ddp.register_comm_hook(None, summing_hook(clock))
    optimizer = torch.optim.SGD(net.parameters(), lr=params["lr"], momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)

    step = 0
    for epoch in range(epochs):
        order = np.random.RandomState(1000 * seed + epoch).permutation(len(x_train))
        for start in range(0, steps_per_epoch * batch, batch):
            clock.parts = {}
            began = now = time.perf_counter()
            mine = order[start : start + batch][rank::world]
            x, y = torch.from_numpy(x_train[mine]), torch.from_numpy(y_train[mine])
            now = clock.measure("data_ms", now)

            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
                scores = ddp(x)
            # Divided by the global batch: the sum over processes is then the mean over the batch.
            loss = F.cross_entropy(scores.float(), y, reduction="sum") / batch
            now = clock.measure("forward_ms", now)

            optimizer.zero_grad()
            loss.backward()
            now = clock.measure("backward_ms", now)
            clock.parts["backward_ms"] -= clock.parts["allreduce_ms"]

            optimizer.step()
            schedule.step()
            now = clock.measure("optimizer_ms", now)

            # Loss of the whole batch, and whether anybody was asked to stop.
            shared = torch.stack([loss.detach(), torch.tensor(float(stop.set))])
            dist.all_reduce(shared)
            now = clock.measure("allreduce_ms", now)

            if seed == 0:
                elapsed = now - began
                curve.append(shared[0].item())
                tracker.add(
                    {"loss": shared[0].item(), "step_time_ms": elapsed * 1e3, "samples_per_s": batch / elapsed, **clock.parts},
                    step,
                )
            step += 1
            if args.step_delay:
                time.sleep(args.step_delay)
            if shared[1].item() > 0:
                raise Stopped
        if rank == 0:
            reached = accuracy(net, x_test, y_test)
            print(f"seed {seed} epoch {epoch + 1}/{epochs} loss {shared[0].item():.4f} accuracy {reached:.4f}", flush=True)
            if seed == 0:
                tracker.add({"accuracy": reached}, step - 1)
    return net.eval()


def save_onnx(net, path):
    """An evaluation copy for bench.py. The model that is served is exported, and compared, by the export job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # The older exporter takes a tenth of a second, the newer one several; this is a plain network.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            net,
            (torch.zeros(2, 64),),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )


def save_model(net, example, path):
    """The model folder that is registered: loads with `mlflow.pytorch.load_model`, without this project's code."""
    import mlflow.pytorch
    from mlflow.models import infer_signature

    with torch.no_grad():
        scores = net(torch.from_numpy(example)).numpy()
    mlflow.pytorch.save_model(
        net,
        str(path),
        signature=infer_signature(example, scores),
        input_example=example,
        # Given, because working them out loads the model in another Python.
        pip_requirements="requirements.txt",
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--params", default="params.json")
    parser.add_argument("--out", default="out")
    parser.add_argument("--curve", help="write the loss of every step of seed 0 to this file, as JSON")
    parser.add_argument("--step-delay", type=float, default=0.0, help="seconds to wait after each step")
    parser.add_argument("--no-save", action="store_true", help="train only")
    args = parser.parse_args()
    params = json.loads(Path(args.params).read_text())

    stop = StopFlag()
    torch.set_num_threads(1)
    timeout = timedelta(minutes=2)
    if "RANK" in os.environ:
        dist.init_process_group("gloo", timeout=timeout)
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    rank, world = dist.get_rank(), dist.get_world_size()

    tracker = Tracker() if rank == 0 and "MLFLOW_TRACKING_URI" in os.environ else NoTracker()
    tracker.params({**params, "precision": args.precision, "seeds": args.seeds, "world_size": world})
    split = data.load()
    x_test, y_test = (torch.from_numpy(part) for part in split[2:])

    curve, out = [], Path(args.out)
    try:
        for seed in range(args.seeds):
            net = train(seed, params, args, split, stop, tracker, curve)
            if rank == 0:
                reached = accuracy(net, x_test, y_test)
                tracker.add({"seed_accuracy": reached}, seed)
                if seed == 0:
                    tracker.add({"test_accuracy": reached}, 0)
                    primary = net
                if not args.no_save:
                    save_onnx(net, out / "seeds" / f"seed-{seed}.onnx")
    except Stopped:
        if rank == 0:
            print("asked to stop: leaving", flush=True)
        tracker.end("KILLED")
        dist.destroy_process_group()
        # The interpreter's own end takes seconds with torch loaded: too long for whoever waits to kill us.
        sys.stdout.flush()
        os._exit(EXIT_STOPPED)
    # No step looks at the flag any more; a signal from here on ends the process at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if stop.set:
        os._exit(EXIT_STOPPED)

    tracker.flush()
    if rank == 0 and not args.no_save:
        save_model(primary, split[2][:4], out / "model")
    if rank == 0 and args.curve:
        Path(args.curve).write_text(json.dumps({"loss": curve, "test_accuracy": accuracy(primary, x_test, y_test)}))
    tracker.end("FINISHED")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
