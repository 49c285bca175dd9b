"""Draw a random script: which figures, what happens to them, when, and where there is room for it.

Every choice that an answer depends on (colours, kinds, verbs, order, times) is drawn first and evenly; the layout is
then drawn until it fits, so that what fits easily is not what happens more often.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_tools.shapes.world import (
    CANVAS,
    CELL,
    COLOURS,
    KINDS,
    RADIUS,
    SINGLE_VERBS,
    TOUCH_DISTANCE,
    Actor,
    Event,
    Figure,
    Point,
    Script,
    Verb,
    appearance,
)

_JITTER = 0.75  # pixels, each way, of a figure around the middle of its cell
_MOVING_GAP = 12.5  # pixels between the centres of a moving figure and another: over a pixel of daylight
_REST_GAP = 15.0  # pixels between the centres of resting figures: hardly ever side by side unless they touch
_CLOCK_GAP = (34.0, 16.0)  # a centre nearer to the top left corner than this, in x and in y, covers a digit
_SLIDE = 1.2 * CELL  # the shortest slide, pixels
_CELLS = tuple((column, row) for column in range(4) for row in range(4) if column >= 2 or row >= 2)
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1))
_LAYOUT_TRIES = 10_000


def sample_script(rng: np.random.Generator, min_seconds: int = 10, max_seconds: int = 12) -> Script:
    """Draw one clip of `min_seconds` to `max_seconds` whole seconds; at least 8, for room.

    Raises ValueError where the limits allow no story.
    """
    if not 8 <= min_seconds <= max_seconds:
        raise ValueError(f"clip lengths must satisfy 8 <= min <= max seconds, not {min_seconds} and {max_seconds}")
    duration = int(rng.integers(min_seconds, max_seconds + 1))
    singles = int(rng.integers(1, 3))
    events = _sample_events(rng, _sample_figures(rng, 2 + singles), duration)
    return Script(duration, _sample_layout(rng, events, duration), tuple(sorted(events, key=lambda event: event.start)))


def _sample_figures(rng: np.random.Generator, count: int) -> list[Figure]:
    """`count` figures that differ from each other both in colour and in kind, so that either names one."""
    colours = rng.permutation(len(COLOURS))[:count]
    kinds = rng.permutation(len(KINDS))[:count]
    return [Figure(COLOURS[colour], KINDS[kind]) for colour, kind in zip(colours, kinds, strict=True)]


def _sample_events(rng: np.random.Generator, figures: Sequence[Figure], duration: int) -> list[Event]:
    """Touch, change and single events, one a figure, in no order of time; each lasts 1 or 2 s and none overlap.

    Touch and change start anywhere with equal chance, and so do the others in what is left: were the clip filled in
    turn, a guess at the usual second would be right too often.
    """
    toucher, touched, *others = figures
    choices = [colour for colour in COLOURS if colour != touched.colour]
    new_colour = choices[int(rng.integers(len(choices)))]
    touch_s, change_s = _length(rng), _length(rng)
    start = int(rng.integers(duration - touch_s - change_s + 1))
    middle, end = start + touch_s, start + touch_s + change_s
    pair = [
        Event(start, middle, "touches", toucher, target=touched),
        Event(middle, end, "turns", touched, colour=new_colour),
    ]
    verbs: list[Verb] = [SINGLE_VERBS[int(choice)] for choice in rng.integers(len(SINGLE_VERBS), size=len(others))]
    while True:  # two seconds are free in every clip, so that this ends
        taken = set(range(start, end))
        singles: list[Event] = []
        for figure, verb in zip(others, verbs, strict=True):
            seconds = _length(rng)
            earliest = 1 if verb == "appears" else 0  # absent for a second at least before it appears
            free = [t for t in range(earliest, duration - seconds + 1) if taken.isdisjoint(range(t, t + seconds))]
            if not free:
                break
            at = free[int(rng.integers(len(free)))]
            taken.update(range(at, at + seconds))
            singles.append(Event(at, at + seconds, verb, figure))
        if len(singles) == len(others):
            return [*pair, *singles]


def _length(rng: np.random.Generator) -> int:
    return int(rng.integers(1, 3))


def _sample_layout(rng: np.random.Generator, events: Sequence[Event], duration: int) -> tuple[Actor, ...]:
    for _ in range(_LAYOUT_TRIES):
        actors = _try_layout(rng, events, duration)
        if actors is not None:
            return actors
    raise RuntimeError(f"no layout found for {[event.description for event in events]}")


def _try_layout(rng: np.random.Generator, events: Sequence[Event], duration: int) -> tuple[Actor, ...] | None:
    """One random layout, or None where figures would come too close to each other or to the clock at some time."""
    order = rng.permutation(len(_CELLS)).tolist()
    jitter = rng.uniform(-_JITTER, _JITTER, (len(order), 2)).tolist()
    spots = [
        (CELL * (_CELLS[cell][0] + 0.5) + dx, CELL * (_CELLS[cell][1] + 0.5) + dy)
        for cell, (dx, dy) in zip(order, jitter, strict=True)
    ]
    homes = {event.subject: spots[position] for position, event in enumerate(events)}
    free = spots[len(events) :]
    actors = []
    for event in events:
        home, goal = homes[event.subject], None
        if event.target is not None:
            goal = _contact(rng, homes[event.target])
        elif event.verb == "slides":
            goal = free.pop()
            if _distance(home, goal) < _SLIDE:
                return None
        elif event.verb == "leaves":
            goal = _exit(home)
        actors.append(Actor(event.subject, home, event, goal))
    return tuple(actors) if _apart(actors, duration) else None


def _contact(rng: np.random.Generator, touched: Point) -> Point:
    """A place beside `touched`, on one of the sides that are inside the picture."""
    dx, dy = _SIDES[int(rng.integers(len(_SIDES)))]
    if not 0 < touched[0] + dx * CELL < CANVAS:
        dx = -dx
    if not 0 < touched[1] + dy * CELL < CANVAS:
        dy = -dy
    return (touched[0] + dx * TOUCH_DISTANCE, touched[1] + dy * TOUCH_DISTANCE)


def _exit(home: Point) -> Point:
    """The nearest place out of sight: just past the right, bottom, left or top edge."""
    x, y = home
    ways = (
        (CANVAS - x, (CANVAS + RADIUS, y)),
        (CANVAS - y, (x, CANVAS + RADIUS)),
        (x, (-RADIUS, y)),
        (y, (x, -RADIUS)),
    )
    return min(ways)[1]


def _apart(actors: Sequence[Actor], duration: int) -> bool:
    """Whether figures keep their distance at every half second, but for the one touch, and off the clock."""
    for time in (half / 2 for half in range(2 * duration)):
        placed: list[tuple[Actor, Point, bool]] = []
        for actor in actors:
            seen = appearance(actor, time)
            if seen is None:
                continue
            x, y = seen.centre
            if x < _CLOCK_GAP[0] and y < _CLOCK_GAP[1]:
                return False
            moving = actor.event.verb in ("slides", "leaves") and actor.event.start <= time < actor.event.end
            for other, place, other_moving in placed:
                pair = {other.figure, actor.figure}
                if any(
                    event.start <= time < event.end and pair == {event.subject, event.target}
                    for event in (actor.event, other.event)
                ):
                    continue
                if _distance(place, (x, y)) < (_MOVING_GAP if moving or other_moving else _REST_GAP):
                    return False
            placed.append((actor, (x, y), moving))
    return True


def _distance(a: Point, b: Point) -> float:
    return ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) ** 0.5
