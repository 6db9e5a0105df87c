"""How threads reach a dispatcher: nothing that is accepted is lost, and a wake-up is remembered if nobody waits."""

import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from sqlqueue.consumer.polling import Inbox

LIMIT = 10.0


def test_items_come_all_at_once_and_in_order() -> None:
    inbox: Inbox[int] = Inbox()
    assert [inbox.put(number) for number in (1, 2, 3)] == [True, True, True]
    assert inbox.take(0.0) == ([1, 2, 3], False)
    assert inbox.take(0.0) == ([], False)


def test_a_wake_up_is_remembered_until_somebody_looks() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.wake()
    inbox.put(1)
    assert inbox.take(None) == ([1], True)
    assert inbox.take(0.0) == ([], False)


def test_wake_ups_coalesce_and_are_counted_all() -> None:
    inbox: Inbox[int] = Inbox()
    for _ in range(1000):
        inbox.wake()
    assert inbox.wakes == 1000
    assert inbox.take(None) == ([], True)
    assert inbox.take(0.0) == ([], False)


def test_a_wait_ends_by_a_put_a_wake_or_a_rouse_from_another_thread() -> None:
    inbox: Inbox[int] = Inbox()
    with ThreadPoolExecutor(1) as pool:
        for act, taken in ((lambda: inbox.put(7), ([7], False)), (inbox.wake, ([], True)), (inbox.rouse, ([], False))):
            waiting = pool.submit(inbox.take, None)
            act()
            assert waiting.result(LIMIT) == taken


def test_a_wait_ends_by_its_time_as_well() -> None:
    assert Inbox[int]().take(0.01) == ([], False)


def test_a_closed_inbox_refuses_what_comes_and_gives_what_it_has() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    inbox.close()
    assert not inbox.put(2)
    assert inbox.take(0.0) == ([1], False)


def test_what_is_accepted_while_the_inbox_closes_is_taken_once() -> None:
    for _ in range(50):
        inbox: Inbox[int] = Inbox()
        start = threading.Barrier(3)
        accepted: list[list[int]] = [[], []]

        def put(mine: list[int], inbox: Inbox[int] = inbox, start: threading.Barrier = start) -> None:
            start.wait(LIMIT)
            mine.extend(number for number in range(50) if inbox.put(number))

        threads = [threading.Thread(target=put, args=(mine,)) for mine in accepted]
        for thread in threads:
            thread.start()
        start.wait(LIMIT)
        inbox.close()
        taken, _ = inbox.take(0.0)  # at once: who puts now is refused
        for thread in threads:
            thread.join()
        assert sorted(taken) == sorted([*accepted[0], *accepted[1]])


@given(st.lists(st.sampled_from(["put", "wake", "rouse", "take"])))
def test_every_item_is_taken_once_and_no_wake_up_goes_unseen(actions: list[str]) -> None:
    inbox: Inbox[int] = Inbox()
    put: list[int] = []
    taken: list[int] = []
    pending = False
    for number, action in enumerate([*actions, "take"]):
        if action == "put":
            inbox.put(number)
            put.append(number)
        elif action == "wake":
            inbox.wake()
            pending = True
        elif action == "rouse":
            inbox.rouse()
        else:
            items, woken = inbox.take(0.0)
            taken += items
            assert woken == pending
            pending = False
    assert taken == put


def test_a_take_that_overlaps_with_wake_ups_misses_none_of_them() -> None:
    inbox: Inbox[int] = Inbox()

    def wake() -> None:
        for number in range(500):
            inbox.put(number)
            inbox.wake()

    thread = threading.Thread(target=wake)
    thread.start()
    taken: list[int] = []
    seen = 0
    while len(taken) < 500 or seen < 500:
        items, woken = inbox.take(LIMIT)
        taken += items
        seen = inbox.wakes if woken else seen
    thread.join()
    assert taken == list(range(500))
