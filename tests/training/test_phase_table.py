"""The table of phases, by hand."""

import pytest

from vrjax.device_rates import DeviceRates
from vrjax.training.phase_table import as_json, as_markdown, phases_of, table_rows

RATES = DeviceRates(flops=1e12, bandwidth=1e9, size=1024, copied=1 << 20)


def test_means_and_shares():
    """Over 2 steps: 4 s of training in all, 8 TFLOP and 2 GB; 1 s of waiting. Two devices of 1 TFLOP/s and 1 GB/s."""
    phases = phases_of({"input": 1.0, "train": 4.0}, {"train": 8e12}, {"train": 2e9}, 2)
    content = as_json(phases, 2, "a <chip>", 2, RATES)
    waiting, train = content["phases"]
    assert (waiting["seconds"], waiting["utilisation"], waiting["bytes"]) == (0.5, None, None)
    assert train["seconds"] == 2.0
    assert train["flops"] == 4e12
    assert train["utilisation"] == pytest.approx(1.0)  # 2 TFLOP/s of 2 · 1
    assert train["bandwidth_utilisation"] == pytest.approx(0.5)  # .5 GB/s of 1, on each device
    assert table_rows(content) == [
        ["input", "0.5000", "20.0%", "", "", "", "", ""],
        ["train", "2.0000", "80.0%", "4", "2", "100.0%", "1", "50.0%"],
    ]
    assert "| train | 2.0000 | 80.0% | 4 | 2 | 100.0% | 1 | 50.0% |" in as_markdown(content)
