"""The world of the clips: figures, what happens to them, and where everything is at a given time.

A `Script` is the whole truth about one clip. Frames, questions, answers and evidence are read off it, so they cannot
disagree. Lengths are pixels of a canvas 56 wide and 56 high (`render` scales it), times are seconds, and every event
starts and ends on a whole second: at 2 frames a second and a temporal patch of 2 frames, one patch is one second.

    cells of 14 px       the clock owns the four cells marked c;
    c c . .              figures rest in the twelve others
    c c . .
    . . . .
    . . . .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verb = Literal["appears", "slides", "leaves", "touches", "turns"]
Point = tuple[float, float]

COLOURS = ("red", "green", "blue", "yellow")
KINDS = ("circle", "square", "triangle", "cross")
SINGLE_VERBS: tuple[Verb, ...] = ("appears", "slides", "leaves")

CANVAS = 56
CELL = 14
RADIUS = 5.5
TOUCH_DISTANCE = 10.5  # between centres; a little under two radii, so that round figures overlap by a pixel
_FLICKER_S = 0.5  # a figure that turns shows its new and its old colour in turn, half a second each


@dataclass(frozen=True)
class Figure:
    """A coloured shape, named by the colour that it has at the start."""

    colour: str
    kind: str

    @property
    def name(self) -> str:
        return f"the {self.colour} {self.kind}"


@dataclass(frozen=True)
class Event:
    """`subject` does `verb` from `start` (seconds) up to, not including, `end`.

    `target` is the figure that is touched; `colour` is what the subject turns.
    """

    start: int
    end: int
    verb: Verb
    subject: Figure
    target: Figure | None = None
    colour: str | None = None

    @property
    def description(self) -> str:
        if self.verb == "touches" and self.target is not None:
            return f"{self.subject.name} touches {self.target.name}"
        if self.verb == "turns":
            return f"{self.subject.name} turns {self.colour}"
        return f"{self.subject.name} {self.verb}"


@dataclass(frozen=True)
class Actor:
    """A figure, where it rests (centre, pixels), its one event, and where that event takes it."""

    figure: Figure
    home: Point
    event: Event
    goal: Point | None = None


@dataclass(frozen=True)
class Appearance:
    """What one figure looks like at one moment: centre, size relative to full size, and whether it is acting."""

    kind: str
    colour: str
    centre: Point
    scale: float
    acting: bool = False


@dataclass(frozen=True)
class Script:
    """One clip: `duration` in seconds, the actors in drawing order, the events in time order (they never overlap).

    There is exactly one touch; the figure touched turns another colour as soon as the touch ends.
    """

    duration: int
    actors: tuple[Actor, ...]
    events: tuple[Event, ...]

    @property
    def touch(self) -> Event:
        return next(event for event in self.events if event.verb == "touches")

    @property
    def change(self) -> Event:
        return next(event for event in self.events if event.verb == "turns")

    @property
    def singles(self) -> tuple[Event, ...]:
        """The events that neither cause nor follow from another."""
        return tuple(event for event in self.events if event.verb in SINGLE_VERBS)

    def at(self, time: float) -> tuple[Appearance, ...]:
        """The figures to be seen at `time` (seconds), in drawing order."""
        seen = (appearance(actor, time) for actor in self.actors)
        return tuple(figure for figure in seen if figure is not None)


def _between(start: Point, end: Point, share: float) -> Point:
    return (start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)


def appearance(actor: Actor, time: float) -> Appearance | None:
    """What `actor` looks like at `time` (seconds); None while it is not in the picture."""
    event, figure = actor.event, actor.figure
    progress = (time - event.start) / (event.end - event.start)  # < 0 before, in [0, 1) during, ≥ 1 after
    centre, colour, scale = actor.home, figure.colour, 1.0
    if event.verb == "appears":
        if progress < 0:
            return None
        scale = 0.5 + 0.5 * min(progress, 1.0)
    elif event.verb == "leaves":
        if progress >= 1:
            return None
        centre = _between(actor.home, _goal(actor), max(progress, 0.0))
    elif event.verb == "slides":
        centre = _between(actor.home, _goal(actor), min(max(progress, 0.0), 1.0))
    elif event.verb == "touches":
        # There and back in no time: gliding would blur where the touch starts and ends.
        centre = _goal(actor) if 0 <= progress < 1 else actor.home
    elif event.colour is not None and progress >= 0:
        old = progress < 1 and int((time - event.start) / _FLICKER_S) % 2 == 1
        colour = figure.colour if old else event.colour
    return Appearance(figure.kind, colour, centre, scale, acting=0 <= progress < 1)


def _goal(actor: Actor) -> Point:
    if actor.goal is None:
        raise ValueError(f"an actor that {actor.event.verb} needs a goal")
    return actor.goal
