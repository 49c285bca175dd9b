"""Floating-point operations of a program, counted from its jaxpr: every loop as often as it runs.

Only products are counted (matrix products and convolutions, 2 for each multiply-add), as is usual where utilisation is
reported (Chowdhery et al. 2022, appendix B); sums, exponentials and moves are not. What the backward pass computes
again (`jax.checkpoint`) is counted again, and so is what a compiler would drop because nobody reads it. Nothing is run
or compiled, and arguments may be shapes (`jax.ShapeDtypeStruct`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from vrjax.errors import InputError

Formula = Callable[[JaxprEqn], float]
# Operations that hide products, or whatever they like, from this count.
OPAQUE = ("custom_call", "ffi_call", "pallas_call", "ragged_dot_general", "tpu_custom_call")


@dataclass(frozen=True)
class FlopRules:
    """kernels: operations of each kernel that has no readable products inside, by the name of its equation (the `name`
    of a `pallas_call`, else the primitive's); none is needed where it declares its own (`cost_estimate`). loop_trips:
    how often loops run whose end the program decides while it runs (decoding until all rows are done); None refuses
    them. A condition costs its largest branch.
    """

    kernels: Mapping[str, Formula] = field(default_factory=dict)
    loop_trips: int | None = None


def count_flops(function: Callable[..., Any], *arguments: Any, rules: FlopRules | None = None) -> float:
    """Operations of `function(*arguments)`, which may be jitted.

    On a mesh they are those of all devices together. Raises InputError for a kernel without a formula, or a loop
    without a known number of turns.
    """
    return jaxpr_flops(jax.make_jaxpr(function)(*arguments), rules)


def jaxpr_flops(program: ClosedJaxpr | Jaxpr, rules: FlopRules | None = None) -> float:
    """The same of a traced program."""
    rules = rules or FlopRules()
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return float(sum(_of_equation(equation, rules) for equation in jaxpr.eqns))


def product_flops(equation: JaxprEqn) -> float:
    """2 · (numbers in the result) · (terms summed for each) of a matrix product."""
    left = _shape(equation.invars[0])
    (contracted, _), _ = equation.params["dimension_numbers"]
    return 2.0 * math.prod(_shape(equation.outvars[0])) * math.prod(left[axis] for axis in contracted)


def convolution_flops(equation: JaxprEqn) -> float:
    """2 · (numbers in the result) · (weights of one output channel): the kernel holds only its group's inputs.

    Counted as if every place of the window lay inside the input, its padding included.
    """
    kernel = _shape(equation.invars[1])
    out_channel = equation.params["dimension_numbers"].rhs_spec[0]
    return 2.0 * math.prod(_shape(equation.outvars[0])) * math.prod(kernel) / kernel[out_channel]


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _of_equation(equation: JaxprEqn, rules: FlopRules) -> float:
    primitive, params = equation.primitive.name, equation.params
    name = str(params.get("name") or primitive) if primitive in OPAQUE else primitive
    if name in rules.kernels:
        return rules.kernels[name](equation)
    if params.get("cost_estimate") is not None:
        return float(params["cost_estimate"].flops)
    if primitive in OPAQUE:
        raise InputError(
            f"the program calls {name!r}, whose operations cannot be read off. Give its formula: FlopRules(kernels="
            f"{{{name!r}: …}})."
        )
    if primitive == "dot_general":
        return product_flops(equation)
    if primitive == "conv_general_dilated":
        return convolution_flops(equation)
    if primitive == "scan":
        return params["length"] * jaxpr_flops(params["jaxpr"], rules)
    if primitive == "while":
        return _of_loop(equation, rules)
    if primitive == "cond":
        return max(jaxpr_flops(branch, rules) for branch in params["branches"])
    if primitive == "shard_map":
        return math.prod(params["mesh"].shape.values()) * jaxpr_flops(params["jaxpr"], rules)
    return sum(jaxpr_flops(inner, rules) for inner in _inner(params))


def _of_loop(equation: JaxprEqn, rules: FlopRules) -> float:
    once = sum(jaxpr_flops(equation.params[part], rules) for part in ("cond_jaxpr", "body_jaxpr"))
    if once == 0:
        return 0.0
    if rules.loop_trips is None:
        raise InputError(
            "the program has a loop that ends when the program says so; how often it runs cannot be read off. Say it: "
            "FlopRules(loop_trips=…)."
        )
    return rules.loop_trips * once


def _inner(params: Mapping[str, Any]) -> list[ClosedJaxpr | Jaxpr]:
    """Programs that an equation calls (jit, checkpoint, custom derivatives), each once."""
    found = []
    for value in params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, ClosedJaxpr | Jaxpr):
                found.append(part)
    return found
