"""Which rows a process reads, on meshes of devices that are only numbered; the answers are drawn by hand."""

import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from vrjax.errors import InputError
from vrjax.sharding import MESH_AXES, make_mesh, row_holders, row_share


class Device:
    platform = device_kind = "cpu"

    def __init__(self, number: int, process: int) -> None:
        self.id, self.process_index = number, process


def devices(processes: int, each: int) -> list[Device]:
    return [Device(number, number // each) for number in range(processes * each)]


@pytest.mark.parametrize(
    ("processes", "each", "sizes", "shares"),
    [
        (4, 1, (1, 4, 1, 1), [(0, 4), (1, 4), (2, 4), (3, 4)]),
        (4, 1, (1, 2, 1, 2), [(0, 2), (0, 2), (1, 2), (1, 2)]),  # the tensor axis leaves the process
        (4, 1, (1, 2, 2, 1), [(0, 2), (0, 2), (1, 2), (1, 2)]),
        (4, 1, (1, 1, 1, 4), [(0, 1)] * 4),
        (2, 2, (1, 2, 1, 2), [(0, 2), (1, 2)]),
        (4, 2, (2, 2, 1, 2), [(0, 4), (1, 4), (2, 4), (3, 4)]),
        (4, 2, (2, 1, 1, 4), [(0, 2), (0, 2), (1, 2), (1, 2)]),
        (1, 4, (2, 2, 1, 1), [(0, 1)]),
    ],
)
def test_rows_of_each_process(processes: int, each: int, sizes: tuple[int, ...], shares: list[tuple[int, int]]) -> None:
    mesh = make_mesh(*sizes, devices=devices(processes, each))
    assert [row_share(mesh, process) for process in range(processes)] == shares


@pytest.mark.parametrize(
    ("processes", "each", "sizes", "holders"),
    [
        (4, 1, (1, 4, 1, 1), ()),
        (2, 2, (1, 2, 1, 2), ()),
        (1, 4, (1, 2, 1, 2), ()),
        (4, 1, (1, 2, 1, 2), ((0, 1), (2, 3))),
        (4, 1, (1, 1, 1, 4), ((0, 1, 2, 3),)),
        (4, 2, (2, 1, 1, 4), ((0, 1), (2, 3))),
    ],
)
def test_processes_that_hold_the_same_rows(
    processes: int, each: int, sizes: tuple[int, ...], holders: tuple[tuple[int, ...], ...]
) -> None:
    assert row_holders(make_mesh(*sizes, devices=devices(processes, each))) == holders


def test_rows_that_overlap_in_part_are_refused() -> None:
    """Process 0 holds rows 0 and 1, process 1 rows 1 and 2."""
    grid = np.array([Device(0, 0), Device(1, 0), Device(2, 0), Device(3, 1), Device(4, 1), Device(5, 1)], object)
    mesh = Mesh(grid.reshape(1, 3, 1, 2), MESH_AXES, axis_types=(AxisType.Auto,) * 4)
    with pytest.raises(InputError, match="share a part of them"):
        row_share(mesh, 0)
