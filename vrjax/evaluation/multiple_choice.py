"""Questions with lettered options: how they are put, read, and scored by accuracy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vrjax.errors import InputError
from vrjax.evaluation.benchmark import Benchmark, BenchmarkScore, Item, ItemScore, Parsed, Prediction, PromptForm, Tools
from vrjax.evaluation.parsing import REVERSED, merge, read_choice, read_spans
from vrjax.evaluation.predictions import Answered, answered, check_labels
from vrjax.evaluation.tally import tally

LETTERS = "ABCDEFGHIJ"
NOT_AN_OPTION = "not an option"

CHOICE = PromptForm(
    name="choice",
    version=1,
    template="{question}\n{options}\nReply with the letter of the right option and nothing else.",
)
CHOICE_AND_MOMENT = PromptForm(
    name="choice and moment",
    version=1,
    template="{question}\n{options}\nChoose the right option, and say when the video shows that it is right. "
    "Reply in two lines:\nAnswer: <letter of the option>\nTime: <start> to <end>, in seconds",
)


def lettered(texts: Sequence[str]) -> dict[str, str]:
    """Options by letter, in order."""
    return dict(zip(LETTERS, texts, strict=False))


def put(prompt: PromptForm, item: Item) -> str:
    """The words of a prompt around a question. Raises InputError where the question's text is not at hand."""
    if not item.question:
        raise InputError(f"question {item.id}: its text is not in the data. Add the file of questions.")
    options = "\n".join(f"({letter}) {text}" for letter, text in item.options.items())
    return prompt.template.format(question=item.question, options=options)


def put_choice(benchmark: Benchmark, item: Item) -> str:
    """`put` for a question that cannot be asked without its options."""
    if not any(item.options.values()):
        raise InputError(f"{benchmark.name}: question {item.id} has no options in the data. Add the file with options.")
    return put(benchmark.prompt, item)


def right(one: Answered) -> float:
    """1 where the choice is that of the reference, else 0."""
    return float(one.choice == one.labels["choice"])


def option_number(one: Answered) -> int | None:
    """The number of the chosen option, from 0; None where there is no choice, or it is no option."""
    return next((number for number, letter in enumerate(one.item.options) if letter == one.choice), None)


def choice_failure(one: Answered) -> str | None:
    """The failure of a prediction, a choice that is no option of the question among them."""
    if one.read.failure is None and one.item.options and one.choice not in one.item.options:
        return NOT_AN_OPTION
    return one.read.failure


def moment_failure(one: Answered) -> str | None:
    """`choice_failure`, a first span that ends before it starts among them."""
    if one.read.failure is None and one.spans[0][0] > one.spans[0][1]:
        return REVERSED
    return choice_failure(one)


@dataclass(frozen=True, kw_only=True)
class MultipleChoice(Benchmark):
    """A benchmark of accuracy alone."""

    headline = "accuracy"
    prompt: PromptForm = CHOICE

    def question(self, item: Item) -> str:
        return put_choice(self, item)

    def parse(self, item: Item, text: str) -> Parsed:
        return read_choice(text, item.options)

    def answered(self, items: Sequence[Item], predictions: Sequence[Prediction]) -> list[Answered]:
        """Each question with its prediction."""
        return answered(self, items, predictions, ("choice",))

    @abstractmethod
    def official(self, pairs: Sequence[Answered]) -> tuple[Mapping[str, float], Sequence[str]]:
        """Values by the authors' rules, and in what they differ from the strict ones."""

    async def score(self, items: Sequence[Item], predictions: Sequence[Prediction], tools: Tools) -> BenchmarkScore:
        check_labels(self, items)
        pairs = self.answered(items, predictions)
        scores = [
            ItemScore(
                id=one.item.id,
                video=one.item.video,
                types=one.item.types,
                values={"accuracy": right(one)},
                failure=choice_failure(one),
            )
            for one in pairs
        ]
        return tally(self, scores, *self.official(pairs))


@dataclass(frozen=True, kw_only=True)
class GroundedChoice(Benchmark):
    """A benchmark of options and of the moments that show which one is right. The first span given counts."""

    prompt: PromptForm = CHOICE_AND_MOMENT

    def question(self, item: Item) -> str:
        return put_choice(self, item)

    def parse(self, item: Item, text: str) -> Parsed:
        return merge(read_choice(text, item.options), read_spans(text))

    def answered(self, items: Sequence[Item], predictions: Sequence[Prediction]) -> list[Answered]:
        """Each question with its prediction."""
        return answered(self, items, predictions, ("choice", "spans"))
