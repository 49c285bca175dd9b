"""CAViAR on ActivityNet-RTL: agent and critic, or one of the modes that they are compared with.

python -m experiments.caviar_rtl --data DATA --videos VIDEOS --out runs/caviar_rtl --llm openai:MODEL

The paper's values are mIoU over questions (`mIoU items`). The critic's examples come from the training file.
"""

from experiments.caviar import Options, run
from experiments.command import run_command
from vrjax.evaluation.benchmarks.activitynet_rtl import ActivityNetRtl

# Percent, with Gemini 1.5 Flash (CAViAR, tables 1 to 5).
PAPER = {"direct": 23.0, "critic": 32.3}
PAPER_SUBSET = "get_segment+find_when"


def main(options: Options) -> int:
    return run(options, ActivityNetRtl(), "localise", PAPER, PAPER_SUBSET)


if __name__ == "__main__":
    run_command(Options, main, "experiments.caviar_rtl")
