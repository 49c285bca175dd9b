import pytest

from tests.rewards.questions import prompt, record, response
from vrjax.rewards import format_reward

E, T, A = "<evidence>x</evidence>", "<think>y</think>", "<answer>z</answer>"


@pytest.mark.parametrize(
    ("text", "want", "fault"),
    [
        (response(), 1, ""),
        (f"{E}{T}{A}", 1, ""),
        (f"\n {E}\n\n{T}\t{A} \n", 1, ""),
        ("<evidence>\na\n\nb\n</evidence><think>c\nd</think><answer>e\nf</answer>", 1, ""),  # blocks of several lines
        (f"{E}{T}{A}{A}", 0, "duplicate_block"),
        (f"{E}{T}{T}{A}", 0, "duplicate_block"),
        (f"{E}{T}<answer><answer>z</answer>", 0, "duplicate_block"),
        (f"{T}{E}{A}", 0, "blocks_out_of_order"),
        (f"{E}{A}{T}", 0, "blocks_out_of_order"),
        (f"{E}{T}", 0, "missing_block"),
        (f"Well: {E}{T}{A}", 0, "text_outside_blocks"),
        (f"{E}{T}{A}.", 0, "text_outside_blocks"),
        (f"{E}{T}<answer>z", 0, "unbalanced_block"),
        (f"{E}<think>y<answer>z</answer></think>", 0, "blocks_out_of_order"),
        ("", 0, "missing_block"),
    ],
)
def test_exactly_one_of_each_in_order(text, want, fault):
    reward = format_reward(prompt(), text, record())
    assert reward.value == want
    assert fault in reward.note
    assert bool(reward.note) == (want == 0)
