"""Objects against a CustomResourceDefinition as an API server holds them against it; a field that it lacks is a fault.

Only what JobSet's definition needs: types, required fields, bounds, patterns, values; no CEL rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def schema_of(definition: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """The schema of one version of a CustomResourceDefinition."""
    found = next(one for one in definition["spec"]["versions"] if one["name"] == version)
    return found["schema"]["openAPIV3Schema"]


def faults(value: Any, schema: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """What is wrong with a value, each fault with the place where it is."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield f"{where}: {value!r} is neither integer nor string"
        elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            yield f"{where}: {value!r} does not match {schema['pattern']}"
        return
    kind = schema["type"]
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{where}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value):
            yield f"{where}: {value!r} does not match {schema['pattern']}"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{where}: {value!r} is too long or too short"
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{where}: has more than {schema['maxItems']} items"
        for index, item in enumerate(value):
            yield from faults(item, schema["items"], f"{where}[{index}]")
    elif isinstance(value, dict):
        yield from _faults_of_fields(value, schema, where)
    elif kind in ("integer", "number") and value < schema.get("minimum", value):
        yield f"{where}: {value} is below {schema['minimum']}"


def _faults_of_fields(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    known, others = schema.get("properties"), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}.{name}: is missing"
    for name, item in value.items():
        if known is not None and name in known:
            yield from faults(item, known[name], f"{where}.{name}")
        elif isinstance(others, Mapping):
            yield from faults(item, others, f"{where}.{name}")
        elif where != ".metadata":  # of that the definition says nothing: the API server checks it by itself
            yield f"{where}.{name}: there is no such field"
