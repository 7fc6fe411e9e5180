"""What a newcomer may do wrong: each is told at once and by name, changes nothing, and lets nobody hang."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import COLD, Bench, Call, FakeClock, FakeLoader, FakeSpec

from backends.errors import InvalidInput
from backends.running.deadline import Deadline
from backends.running.overtime import Overtime
from lifecycle import BudgetExhausted, InstanceKey, LeaseTimeout, LoadFailed, ModelConfig, ModelManager, ModelRef
from lifecycle.events import ModelReady, Stalled

if TYPE_CHECKING:
    from collections.abc import Callable

    MakeBench = Callable[..., Bench]

A = ModelRef("t", "A")
SPEC = FakeSpec("A", 1, 1)


@pytest.mark.parametrize("ref", ["A", ("t", "A"), None])
def test_ref_of_another_kind_is_refused_when_it_is_leased(bench: MakeBench, ref: Any) -> None:
    """A plain tuple equals the ref that is registered, but names no tenant: it is refused, and nobody waits for it."""
    b = bench(1)
    b.add("A")
    for lease in (b.manager.lease(ref), b.manager.lease_set([ref])):
        with pytest.raises(InvalidInput, match="give a ModelRef"), lease:
            pytest.fail("it was entered")
    assert b.loads("A") == 0


def test_set_is_refused_when_it_is_a_ref_and_not_a_list_of_refs(bench: MakeBench) -> None:
    """A ref passed where a list of refs belongs is itself a sequence, of strings, which are no refs."""
    b = bench(1)
    b.add("A")
    with pytest.raises(InvalidInput, match="ref is 't'"), b.manager.lease_set(A):  # type: ignore[arg-type] - the mistake
        pytest.fail("it was entered")


@pytest.mark.parametrize(
    ("ref", "key", "config", "told"),
    [
        (("t", "A"), None, COLD, "ref is .*ModelRef"),
        ("A", None, COLD, "ref is 'A': give a ModelRef"),
        (ModelRef("t", ["A"]), None, COLD, "unhashable"),  # type: ignore[arg-type]
        (ModelRef(None, "A"), None, COLD, "tenant is None: give a str"),  # type: ignore[arg-type]
        (A, "A", COLD, "key is 'A': give a InstanceKey"),
        (A, InstanceKey("A", "fake", (("threads", []),)), COLD, "unhashable"),  # type: ignore[arg-type]
        (A, None, {"ttl_s": 5.0}, "config is .*ModelConfig"),
    ],
)
def test_nothing_is_registered_when_something_is_of_another_kind(
    bench: MakeBench, ref: Any, key: Any, config: Any, told: str
) -> None:
    """A ref, key or config of the wrong type leaves no half of a registration behind."""
    b = bench(1)
    with pytest.raises(InvalidInput, match=told):
        b.manager.register(ref, SPEC, b.loader, config, key=key)
    assert b.manager.registered() == ()
    assert not b.manager.snapshot().models
    b.add("A")
    b.use("A")


def test_key_is_asked_for_when_a_spec_has_no_digest(bench: MakeBench) -> None:
    """A spec that can't be told from another by a digest needs a key, to register and to replace."""
    b = bench(1)
    b.add("A")
    for order in (b.manager.register, b.manager.replace):
        with pytest.raises(InvalidInput, match="a str has no digest: give key="):
            order(A, "a path", b.loader)


def test_load_policy_is_refused_when_it_is_a_string() -> None:
    """The word "eager" would otherwise pass for lazy."""
    with pytest.raises(InvalidInput, match="load_policy is 'eager': give a LoadPolicy"):
        ModelConfig(load_policy="eager")  # type: ignore[arg-type] - the mistake


@pytest.mark.parametrize("model", [None, object()])
def test_load_fails_when_what_is_loaded_can_not_be_closed(bench: MakeBench, model: object) -> None:
    """Without `close()` its bytes could never be known to be free: told at the load, not at the unload."""
    b = bench(1)
    b.add("A")
    b.loader.load_model = lambda _spec: model  # type: ignore[method-assign,assignment,return-value] - the mistake
    with pytest.raises(LoadFailed, match=f"returned a {type(model).__name__}, which has no close"):
        b.use("A")
    assert b.manager.snapshot().charged_nbytes == 0


def test_hook_is_refused_when_it_can_not_be_called(bench: MakeBench) -> None:
    """What is no function is told to who gives it, not to the log at each event."""
    with pytest.raises(InvalidInput, match="hook is 3"):
        bench(1).manager.subscribe(3)  # type: ignore[arg-type] - the mistake


def test_tenant_is_refused_when_its_name_is_no_string(bench: MakeBench) -> None:
    """A tenant's name is a string, as in the refs."""
    with pytest.raises(InvalidInput, match="name is None"):
        bench(1).manager.set_tenant(None)  # type: ignore[arg-type] - the mistake


def test_other_hooks_are_told_when_one_ends_its_thread(bench: MakeBench) -> None:
    """A hook's `sys.exit()` ends neither the other hooks nor what they are told later."""
    b = bench(1)
    b.add("A")
    told: list[str] = []
    b.manager.subscribe(lambda _event: exit_now())
    b.manager.subscribe(lambda event: told.append(type(event).__name__))
    b.use("A")
    b.manager.close()
    assert told == ["ModelReady", "ModelUnloaded"]


def exit_now() -> None:
    """End the thread, as somebody's signal handler might."""
    raise SystemExit


def test_caller_is_told_when_the_keeper_can_not_take_its_request(bench: MakeBench) -> None:
    """A defect met while a request is put into the queue is its caller's error, and never a wait without end."""
    b = bench(1)
    b.add("A")
    admit = b.manager._keeper.admit

    def fail_once(*_: object) -> None:
        b.manager._keeper.admit = admit  # type: ignore[method-assign] - put back by itself
        raise SystemExit(7)

    b.manager._keeper.admit = fail_once  # type: ignore[method-assign] - once
    with pytest.raises(SystemExit):
        b.use("A")
    b.use("A")


def test_lease_within_a_lease_ends_when_the_model_is_claimed(bench: MakeBench) -> None:
    """A second lease on a model that must leave waits for who claimed it, who waits for the first: one times out."""
    b = bench(1)
    b.add("A")
    b.add("B")
    with b.lease("A") as model:
        with b.lease("A", 0.0) as same:
            assert same is model
        for_b = b.later("B", timeout_s=60.0)
        b.waiting(1)
        within = b.later("A", timeout_s=5.0)
        b.waiting(2)
        b.pass_time(5.0)
        assert isinstance(within.error(), LeaseTimeout)
    for_b.result()


def test_loader_may_lease_another_model_when_there_is_room_and_a_slot(bench: MakeBench) -> None:
    """A loader that needs a second model gets it; with no room left for that its load fails, by the lease's name."""
    b = bench(2)
    b.add("A")
    b.add("B")
    load = b.loader.load_model

    def load_both(spec: FakeSpec) -> Any:
        if spec.digest == "A":
            b.use("B", 0.0)
        return load(spec)

    b.use("B")
    b.loader.load_model = load_both  # type: ignore[method-assign] - as above
    b.use("A")
    b.manager.unload(A)
    b.manager.set_budget(1)
    with pytest.raises(LoadFailed) as caught:
        b.use("A")
    assert isinstance(caught.value.cause, BudgetExhausted)


def test_hook_may_lease_when_it_is_told(bench: MakeBench) -> None:
    """A hook runs on a thread of its own, so it may ask for a model and wait for it."""
    b = bench(2)
    b.add("A")
    b.add("B")
    done = threading.Event()

    def use_b(event: object) -> None:
        if isinstance(event, ModelReady) and event.key.digest == "A":
            b.use("B")
            done.set()

    b.manager.subscribe(use_b)
    b.use("A")
    assert done.wait(600.0)


def test_models_are_unloaded_when_a_manager_is_dropped() -> None:
    """A manager that nobody has any more unloads what it holds, and its threads end; a lease out keeps it alive."""
    before = set(threading.enumerate())
    loader = FakeLoader()
    manager = ModelManager(1, clock=FakeClock(), resident=lambda: None)
    manager.register(A, SPEC, loader)
    manager.subscribe(lambda _event: None)
    lease = manager.lease(A)
    gone = weakref.ref(manager)
    with lease:
        del manager
        gc.collect()
        assert gone() is not None
    del lease
    gc.collect()
    assert gone() is None
    for thread in set(threading.enumerate()) - before:
        thread._started.wait(600.0)  # one that is about to start can't be joined yet
        thread.join(600.0)
        assert not thread.is_alive()
    assert not +loader.resident
    assert loader.done["A", "close"] == 1


@pytest.mark.parametrize("order", ["set_budget", "subscribe", "overtime"])
def test_dropped_manager_goes_when_its_last_letter_spoke_of_it(order: str) -> None:
    """L6: no idle worker's frame keeps what it was last given, so nobody who is dropped is kept alive by that."""
    loader = FakeLoader()
    manager = ModelManager(1, clock=FakeClock(), resident=lambda: None)
    manager.register(A, SPEC, loader)
    told = threading.Event()
    overtime = Overtime()
    if order == "set_budget":
        manager.set_budget(2)
    elif order == "subscribe":
        manager.subscribe(lambda _event: told.set())
        manager.announce(Stalled(InstanceKey("", ""), 0, manager))  # type: ignore[arg-type]  # what an event speaks of
        assert told.wait(600.0)
    else:
        overtime.run(manager.reap, Deadline.after(30.0))
    gone = weakref.ref(manager)
    del manager
    for _ in range(1000):  # the worker may be about to put its letter down
        gc.collect()
        if gone() is None:
            break
    overtime.close()
    assert gone() is None


FORKING = """
import os
from lifecycle import InstanceKey, ModelManager, ModelRef

class Word:
    nbytes = 1
    def __init__(self, text): self.text = text
    def close(self): pass

class Words:
    name = "words"
    def estimate(self, spec): return 1
    def load_model(self, spec): return Word(spec)

refs = [ModelRef("t", "A"), ModelRef("t", "B")]
manager = ModelManager(2)
for ref in refs:
    manager.register(ref, ref.name, Words(), key=InstanceKey(ref.name, "words"))
with manager.lease(refs[0]):
    pass
manager.subscribe(lambda event: None)
keeper = manager._keeper
BUSY
child = os.fork()
if not child:
    with manager.lease_set(refs, 20.0) as models:
        print(*(model.text for model in models), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
manager.close()
"""


BUSY = """
import queue, threading
class Dead(queue.SimpleQueue):  # what another thread was about to write when the process was forked
    def put(self, item): threading.Event().wait()
locks = keeper._starting, manager._notifier._changed
for lock in locks:
    lock.acquire()
real, keeper._mail = keeper._mail, Dead()
"""
PARENT = """
assert os.waitpid(child, 0)[1] == 0
keeper._mail = real
for lock in locks:
    lock.release()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="fork is a POSIX call")
@pytest.mark.parametrize("busy", [False, True])
def test_forked_child_is_served_when_nothing_was_loading(busy: bool) -> None:  # noqa: FBT001 - parametrized
    """A child finds what its parent had loaded, and loads more by a thread of its own.

    L9: also if other threads were in the middle of the queue, or held a lock, when it was forked.
    """
    # In a process of its own: this one may hold a runtime's threads by now, with which a fork is not safe.
    code = FORKING.replace("BUSY\n", BUSY * busy)
    if busy:
        code = code.replace("assert os.waitpid(child, 0)[1] == 0\n", PARENT)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert (done.stdout.split(), done.returncode) == (["A", "B"], 0), done.stderr


def test_close_is_one_when_many_threads_close(bench: MakeBench) -> None:
    """Eight threads that close at once all return when the one unload is done."""
    b = bench(1)
    b.add("A")
    b.use("A")
    gate = b.loader.hold("A", "close")
    closes = [Call(b.manager.close) for _ in range(8)]
    gate.reached.wait()
    gate.opened.set()
    for close in closes:
        close.result()
    assert b.loader.done["A", "close"] == 1
