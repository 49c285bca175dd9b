"""CAViAR on Neptune: agent and critic, or one of the modes that they are compared with.

python -m experiments.caviar_neptune --data DATA --videos VIDEOS --out runs/caviar_neptune --llm openai:MODEL

Speech matters here: give --transcripts (`vrjax.video.transcript` says in which forms).
"""

from experiments.caviar import Options, run
from experiments.command import run_command
from vrjax.evaluation.benchmarks.neptune import Neptune

# Percent, with Gemini 1.5 Flash (CAViAR, tables 1 to 5).
PAPER = {
    "direct": 51.4,
    "direct_transcript": 74.9,
    "single_program": 28.7,
    "single_program_best_subset": 42.0,
    "agent": 72.5,
    "agent_best_subset": 76.5,
    "critic": 77.2,
}
PAPER_SUBSET = "get_segment+retrieval_qa+asr_understanding"


def main(options: Options) -> int:
    return run(options, Neptune(), "qa", PAPER, PAPER_SUBSET)


if __name__ == "__main__":
    run_command(Options, main, "experiments.caviar_neptune")
