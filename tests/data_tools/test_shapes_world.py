"""What the script says is what the file shows."""

import av
import numpy as np
import pytest

from data_tools.shapes.dataset import ClipOptions, DatasetOptions, clip_record, clip_script
from data_tools.shapes.encode import encode_mp4
from data_tools.shapes.render import CLIP_MEAN_RGB, COLOUR_RGB, render
from data_tools.shapes.sampler import sample_script
from data_tools.shapes.world import COLOURS, Actor, Event, Figure, Script, appearance
from vrjax.errors import RunError

OPTIONS = DatasetOptions(train=60, val=0, test=0, seed=3)
RED = Figure("red", "circle")


def decode(path):
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return np.stack([frame.to_ndarray(format="rgb24") for frame in frames]), [frame.time for frame in frames]


def area(frame, colour):
    """Pixels nearer to `colour` than to the other colours, the background and the clock's white."""
    palette = np.array([COLOUR_RGB[colour], CLIP_MEAN_RGB, (255, 255, 255), *(COLOUR_RGB[c] for c in COLOURS)])
    distance = ((frame.astype(float)[:, :, None] - palette) ** 2).sum(-1)
    return int((distance.argmin(-1) == 0).sum())


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """(script, decoded frames) of clips that went through an mp4 file."""
    folder = tmp_path_factory.mktemp("clips")
    found = []
    for number in range(OPTIONS.train):
        script = clip_script(OPTIONS, "train", number)
        encode_mp4(render(script, np.random.default_rng(number)), folder / "clip.mp4", 2)
        frames, times = decode(folder / "clip.mp4")
        assert times == [index / 2 for index in range(2 * script.duration)]
        found.append((script, frames))
    return found


def test_scripts_hold_the_world_s_rules():
    for number in range(OPTIONS.train):
        script = clip_script(OPTIONS, "train", number)
        figures = [actor.figure for actor in script.actors]
        assert len({figure.colour for figure in figures}) == len({figure.kind for figure in figures}) == len(figures)
        assert 10 <= script.duration <= 12
        assert len(script.singles) in (1, 2)
        ends = [0, *(event.end for event in script.events)]
        assert all(0 <= event.start < event.end <= script.duration for event in script.events)
        assert all(event.start >= end for event, end in zip(script.events, ends, strict=False)), "events overlap"
        assert script.touch.target == script.change.subject
        assert script.change.start == script.touch.end
        assert script.change.colour != script.change.subject.colour


@pytest.mark.parametrize("verb", ["appears", "leaves"])
def test_figures_are_out_of_sight_before_they_appear_and_after_they_leave(clips, verb):
    checked = 0
    for script, frames in clips:
        for event in script.singles:
            others = {
                colour
                for other in script.events
                for colour in (other.colour, other.subject.colour)
                if other.subject != event.subject
            }
            if event.verb != verb or event.subject.colour in others:
                continue
            areas = [area(frame, event.subject.colour) for frame in frames]
            during, before, after = (
                areas[2 * event.start : 2 * event.end],
                areas[: 2 * event.start],
                areas[2 * event.end :],
            )
            absent, present = (before, after) if verb == "appears" else (after, before)
            assert max(absent, default=0) <= 4
            assert min(present, default=99) > 25
            assert during[0] > 3
            checked += 1
    assert checked >= 4


def test_the_colour_changes_when_the_change_begins_and_stays(clips):
    checked = 0
    for script, frames in clips:
        change = script.change
        if change.colour in {actor.figure.colour for actor in script.actors}:
            continue
        areas = [area(frame, change.colour) for frame in frames]
        assert max(areas[: 2 * change.start]) <= 4
        assert areas[2 * change.start] > 25
        assert areas[2 * change.start + 1] <= 4, "the old colour comes back in every other half second"
        assert min(areas[2 * change.end :], default=99) > 25
        checked += 1
    assert checked >= 4


def test_only_the_touch_brings_two_figures_together():
    for number in range(OPTIONS.train):
        script = clip_script(OPTIONS, "train", number)
        touch = script.touch
        for half in range(2 * script.duration):
            time = half / 2
            seen = [(actor.figure, appearance(actor, time)) for actor in script.actors]
            close = {
                frozenset((a, b))
                for index, (a, here) in enumerate(seen)
                for b, there in seen[:index]
                if here and there and np.hypot(*np.subtract(here.centre, there.centre)) < 12
            }
            assert close == ({frozenset((touch.subject, touch.target))} if touch.start <= time < touch.end else set())


def test_background_is_near_zero_after_clip_normalisation_and_the_clock_differs_every_second():
    event = Event(1, 3, "appears", RED)
    script = Script(8, (Actor(RED, (49.0, 49.0), event),), (event,))
    frames = render(script, np.random.default_rng(0))
    mean, std = np.array((0.48145466, 0.4578275, 0.40821073)), np.array((0.26862954, 0.26130258, 0.27577711))
    normal = (frames[:, 28:42, :28] / 255 - mean) / std  # between the clock and the corner's digits
    assert abs(normal.mean()) < 0.01
    assert normal.std() < 0.12
    digits = [(frame[:14, :28] > 200).all(-1) for frame in frames]
    assert len({mask.tobytes() for mask in digits}) == 8
    assert all((digits[2 * s] == digits[2 * s + 1]).all() for s in range(8))
    corners = [[(frame[top : top + 14, left : left + 14] > 200).all(-1) for frame in frames[::2]]
               for top, left in ((0, 42), (42, 0))]  # fmt: skip
    seconds = [mask[:, 15:27] for mask in digits[::2]]  # SS of MM:SS
    for masks in corners:  # the same digits as the clock's seconds, a pixel of margin apart
        assert all((mask[:, 0:12] == second).all() for mask, second in zip(masks, seconds, strict=True))
    blank = render(script, np.random.default_rng(0), clock=False)
    assert not (blank[:, :14, :28] > 200).all(-1).any()
    assert not (blank[:, 42:, :14] > 200).all(-1).any()


def test_a_figure_wears_a_ring_exactly_while_it_acts():
    event = Event(2, 4, "slides", RED)
    script = Script(8, (Actor(RED, (21.0, 35.0), event, (21.0, 35.0)),), (event,))
    frames = render(script, np.random.default_rng(0), clock=False)
    white = (frames > 235).all(-1).sum((1, 2))
    assert (white[4:8] > 20).all()
    assert (white[:4] == 0).all()
    assert (white[8:] == 0).all()


def test_hand_made_touch_is_in_contact_exactly_during_its_span():
    blue = Figure("blue", "square")
    touch = Event(2, 4, "touches", RED, target=blue)
    actor = Actor(RED, (49.0, 7.0), touch, (38.5, 35.0))
    spots = [appearance(actor, time).centre for time in (0, 1.5, 2, 3.99, 4, 7)]
    assert spots == [(49.0, 7.0), (49.0, 7.0), (38.5, 35.0), (38.5, 35.0), (49.0, 7.0), (49.0, 7.0)]
    assert touch.description == "the red circle touches the blue square"


def test_a_slide_moves_evenly_and_a_larger_frame_shows_the_same():
    slide = Event(1, 3, "slides", RED)
    actor = Actor(RED, (49.0, 7.0), slide, (49.0, 49.0))
    assert [appearance(actor, time).centre[1] for time in (0, 1, 2, 3, 9)] == [7, 7, 28, 49, 49]
    script = Script(8, (actor,), (slide,))
    small = render(script, np.random.default_rng(0), clock=False).astype(float)
    large = render(script, np.random.default_rng(0), size=112, clock=False).astype(float)
    shrunk = large.reshape(16, 56, 2, 56, 2, 3).mean((2, 4))
    assert np.abs(small - shrunk).mean() < 8
    with pytest.raises(ValueError, match="multiple of 56"):
        render(script, np.random.default_rng(0), size=60)


def test_answers_follow_from_the_script_again():
    """Answers worked out a second time from the annotated segments alone."""
    for number in range(OPTIONS.train):
        record = clip_record(OPTIONS, "train", number)
        said = [text.description.split() for text in record.metadata.segments]
        touch = next(words for words in said if words[3] == "touches")
        change = next(words for words in said if words[3] == "turns")
        for question in record.questions:
            words = question.question.rstrip("?").split()
            asked = question.question
            if asked.startswith("Why"):
                want = f"{' '.join(touch[:3])} touches it"
            elif asked.startswith("What happens"):
                want = f"it turns {change[4]}"
            elif asked.startswith("Would"):
                want = "no" if words[-3:] == touch[:3] else "yes"
            elif asked.startswith("What colour would"):
                want = change[1]
            elif asked.startswith("What colour does"):
                want = change[4]
            elif asked.startswith("What does"):
                want = "it " + next(event[3] for event in said if event[:3] == words[2:5])
            elif " right " in asked:
                known = next(i for i, event in enumerate(said) if " ".join(event) in asked)
                want = " ".join(said[known + (1 if "after" in words else -1)][:3])
            else:
                verb = {"changes": "turns"}.get(words[2], words[2])
                [event] = [event for event in said if event[3] == verb]
                want = " ".join(event[:3])
            assert question.answer == want, (record.video_id, asked)


def test_too_short_a_clip_is_refused_and_a_write_error_names_the_file(tmp_path):
    with pytest.raises(ValueError, match="8 <= min"):
        sample_script(np.random.default_rng(0), 5, 6)
    frames = np.zeros((2, 56, 56, 3), np.uint8)
    with pytest.raises(RunError, match=r"clip\.mp4"):
        encode_mp4(frames, tmp_path / "missing" / "clip.mp4", 2)


def test_eight_second_clips_and_higher_rates_work():
    assert ClipOptions(fps=8, size=112).size == 112
    for seed in range(30):
        script = sample_script(np.random.default_rng(seed), 8, 8)
        assert script.events[-1].end <= 8
    assert render(script, np.random.default_rng(0), fps=8).shape == (64, 56, 56, 3)
