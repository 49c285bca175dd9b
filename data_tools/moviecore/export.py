"""The annotation as files in MovieCORE's form, split by MovieChat's lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Files = dict[str, Any]


def official_files(rows: Iterable[Mapping[str, Any]]) -> Files:
    """File name → content: {train,test}.json and single_pass_{train,test}.json ({"<clip>.mp4": [{question, answer,
    classification}]}), captions.json, and comparison.json with both versions side by side."""
    files: Files = {f"{prefix}{split}.json": {} for prefix in ("", "single_pass_") for split in ("train", "test")}
    files |= {"captions.json": {}, "comparison.json": []}
    for row in rows:
        name = f"{row['clip']}.mp4"
        files[f"{row['split']}.json"][name] = row["refined"]
        files[f"single_pass_{row['split']}.json"][name] = row["single_pass"]
        files["captions.json"][name] = row["caption"]
        files["comparison.json"].append({
            "video": name, "single_pass": row["single_pass"], "refined": row["refined"],
            "changed": row["single_pass"] != row["refined"],
        })  # fmt: skip
    return files


def counts(files: Files) -> dict[str, Any]:
    """Videos and questions of each split, captions, and clips whose refined pairs differ from the single-pass ones."""
    found: dict[str, Any] = {
        split: {"videos": len(files[f"{split}.json"]), "questions": sum(map(len, files[f"{split}.json"].values()))}
        for split in ("train", "test")
    }
    changed = sum(one["changed"] for one in files["comparison.json"])
    return {**found, "captions": len(files["captions.json"]), "refined_differs": changed}
