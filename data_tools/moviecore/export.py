"""The annotation as files in MovieCORE's form, split by MovieChat's lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vrjax.errors import InputError

Files = dict[str, Any]


def official_files(rows: Iterable[Mapping[str, Any]], removed: Mapping[str, str | None] | None = None) -> Files:
    """File name → content: {train,test}.json and single_pass_{train,test}.json ({"<clip>.mp4": [{question, answer,
    classification}]}), captions.json, and comparison.json with both versions side by side.

    removed: what people took out, `<clip>.mp4/N` for the N-th refined pair and `<clip>.mp4/caption`, with the question
    that they saw. A clip of which nothing is left stays with an empty list. Raises InputError for a name that nothing
    has, or that is another question's by now.
    """
    removed = removed or {}
    left = set(removed)
    files: Files = {f"{prefix}{split}.json": {} for prefix in ("", "single_pass_") for split in ("train", "test")}
    files |= {"captions.json": {}, "comparison.json": []}
    for row in rows:
        name = f"{row['clip']}.mp4"
        numbered = {f"{name}/{number}": pair for number, pair in enumerate(row["refined"], 1)}
        files[f"{row['split']}.json"][name] = [pair for key, pair in numbered.items() if key not in left]
        files[f"single_pass_{row['split']}.json"][name] = row["single_pass"]
        if f"{name}/caption" not in left:
            files["captions.json"][name] = row["caption"]
        for key, pair in numbered.items():
            if removed.get(key) not in (None, pair["question"]):
                raise InputError(f"{key!r} was removed by people, but is another question by now. Review it again.")
        left -= {*numbered, f"{name}/caption"}
        files["comparison.json"].append({
            "video": name, "single_pass": row["single_pass"], "refined": row["refined"],
            "changed": row["single_pass"] != row["refined"],
        })  # fmt: skip
    if left:
        raise InputError(f"{min(left)!r} was removed by people, but no clip has it. Give this annotation's verdicts.")
    return files


def counts(files: Files) -> dict[str, Any]:
    """Videos and questions of each split, captions, and clips whose refined pairs differ from the single-pass ones."""
    found: dict[str, Any] = {
        split: {"videos": len(files[f"{split}.json"]), "questions": sum(map(len, files[f"{split}.json"].values()))}
        for split in ("train", "test")
    }
    changed = sum(one["changed"] for one in files["comparison.json"])
    return {**found, "captions": len(files["captions.json"]), "refined_differs": changed}
