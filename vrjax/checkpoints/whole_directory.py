"""Directories that appear whole or not at all, and the sentence for a full disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vrjax.errors import InputError, RunError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# How the same three read where a library passes on only their text.
NO_ROOM_TEXTS = tuple(os.strerror(number) for number in NO_ROOM)


def is_out_of_room(error: BaseException) -> bool:
    """Whether the error, or one that caused it, says that the disk, the quota or the file size limit is used up."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in NO_ROOM:
            return True
        if any(text in str(seen) for text in NO_ROOM_TEXTS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def out_of_room(path: Path, left: str) -> RunError:
    return RunError(f"{path}: there is no room left to write. {left} Free some space, then start again.")


@contextmanager
def whole_directory(target: Path) -> Iterator[Path]:
    """Yield an empty directory beside `target` that takes its name at the end; on any error it is removed.

    Raises InputError where `target` exists and is not an empty directory or cannot be made, RunError where the disk
    is full.
    """
    target = Path(target)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{target}: already exists and is not an empty directory. Name another, or delete it first.")
    partial = target.parent / f".{target.name}.partial-{os.getpid()}"
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be made ({error.strerror}). Name another directory.") from error
    try:
        yield partial
        os.replace(partial, target)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and is_out_of_room(error):
            raise out_of_room(target, "Nothing was left behind.") from error
        raise
