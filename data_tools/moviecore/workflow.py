"""The workflow as data: roles, what each sees, who speaks when, rounds (MovieCORE, section 3.2 and appendix II.2).

`Workflow()` is the paper's, in our own words; `vrjax-data moviecore annotate --write-workflow FILE` writes it to be
edited. Things that can be seen: `data_info`, `pairs` (the writer's latest), and the latest words of any other role.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vrjax.errors import InputError
from vrjax.records import first_problem, load_json

GIVEN = ("data_info", "pairs")


class Role(BaseModel):
    """One speaker. model: `strong` or `small`. prompt: its system message."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: Literal["strong", "small"]
    prompt: str


class Step(BaseModel):
    """One message. task: what the role is told to do now. sees: names, in the order in which they are shown.

    reply: `pairs` replaces the pairs, `text` is kept under the role's name, `caption` is the clip's caption, `none` is
    a message that the role passes on without a model (the master of ceremonies opening).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    role: str
    to: str
    task: str
    sees: tuple[str, ...]
    reply: Literal["pairs", "text", "caption", "none"] = "text"


WRITER = (
    "You write questions about film clips that need slow, deliberate thought: why, why not, how, what follows from it, "
    "what it means to those who take part. From what is known about a clip, and from its plain questions, you make at "
    "most five pairs of question and answer. Each stays with what this clip shows and names scenes, people and things "
    "of it; an answer gives its reasons in two to five sentences. Nothing is invented."
)
CRITIC = (
    "You lead a discussion between specialists about questions on a film clip. You pass the questions to them, weigh "
    "what they say, and give the writer one clear list of changes, pair by pair. You insist that everything agrees "
    "with what is known about the clip."
)
RESEARCHER = (
    "You are a sceptical researcher. You check each question and answer against what is known about the clip: is it "
    "about this clip, is it true, which scene shows it? You question assumptions and ask for concrete evidence. Be "
    "brief and to the point."
)
DETECTIVE = (
    "You are a detective. You look behind the questions for causes, motives and bias that they miss, and suggest "
    "further questions that would bring them out. Suggest only what the clip can answer. Be brief."
)
META_REVIEWER = (
    "You review the reviewers. You gather what the sceptical researcher and the detective said, drop what is "
    "speculative or not borne out by the clip, and say how each pair of question and answer is to be improved."
)
CAPTION_WRITER = (
    "You write the caption of a film clip: one paragraph of three to six sentences on what happens, who takes part and "
    "what it is about, true to what is known about the clip."
)


def _rounds() -> tuple[Step, ...]:
    return (
        Step(role="skeptical_researcher", to="critic", sees=("data_info", "pairs"),
             task="Check these pairs of question and answer."),
        Step(role="detective", to="critic", sees=("data_info", "pairs"),
             task="Suggest questions that uncover causes, motives or bias."),
        Step(role="meta_reviewer", to="critic", sees=("data_info", "pairs", "skeptical_researcher", "detective"),
             task="Sum up the reviews, and say how the pairs are to be improved."),
        Step(role="critic", to="writer", sees=("pairs", "skeptical_researcher", "detective", "meta_reviewer"),
             task="Give the writer the list of changes."),
        Step(role="writer", to="critic", sees=("data_info", "pairs", "critic"), reply="pairs",
             task="Refine your pairs by these changes. Keep to at most five."),
    )  # fmt: skip


class Workflow(BaseModel):
    """opening: once a clip, to the first pairs, which are the single-pass version. round: repeated `rounds` times."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rounds: Annotated[int, Field(ge=0, le=10)] = 1
    most_pairs: Annotated[int, Field(ge=1, le=20)] = 5
    roles: dict[str, Role] = {
        "critic": Role(model="small", prompt=CRITIC),
        "writer": Role(model="strong", prompt=WRITER),
        "skeptical_researcher": Role(model="small", prompt=RESEARCHER),
        "detective": Role(model="small", prompt=DETECTIVE),
        "meta_reviewer": Role(model="strong", prompt=META_REVIEWER),
        "caption_writer": Role(model="small", prompt=CAPTION_WRITER),
    }
    opening: tuple[Step, ...] = (
        Step(role="critic", to="writer", sees=("data_info",), reply="none",
             task="Write pairs of question and answer that need deliberate thought."),
        Step(role="writer", to="critic", sees=("data_info",), reply="pairs",
             task="Write pairs of question and answer that need deliberate thought."),
    )  # fmt: skip
    round: tuple[Step, ...] = Field(default_factory=_rounds)
    closing: tuple[Step, ...] = (
        Step(role="caption_writer", to="critic", sees=("data_info",), reply="caption", task="Write the caption."),
    )

    @model_validator(mode="after")
    def _holds_together(self) -> Workflow:
        said: set[str] = {"data_info"}
        for step in (*self.opening, *self.round, *self.closing):
            for name in (step.role, step.to):
                if name not in self.roles:
                    raise ValueError(f"the role {name!r} is not among the roles {sorted(self.roles)}")
        for step in self.steps:
            for name in step.sees:
                if name not in said:
                    raise ValueError(f"{step.role} sees {name!r} before anybody has said it")
            if step.reply == "pairs":
                said.add("pairs")
            elif step.reply == "text":
                said.add(step.role)
        if not any(step.reply == "pairs" for step in self.opening):
            raise ValueError("no step of the opening writes pairs")
        return self

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.opening, *self.round * self.rounds, *self.closing)


def load_workflow(path: Path) -> Workflow:
    """A workflow that a person edited. Raises InputError naming the field."""
    try:
        return Workflow.model_validate(load_json(path))
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}. Correct the workflow.") from error
