"""Which file belongs to an item, in a folder of videos whose endings may be left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Item
from vrjax.video.inspection import VIDEO_SUFFIXES


class VideoFolder:
    """Files below `folder`. An item's `video_file` is looked up as it is, then without its folders, then with any
    ending of a video file.

    Raises InputError where the folder is not there.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder of videos. Give it with --videos.")
        self.folder = folder
        self._listed: dict[Path, dict[str, list[str]]] = {}

    def find(self, item: Item) -> Path | None:
        """The file, or None where there is none. Raises InputError naming files that it could equally be."""
        named = PurePosixPath(item.video_file or item.video)
        for place in dict.fromkeys((self.folder / named, self.folder / named.name)):
            if place.is_file():
                return place
            found = self._by_stem(place.parent).get(_stem(place.name), [])
            if len(found) > 1:
                raise InputError(
                    f"{item.id}: its video could be {' or '.join(sorted(found))} in {place.parent}. Keep one of them."
                )
            if found:
                return place.parent / found[0]
        return None

    def _by_stem(self, folder: Path) -> dict[str, list[str]]:
        if folder not in self._listed:
            names: dict[str, list[str]] = {}
            for name in _files(folder):
                names.setdefault(_stem(name), []).append(name)
            self._listed[folder] = names
        return self._listed[folder]


def _files(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        if os.path.splitext(entry.name)[1].lower() in VIDEO_SUFFIXES and entry.is_file():
            yield entry.name


def _stem(name: str) -> str:
    """The name without the ending of a video file; other dots belong to the name."""
    stem, ending = os.path.splitext(name)
    return stem if ending.lower() in VIDEO_SUFFIXES else name
