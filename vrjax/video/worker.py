"""What runs inside a reading process: one request after the other, until the pipe closes. See `pool` for the format."""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import struct
import sys
from typing import Any, BinaryIO

import numpy as np

from vrjax.errors import InputError, VideoError
from vrjax.video.decoding import probe_file
from vrjax.video.inspection import inspect_here
from vrjax.video.reader import describe, frames_here, patches_here

_GRACE_S = 10.0


def main() -> None:
    """Serve requests from standard input on standard output, until end of file."""
    # Native decoders print to descriptor 1; the replies get a descriptor of their own.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    _send(replies, {"ok": True}, None)
    while True:
        head = requests.read(8)
        if len(head) < 8:
            return
        (length,) = struct.unpack("<Q", head)
        task, subject, options, time_limit_s = pickle.loads(requests.read(length))
        # If the owner is gone and cannot kill this process, it ends itself, even out of a native loop.
        faulthandler.dump_traceback_later(time_limit_s + _GRACE_S, exit=True)
        header, array = _answer(task, subject, options)
        faulthandler.cancel_dump_traceback_later()
        try:
            _send(replies, header, array)
        except BrokenPipeError:
            return


def _answer(task: str, subject: Any, options: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray | None]:
    try:
        if task == "probe":
            info = probe_file(subject)
            return {"ok": True, **describe(info)}, info.timestamps
        if task == "frames":
            return {"ok": True}, frames_here(subject, options["resized"])
        if task == "patches":
            return {"ok": True}, patches_here(subject)
        if task == "inspect":
            return {"ok": True, **inspect_here(subject)}, None
        raise ValueError(f"unknown task {task!r}")
    except VideoError as error:
        return {"ok": False, "kind": error.kind, "message": str(error)}, None
    except InputError as error:
        return {"ok": False, "kind": "bad_option", "message": str(error)}, None
    except MemoryError:
        return {"ok": False, "kind": "out_of_memory", "message": f"{_name(subject)}: does not fit in memory."}, None
    except Exception as error:
        message = f"{_name(subject)}: reading failed ({type(error).__name__}: {error})."
        return {"ok": False, "kind": "unreadable", "message": message}, None


def _name(subject: Any) -> str:
    return subject if isinstance(subject, str) else subject.path


def _send(stream: BinaryIO, header: dict[str, Any], array: np.ndarray | None) -> None:
    if array is not None:
        array = np.ascontiguousarray(array)
        header = {**header, "dtype": array.dtype.name, "shape": list(array.shape)}
    content = json.dumps(header).encode()
    stream.write(struct.pack("<Q", len(content)) + content)
    if array is not None:
        stream.write(array.reshape(-1).view(np.uint8).data)
    stream.flush()
