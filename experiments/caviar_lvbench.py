"""CAViAR on LVBench: agent and critic, or one of the modes that they are compared with.

python -m experiments.caviar_lvbench --data DATA --videos VIDEOS --out runs/caviar_lvbench --llm openai:MODEL

Its rules allow no speech: a run with transcripts is refused. It has no training split, so the critic's examples come
from a list of questions that --held-out leaves out of every score.
"""

from experiments.caviar import Options, run
from experiments.command import run_command
from vrjax.evaluation.benchmarks.lvbench import LvBench

# Percent, with Gemini 1.5 Flash (CAViAR, tables 1 to 5).
PAPER = {
    "direct": 46.0,
    "single_program": 27.1,
    "single_program_best_subset": 43.3,
    "agent": 47.1,
    "agent_best_subset": 59.8,
    "self_evaluation": 39.9,
    "critic": 62.0,
}
PAPER_SUBSET = "get_segment+retrieval_qa"


def main(options: Options) -> int:
    return run(options, LvBench(), "qa", PAPER, PAPER_SUBSET)


if __name__ == "__main__":
    run_command(Options, main, "experiments.caviar_lvbench")
