"""A machine for pickles makes plain values as pickle does, calls only what it admits, and refuses the rest by name."""

import collections
import io
import os
import pickle
from pathlib import Path

import pytest

from data_utils.original_pickles import read_original
from data_utils.pickle_machine import PickleMachine, RefusedError
from testing.gadgets import COMMAND, GADGETS


class _Point:
    def set_state(self, state):
        self.state = state


class _Machine(PickleMachine):
    subject = "a point"
    admitted = {("collections", "OrderedDict"): dict, ("plane", "Point"): _Point}
    stateful = (_Point,)


def load(content, machine=_Machine):
    return machine(io.BytesIO(content), len(content)).load()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_of_every_protocol(protocol):
    value = {"a": [1, -2 ** 70, None, True], "b": ("c", {"d": ()}), "e": [[]] * 2}
    assert load(pickle.dumps(value, protocol)) == value
    assert load(pickle.dumps(collections.OrderedDict(a=1), protocol)) == {"a": 1}


def test_state_goes_to_what_takes_it():
    assert load(b"cplane\nPoint\n)\x81K\x07b.").state == 7
    with pytest.raises(RefusedError, match="Expected an object that has a state. Received: type=list"):
        load(b"]K\x07b.")


def test_what_is_not_admitted_is_refused_by_name():
    with pytest.raises(RefusedError, match="Expected no other names than those of a point. Received: name=posix.getpid"):
        load(pickle.dumps(os.getpid))
    with pytest.raises(RefusedError, match="Expected no pickle opcode EXT1. Received: position=0"):
        load(pickle.EXT1 + b"\x01.")


def test_a_persistent_key_is_refused_unless_a_machine_finds_it():
    class Finder(_Machine):
        def find_persistent(self, key):
            return {"here": 5}[key]

    content = b"X\x04\x00\x00\x00hereQ."
    assert load(content, Finder) == 5
    with pytest.raises(RefusedError, match="Expected no pickle opcode BINPERSID. Received: position=9"):
        load(content)


MALICIOUS = {  # name: (a pickle that wants a name, what the refusal must say)
    **{name: gadget for name, gadget in GADGETS.items() if gadget[1].startswith("name=")},
    "import": (b"c__builtin__\n__import__\n" + COMMAND + b"\x85R.", "name=__builtin__.__import__"),
    "getattr": (b"c__builtin__\ngetattr\n" + COMMAND + COMMAND + b"\x86R.", "name=__builtin__.getattr"),
    "INST of a class": (b"(" + COMMAND + b"isubprocess\nPopen\n.", "name=subprocess.Popen"),
    "_reconstructor": (b"ccopyreg\n_reconstructor\n)R.", "name=copyreg._reconstructor"),
}


@pytest.mark.parametrize("name", MALICIOUS)
def test_nothing_is_run_whoever_reads(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, complaint = MALICIOUS[name]
    with pytest.raises(RefusedError, match=f"Received: {complaint}$"):
        load(content)
    Path("cache.pkl").write_bytes(content)
    with pytest.raises(ValueError, match="than those of a corpus. Received: name=.*, path=cache.pkl"):
        read_original("cache.pkl")
    assert not Path("marker").exists()


def test_a_foreign_class_inside_an_admitted_call_is_refused(tmp_path):
    path = tmp_path / "cache.pkl"
    path.write_bytes(b"ccopy_reg\n_reconstructor\n(csubprocess\nPopen\nc__builtin__\nobject\nNtR.")
    with pytest.raises(ValueError, match="Received: name=subprocess.Popen, path="):
        read_original(path)
