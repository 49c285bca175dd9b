"""Who gets which item, and what is kept: leases, double rating, the meta-reviewer's queue, crashes."""

import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_tools.review.store import ReviewStore, Taken
from tests.data_tools.review_rows import pair_item, question_item, rated
from vrjax.errors import InputError

ACCEPT = {"decision": "accept", "comment": ""}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def store_of(path, count=3, task="adjudicate", raters=1, clock=None) -> ReviewStore:
    store = ReviewStore(path / "review.sqlite", lease_s=100, **({"clock": clock} if clock else {}))
    make = pair_item if task == "verify" else question_item
    store.add(task, [make(n) for n in range(count)], raters)
    return store


def opened(store, rater, task="adjudicate"):
    """An item that is there."""
    item = store.next_item(task, rater)
    assert item is not None
    return item


def test_two_raters_never_have_the_same_item(tmp_path):
    store = store_of(tmp_path, 2)
    first, second = opened(store, "ann"), opened(store, "bob")
    assert (first.name, second.name) == ("q000", "q001")
    assert store.next_item("adjudicate", "cy") is None
    # Whoever comes back finds the item that was open.
    assert opened(store, "ann").id == first.id
    assert store.save(first.id, "ann", ACCEPT)
    assert store.next_item("adjudicate", "ann") is None


def test_a_lease_that_ran_out_goes_to_the_next_and_its_late_answer_is_refused(tmp_path):
    clock = Clock()
    store = store_of(tmp_path, 1, clock=clock)
    item = opened(store, "ann")
    clock.now += 99
    store.renew(item.id, "ann")
    clock.now += 99
    assert store.next_item("adjudicate", "bob") is None
    clock.now += 2
    assert opened(store, "bob").id == item.id
    with pytest.raises(Taken, match="gone to somebody else"):
        store.save(item.id, "ann", ACCEPT)
    with pytest.raises(Taken):
        store.renew(item.id, "ann")
    assert store.save(item.id, "bob", ACCEPT)
    assert [one.rater for one in store.answers_of(item.id)] == ["bob"]


def test_a_late_answer_counts_while_the_place_is_free(tmp_path):
    clock = Clock()
    store = store_of(tmp_path, 1, clock=clock)
    item = opened(store, "ann")
    clock.now += 500
    assert store.save(item.id, "ann", ACCEPT)


def test_the_same_answer_again_changes_nothing_and_another_takes_its_place(tmp_path):
    store = store_of(tmp_path)
    item = opened(store, "ann")
    assert store.save(item.id, "ann", ACCEPT) is True
    assert store.save(item.id, "ann", ACCEPT) is False
    assert store.save(item.id, "ann", {"decision": "reject", "comment": ""}) is True
    assert [one.body["decision"] for one in store.answers_of(item.id)] == ["reject"]
    assert [row["answer"]["decision"] for row in store.log()] == ["accept", "reject"]
    assert store.answered("adjudicate", "ann") == [item.id]


def test_what_is_put_aside_comes_back_last(tmp_path):
    store = store_of(tmp_path, 3)
    first = opened(store, "ann")
    store.put_aside(first.id, "ann")
    assert opened(store, "bob").id == first.id  # free for others at once
    store.put_aside(first.id, "bob")
    names = []
    for _ in range(3):
        item = opened(store, "ann")
        names.append(item.name)
        store.save(item.id, "ann", ACCEPT)
    assert names == ["q001", "q002", "q000"]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_each_item_gets_exactly_its_number_of_different_raters(tmp_path_factory, data):
    """Any order of opening, saving, putting off, and running out of time."""
    raters, people = data.draw(st.integers(1, 3)), ["a", "b", "c", "d"]
    clock = Clock()
    store = store_of(tmp_path_factory.mktemp("db"), 3, "verify", raters, clock)
    store.setting("low_at", 0)
    open_items = {}
    for _ in range(30):
        who = data.draw(st.sampled_from(people))
        what = data.draw(st.sampled_from(["open", "save", "aside", "wait"]))
        if what == "open":
            open_items[who] = store.next_item("verify", who)
        elif what == "wait":
            clock.now += 60
        elif open_items.get(who) is not None:
            item = open_items.pop(who)
            if what == "aside":
                store.put_aside(item.id, who)
            else:
                try:
                    store.save(item.id, who, rated())
                except Taken:
                    # Refused only where others fill all places by answers or open items.
                    others = [one.rater for one in store.answers_of(item.id)]
                    assert who not in others
        for _, answers in store.answers("verify"):
            assert len(answers) <= raters
    clock.now += 1000
    for who in people:
        while (item := store.next_item("verify", who)) is not None:
            store.save(item.id, who, rated())
    assert all(len({one.rater for one in answers}) == raters for _, answers in store.answers("verify"))


def test_many_raters_at_once_lose_and_double_nothing(tmp_path):
    store_of(tmp_path, 30, "verify", 2)
    faults = []

    def work(rater: str) -> None:
        store = ReviewStore(tmp_path / "review.sqlite")
        try:
            while (item := store.next_item("verify", rater)) is not None:
                store.save(item.id, rater, rated())
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(f"rater {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    found = ReviewStore(tmp_path / "review.sqlite")
    assert Counter(len({one.rater for one in answers}) for _, answers in found.answers("verify")) == {2: 30}
    assert len(found.log()) == 60


def test_low_ratings_call_a_meta_reviewer_who_did_not_rate(tmp_path):
    store = store_of(tmp_path, 2, "verify", 2)
    item = opened(store, "ann", "verify")
    store.save(item.id, "ann", rated(4, questions_depth=2))
    assert store.items("meta") == []  # not before all ratings are there
    assert opened(store, "bob", "verify").id == item.id
    store.save(item.id, "bob", rated(5))
    assert [one.name for one in store.items("meta")] == [item.name]
    assert store.next_item("meta", "ann") is None
    assert store.next_item("meta", "bob") is None
    # A changed mind takes it out of the queue, and puts it back.
    store.save(item.id, "ann", rated(4))
    assert store.items("meta") == []
    store.save(item.id, "ann", rated(1))
    meta = opened(store, "cy", "meta")
    with pytest.raises(Taken, match="you rated it"):
        store.save(meta.id, "ann", {"decision": "keep", "reason": "mine"})
    store.save(meta.id, "cy", {"decision": "remove", "reason": "vague"})
    with pytest.raises(Taken, match="a meta-reviewer has decided"):
        store.save(item.id, "ann", rated(5))


def test_items_come_in_once_and_answered_ones_do_not_change(tmp_path):
    store = store_of(tmp_path, 2)
    assert store.add("adjudicate", [question_item(n) for n in range(3)]) == {"new": 1, "changed": 0, "known": 2}
    name, payload = question_item(1)
    assert store.add("adjudicate", [(name, {**payload, "why": "other"})])["changed"] == 1
    item = opened(store, "ann")
    store.save(item.id, "ann", ACCEPT)
    with pytest.raises(InputError, match="was answered, and now comes with other content"):
        store.add("adjudicate", [(name, payload), (item.name, {**item.payload, "why": "other"})])
    assert store.items()[1].payload["why"] == "other"  # all or none
    with pytest.raises(InputError, match="comes twice"):
        store.add("adjudicate", [question_item(7), question_item(7)])
    with pytest.raises(InputError, match="cannot name an item"):
        store.add("adjudicate", [("\ud800", {})])


def test_a_file_that_is_no_review_database_is_named(tmp_path):
    with pytest.raises(InputError, match="is not there"):
        ReviewStore(tmp_path / "none.sqlite", create=False)
    (tmp_path / "text.sqlite").write_text("this is no database, and it is long enough to be looked at" * 20)
    with pytest.raises(InputError, match="is no review database"):
        ReviewStore(tmp_path / "text.sqlite")
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE things (x)")
    other.close()
    with pytest.raises(InputError, match="of another program"):
        ReviewStore(tmp_path / "other.sqlite")
    store_of(tmp_path)
    db = sqlite3.connect(tmp_path / "review.sqlite")
    db.execute("PRAGMA user_version = 7")
    db.close()
    with pytest.raises(InputError, match="has schema version 7, and this program reads 1"):
        ReviewStore(tmp_path / "review.sqlite")


def test_unknown_items_are_refused(tmp_path):
    store = store_of(tmp_path)
    for act in (store.item, lambda n: store.save(n, "ann", ACCEPT), lambda n: store.renew(n, "ann")):
        with pytest.raises(InputError, match="there is no item 99"):
            act(99)


def test_answers_outlive_a_killed_process(tmp_path):
    """A process is killed by SIGKILL in the middle of saving; all that it said was saved is there, and nothing half."""
    store_of(tmp_path, 200)
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom data_tools.review.store import ReviewStore\n"
        "store = ReviewStore(Path(sys.argv[1]))\n"
        "while (item := store.next_item('adjudicate', 'ann')) is not None:\n"
        "    store.save(item.id, 'ann', {'decision': 'accept', 'comment': ''})\n"
        "    print(item.name, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "review.sqlite")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(20)]
    process.kill()
    said += process.stdout.read().split()
    process.wait()
    store = ReviewStore(tmp_path / "review.sqlite")
    kept = [item.name for item, answers in store.answers("adjudicate") if answers]
    assert set(said) <= set(kept)
    assert len(kept) - len(said) <= 1
    assert len(store.log()) == len(kept)
    left = 0
    while (item := store.next_item("adjudicate", "ann")) is not None:
        store.save(item.id, "ann", ACCEPT)
        left += 1
    assert len(kept) + left == 200
    assert json.dumps(store.progress()["adjudicate"]["done"]) == "200"
