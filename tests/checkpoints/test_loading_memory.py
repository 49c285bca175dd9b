"""Peak host memory while a sharded checkpoint of 2 GB is loaded over 4 fake devices."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vrjax.checkpoints.tensor_files import INDEX, TensorToWrite, write_tensors
from vrjax.loading import abstract_model
from vrjax.models.decoder import DecoderConfig
from vrjax.models.parameters import parameter_table
from vrjax.models.qwen2_5_vl import Qwen2_5VLConfig, VisionConfig

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc"),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint")
    text = DecoderConfig(
        vocabulary=32768, width=2048, layers=6, heads=16, kv_heads=4, head_size=128, mlp=8192, norm_eps=1e-6,
        rope_theta=1e6, tied=False, qkv_bias=True, max_positions=4096, sections=(16, 24, 24),
    )  # fmt: skip
    vision = VisionConfig(
        layers=2, width=256, heads=4, mlp=344, out_width=2048, full_layers=(1,), window=4, tokens_per_second=2
    )
    config = Qwen2_5VLConfig(text, vision, 32000, 32001, 32002, 32003)
    (directory / "config.json").write_text(json.dumps(config.to_json()))
    rng = np.random.default_rng(0)
    wanted = [(name, spec.hf_shape) for spec in parameter_table(abstract_model(config)[1]) for name in spec.hf_names()]
    weight_map = {}
    for number in range(4):
        part, file = wanted[number::4], f"model-{number + 1:05d}-of-00004.safetensors"
        weight_map |= {name: file for name, _ in part}
        tensors = [
            TensorToWrite(name, shape, np.dtype(np.float32), lambda shape=shape: rng.random(shape, np.float32))
            for name, shape in part
        ]
        write_tensors(directory / file, tensors)
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    yield directory
    for file in directory.iterdir():
        file.unlink()


FLAG = "--xla_force_host_platform_device_count"
SCRIPT = Path(__file__).parent / "load_over_four_devices.py"


def test_one_process_with_four_devices(checkpoint):
    """What is held beside the arrays stays below 1.3 times one device's share plus the largest tensor."""
    env = {**os.environ, "XLA_FLAGS": f"{FLAG}=4"}
    done = subprocess.run([sys.executable, SCRIPT, checkpoint], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    print(report)
    assert report["checkpoint"] > 2000
    assert report["share"] < 0.26 * report["checkpoint"]
    assert report["staging"] <= report["limit"]


def test_four_processes_with_a_device_each(checkpoint):
    """As on four hosts: here the limit holds with the arrays counted in."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, SCRIPT, checkpoint, str(process), port], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "XLA_FLAGS": f"{FLAG}=1"},
        )
        for process in range(4)
    ]  # fmt: skip
    try:
        for process in started:
            out, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors[-3000:]
            report = json.loads(out.splitlines()[-1])
            print(report)
            assert report["share"] < 0.26 * report["checkpoint"]
            assert report["resident"] <= report["limit"]
    finally:
        for process in started:
            process.kill()
