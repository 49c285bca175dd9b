"""An evaluation in one of several JAX processes: `python -m tests.evaluation.evaluation_process WORLD OUT PORT I N`."""

from __future__ import annotations

import sys
from pathlib import Path


def main(world: Path, out: Path, port: str, process: int, processes: int) -> None:
    import jax

    jax.distributed.initialize(f"localhost:{port}", num_processes=processes, process_id=process)
    from vrjax.evaluation import EvaluationOptions, run
    from vrjax.evaluation.benchmark import Tools
    from vrjax.evaluation.benchmarks.eg_vqa import EgVqa
    from vrjax.evaluation.native_subject import NativeSubject
    from vrjax.evidence import TokenSimilarity
    from vrjax.generation.sampling import SamplingOptions
    from vrjax.loading import load

    sampling = SamplingOptions(max_tokens=12, temperature=0)
    subject = NativeSubject(load(world / "model"), "tiny", EgVqa(), wording="checkpoint", sampling=sampling)
    options = EvaluationOptions(data=world / "test.json", out=out, report_frames=0, progress=False)
    done = run(EgVqa(), subject, options, Tools(similarity=TokenSimilarity()))
    print("scored" if done.score is not None else done.notes[0], flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
