"""Stands in for a trainer where SLURM is what is tested: counts steps, saves and leaves on SIGTERM, goes on from there.

python stand_in.py FOLDER STEPS SECONDS_TO_SAVE
"""

import os
import signal
import sys
import time
from pathlib import Path

folder, steps, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
task = os.environ["SLURM_PROCID"]
saved = folder / f"saved_{task}"
asked: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
first = int(saved.read_text()) if saved.exists() else 0
print("starts after step", first, flush=True)
for step in range(first + 1, steps + 1):
    time.sleep(0.1)
    (folder / f"step_{task}").write_text(str(step))
    if asked:
        time.sleep(seconds)
        saved.write_text(str(step))
        print("saved step", step, flush=True)
        sys.exit(0)
print("finished", flush=True)
