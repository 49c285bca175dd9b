"""What a compiled program moves, read from its HLO text: bytes through memory, and bytes between devices.

XLA's own cost analysis takes every loop once; here a loop counts as often as it runs. An instruction moves what it
reads and what it writes. A fusion that only slices one of its inputs reads the slice, and one that updates a part in
place writes the part, as in XLA's analysis; that is how a loop over layers reads one layer's weights at a time.
Arrays that the compiler keeps on the chip (memory spaces S(1) and S(6) of a TPU) move nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

_TYPE_BYTES = {
    "pred": 1, "s4": 0.5, "u4": 0.5, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "s64": 8, "u64": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16, "f8e4m3fn": 1, "f8e5m2": 1,
}  # fmt: skip
_ARRAY = re.compile(r"\b(" + "|".join(sorted(_TYPE_BYTES, key=len, reverse=True)) + r")\[([\d,]*)\](\{[^}]*\})?")
_HEAD = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = ")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|branch_computations|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)')
_GROUPS_LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_GROUPS_SHAPE = re.compile(r"replica_groups=\[(\d+),(\d+)\]")

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
# Instructions that move nothing: they name, group or reinterpret what is there.
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
    "opt-barrier", "while", "conditional", "call", "domain", "iota", "async-start", "async-update",
}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """name, operation and operands; bytes of each array of its result, and those of them that lie in the device's
    memory; what stands behind the operands (of a parameter: its number, of a constant: its value).
    """

    name: str
    operation: str
    operands: tuple[str, ...]
    parts: tuple[float, ...]
    held: tuple[float, ...]
    rest: str
    root: bool

    @property
    def bytes(self) -> float:
        return sum(self.held)

    def called(self) -> dict[str, list[str]]:
        """Computations that it names, by the role that it gives them."""
        found: dict[str, list[str]] = defaultdict(list)
        for role, names in _CALLED.findall(self.rest):
            found[role] += [name.strip().lstrip("%") for name in names.strip("{}").split(",") if name.strip()]
        return found


@dataclass
class Traffic:
    """bytes: through a device's memory; counts and sent: calls and bytes of each kind of collective, a device."""

    bytes: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)

    def add(self, other: Traffic, times: float) -> None:
        self.bytes += times * other.bytes
        for kind in other.counts:
            self.counts[kind] += times * other.counts[kind]  # pyright: ignore[reportArgumentType]
            self.sent[kind] += times * other.sent[kind]  # pyright: ignore[reportArgumentType]


def read_traffic(text: str, loop_trips: int = 1) -> Traffic:
    """Traffic of one run of a compiled program, for one device. loop_trips: turns of loops that do not say theirs.

    Of a condition's branches the mean is taken.
    """
    computations, entry = parse(text)
    return _Reader(computations, loop_trips).of(entry, inside_fusion=False)


def parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Instructions of every computation, and the name of the one that is run."""
    computations: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    entry = ""
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = computations[head[2]] = []
            if head[1]:
                entry = head[2]
        elif instruction := _instruction(line):
            current.append(instruction)
    return computations, entry


def _instruction(line: str) -> Instruction | None:
    head = _HEAD.match(line)
    if head is None:
        return None
    rest = line[head.end() :]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.find(" ")
    shape, rest = rest[:end], rest[end:].lstrip()
    start = rest.find("(")
    if start < 0:
        return None
    operation, stop = rest[:start], _closing(rest, start)
    operands = tuple(re.findall(r"%([\w.\-]+)", rest[start:stop]))
    behind = rest[start + 1 : stop] if operation in ("parameter", "constant") else rest[stop + 1 :]
    return Instruction(head[2], operation, operands, *_sizes(shape), behind, bool(head[1]))


def _closing(text: str, start: int) -> int:
    """Place of the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return len(text)


def _sizes(shape: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bytes of all arrays of a result, and the same with 0 for those on the chip."""
    parts, held = [], []
    for kind, sizes, layout in _ARRAY.findall(shape):
        parts.append(_TYPE_BYTES[kind] * math.prod(int(size) for size in sizes.split(",") if size))
        held.append(0.0 if "S(1)" in layout or "S(6)" in layout else parts[-1])
    return tuple(parts), tuple(held)


class _Reader:
    def __init__(self, computations: dict[str, list[Instruction]], loop_trips: int) -> None:
        self._computations, self._trips = computations, loop_trips
        self._known: dict[tuple[str, bool], Traffic] = {}

    def of(self, name: str, *, inside_fusion: bool) -> Traffic:
        """Traffic of a computation; inside a fusion only collectives count, the rest stays on the chip."""
        key = name, inside_fusion
        if key not in self._known:
            total = Traffic()
            instructions = self._computations.get(name, [])
            sizes = {one.name: one.bytes for one in instructions}
            whole = {one.name: sum(one.parts) for one in instructions}
            for one in instructions:
                self._enter(one, sizes, whole, total, inside_fusion)
            self._known[key] = total
        return self._known[key]

    def _enter(
        self, one: Instruction, sizes: dict[str, float], whole: dict[str, float], total: Traffic, inside_fusion: bool
    ) -> None:
        kind = one.operation.removesuffix("-start")
        if kind in COLLECTIVES:
            total.counts[kind] += 1
            total.sent[kind] += _sent(kind, one, whole)  # pyright: ignore[reportArgumentType]
        called = one.called()
        if one.operation == "while":
            found = _TRIPS.search(one.rest)
            trips = int(found[1]) if found else self._counted(called["condition"]) or self._trips
            for name in called["body"] + called["condition"]:
                total.add(self.of(name, inside_fusion=inside_fusion), trips)
            return
        if one.operation == "conditional":
            branches = called["branch_computations"]
            for name in branches:
                total.add(self.of(name, inside_fusion=inside_fusion), 1 / len(branches))
            return
        fused = one.operation == "fusion"
        for name in called["calls"] + called["called_computations"] + (called["to_apply"] if kind == "call" else []):
            total.add(self.of(name, inside_fusion=inside_fusion or fused), 1)
        if inside_fusion or one.operation in _FREE or one.operation.endswith("-done"):
            return
        total.bytes += self._moved(one, sizes, called["calls"])

    def _counted(self, conditions: list[str]) -> int:
        """Turns of a loop that counts from 0 up to a constant; 0 where it ends in another way."""
        instructions = {one.name: one for name in conditions for one in self._computations.get(name, [])}
        root = next((one for one in instructions.values() if one.root), None)
        if root is None or root.operation != "compare" or "direction=LT" not in root.rest:
            return 0
        limit = instructions.get(root.operands[1])
        return int(limit.rest) if limit is not None and limit.operation == "constant" and limit.rest.isdigit() else 0

    def _moved(self, one: Instruction, sizes: dict[str, float], fused: list[str]) -> float:
        reads = [sizes.get(name, 0.0) for name in one.operands]
        if one.operation.endswith("-start"):
            return sum(reads) + _started(one)
        if one.operation in ("dynamic-slice", "slice", "gather"):
            return one.bytes + min(sum(one.parts), reads[0] if reads else 0.0)
        if one.operation == "dynamic-update-slice":
            return 2 * (reads[1] if len(reads) > 1 else 0.0)
        if one.operation != "fusion" or not fused:
            return one.bytes + sum(reads)
        inside = self._computations.get(fused[0], [])
        return _written(one, inside) + sum(self._read(number, size, inside) for number, size in enumerate(reads))

    def _read(self, number: int, size: float, inside: list[Instruction]) -> float:
        """What a fusion reads of its input `number`: all, or the slices that it takes of it, itself or by a fusion
        within.
        """
        names = {one.name for one in inside if one.operation == "parameter" and _number(one) == number}
        names |= {one.name for one in inside if one.operation == "bitcast" and names & set(one.operands)}
        part = 0.0
        for one in inside:
            if one.name in names or not names & set(one.operands):
                continue
            if one.operation in ("dynamic-slice", "slice", "gather") and one.operands[0] in names:
                part += sum(one.parts)  # wherever the slice itself lies
            elif one.operation == "dynamic-update-slice" and one.operands[0] in names:
                continue  # the rest of it stays where it is
            elif one.operation == "fusion" and (called := one.called()["calls"]):
                within = self._computations.get(called[0], [])
                places = [place for place, name in enumerate(one.operands) if name in names]
                part += sum(self._read(place, size, within) for place in places)
            else:
                return size
        return min(part, size)


def _written(fusion: Instruction, inside: list[Instruction]) -> float:
    root = next((one for one in inside if one.root), None)
    if root is not None and root.operation == "dynamic-update-slice":
        by_name = {one.name: one.bytes for one in inside}
        return min(by_name.get(root.operands[1], fusion.bytes), fusion.bytes)
    return fusion.bytes


def _started(one: Instruction) -> float:
    """What an operation that runs beside others writes: its result names its inputs too, before or behind it."""
    if one.operation == "copy-start" or len(one.held) == 1:
        return one.held[0]
    return one.held[1] if one.operation == "collective-permute-start" else sum(one.held[len(one.held) // 2 :])


def _number(parameter: Instruction) -> int:
    return int(parameter.rest) if parameter.rest.isdigit() else -1


def _sent(kind: str, one: Instruction, sizes: dict[str, float]) -> float:
    """Bytes that a device sends in a ring (Thakur et al. 2005), `whole` being the array over all devices of a group."""
    listed, shaped = _GROUPS_LISTED.search(one.rest), _GROUPS_SHAPE.search(one.rest)
    group = len(listed[1].split(",")) if listed and listed[1] else int(shaped[2]) if shaped else 1
    given = sum(sizes.get(name, 0.0) for name in one.operands)
    if kind == "collective-permute":
        return given
    share = (group - 1) / group
    whole = {"all-gather": given * group, "all-reduce": 2 * given, "reduce-scatter": given, "all-to-all": given}
    return whole[kind] * share
