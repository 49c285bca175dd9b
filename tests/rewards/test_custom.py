import asyncio
import inspect

import pytest

from tests.rewards.questions import prompt, record
from vrjax.errors import InputError
from vrjax.rewards import load_reward

GOOD = """
from vrjax.rewards import Reward

def short(prompt, response, record):
    return Reward(float(len(response) < 5))

async def later(prompt, response, record):
    return Reward(0.5, note=record.name)

class Longest:
    def __init__(self, most): self.most = most
    def __call__(self, prompt, response, record): return Reward(float(len(response) <= self.most))

at_most_three = Longest(3)
number = 7
def two(prompt, response): ...
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return path


def test_functions_coroutines_and_objects(path):
    assert load_reward(f"{path}:short")(prompt(), "text", record()).value == 1  # type: ignore[union-attr]
    assert load_reward(f"{path}:at_most_three")(prompt(), "text", record()).value == 0  # type: ignore[union-attr]
    awaited = load_reward(f"{path}:later")(prompt(), "text", record())
    assert inspect.iscoroutine(awaited)
    assert asyncio.run(awaited).note == "v/q1"


def test_files_of_one_name_are_kept_apart(path, tmp_path):
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text("def short(prompt, response, record): return 'other'")
    first, second = load_reward(f"{path}:short"), load_reward(f"{other}:short")
    assert first.__module__ != second.__module__


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("mine.py", "Write it as FILE.py:NAME"),
        ("mine.txt:short", "Write it as FILE.py:NAME"),
        ("mine.py:", "Write it as FILE.py:NAME"),
        ("mine.py:a b", "Write it as FILE.py:NAME"),
        ("absent.py:short", "absent.py: no such file"),
        ("mine.py:shrt", "defines no 'shrt'"),
        ("mine.py:number", "is of type int"),
        ("mine.py:Longest", "is a class"),
        ("mine.py:two", "cannot be called with .prompt, response, record.*too many positional"),
    ],
)
def test_references_that_cannot_be_used(path, monkeypatch, reference, message):
    monkeypatch.chdir(path.parent)
    with pytest.raises(InputError, match=message):
        load_reward(reference)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nimport no_such_module_anywhere", r"line 2 \(ModuleNotFoundError"),
        ("a = 1\nb = = 2", r"line 2 \(SyntaxError"),
        ("def f():\n    raise KeyError('k')\nf()", r"line 2 \(KeyError"),
        ("import sys\nsys.exit(3)", r"line 2 \(SystemExit"),
    ],
)
def test_files_that_fail_say_where(tmp_path, text, message):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_reward(f"{path}:reward")
